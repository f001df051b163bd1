//! `cargo xtask setup`: what the tests and the probe need beyond Rust, which is NVRTC alone.
//!
//! Nothing happens where the locator finds it. Otherwise its wheel is fetched from PyPI and the two libraries in it
//! are unpacked into `target/cuda`, where `.cargo/config.toml` makes the locator look first. NVIDIA's licence is
//! unpacked beside them: the libraries are used from there, and not part of this project.

use std::path::Path;
use std::process::Command;

use batchlas_kernels::locate::LIB_DIR_VARIABLE;
use batchlas_kernels::nvrtc::Nvrtc;

use crate::Result;

/// The release that is fetched. Newer ones emit PTX that drivers of the same age refuse.
const WHEEL: &str = "nvidia-cuda-nvrtc==13.0.88";

/// Unpacks libraries and licence of the one wheel in the folder `argv[1]` into the folder `argv[2]`, without paths.
/// The `.alt` copies serve other hosts. A file gets its name when it is whole.
const UNPACK: &str = "
import glob, os, shutil, sys, zipfile
[wheel] = glob.glob(os.path.join(sys.argv[1], '*.whl'))
os.makedirs(sys.argv[2], exist_ok=True)
with zipfile.ZipFile(wheel) as archive:
    for entry in archive.namelist():
        name = os.path.basename(entry)
        library = '/lib/' in entry and '.so' in name and '.alt.' not in name
        if library or name == 'License.txt':
            whole = os.path.join(sys.argv[2], name)
            with archive.open(entry) as source, open(whole + '.part', 'wb') as target:
                shutil.copyfileobj(source, target)
            os.replace(whole + '.part', whole)
shutil.rmtree(sys.argv[1])
";

/// Makes NVRTC available, or says what is in the way. `--check` says whether it is, and fetches nothing.
pub(crate) fn run(args: &[&str]) -> Result {
    let check = match args {
        [] => false,
        ["--check"] => true,
        _ => return Err(format!("setup knows --check, not `{}`", args.join(" ")).into()),
    };
    match Nvrtc::load() {
        Ok(nvrtc) => {
            eprintln!("NVRTC {} is present: {}", nvrtc.version(), nvrtc.path().display());
            return Ok(());
        }
        Err(error) if check => return Err(error.into()),
        Err(error) => eprintln!("{error}\nfetching {WHEEL} from PyPI"),
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent folder")?;
    let target = root.join("target/cuda");
    let download = root.join("target/cuda-download");
    let download = download.to_str().ok_or("the path of the workspace is not UTF-8")?;
    let unpacked = target.to_str().ok_or("the path of the workspace is not UTF-8")?;
    const HINT: &str =
        "install Python 3 with pip, or set BATCHLAS_CUDA_LIB_DIR to a folder with libnvrtc.so.13";
    python(
        &["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", WHEEL, "-d", download],
        HINT,
    )?;
    python(&["-c", UNPACK, download, unpacked], "remove target/cuda-download and try again")?;
    // The locator remembers for the life of a process what it did not find.
    let checked = Command::new(std::env::current_exe()?)
        .args(["setup", "--check"])
        .env(LIB_DIR_VARIABLE, &target)
        .status()?;
    if checked.success() {
        Ok(())
    } else {
        Err(format!("what was unpacked into {unpacked} cannot be loaded").into())
    }
}

fn python(args: &[&str], hint: &str) -> Result {
    let failed = |why: String| format!("python3 {}: {why}\n{hint}", args[..args.len().min(3)].join(" "));
    match Command::new("python3").args(args).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(status.to_string()).into()),
        Err(error) => Err(failed(error.to_string()).into()),
    }
}
