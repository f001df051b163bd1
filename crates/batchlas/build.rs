//! Embeds every table under `tuned/`: none can be forgotten in a list.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let folder = Path::new(&manifest).join("../../tuned").canonicalize()?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<_> = fs::read_dir(&folder)?.collect::<io::Result<_>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    let mut list = String::from("&[\n");
    for path in files.iter().map(fs::DirEntry::path).filter(|p| p.extension().is_some_and(|e| e == "toml")) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        list.push_str(&format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string()));
    }
    list.push(']');
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("tables.rs"), list)
}
