//! NVRTC: from kernel text and C++ name expressions to a cubin or to PTX, with what the compiler counted.
//!
//! cudarc's safe layer yields PTX alone, so this goes through its `sys` layer: headers from memory, name expressions
//! to instantiate templates, a cubin for an explicit architecture (no PTX reaches the driver, hence no second
//! compiler), and the log. [`Nvrtc::load`] is the only way in, and succeeds only where the library is loaded, so that
//! cudarc's panic for a missing library cannot be reached.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use batchlas_core::{Kernel, KernelSource};
use cudarc::nvrtc::sys;

use crate::Error;
use crate::arch::Arch;
use crate::headers::{HEADERS, Header};
use crate::locate::{self, Library};
use crate::ptxas::{self, Usage};

/// Oldest major release that serves: the bindings are those of CUDA 13.
const OLDEST_MAJOR: c_int = 13;

/// Options of every compile. Functions without a qualifier are device functions; the cache is ours, and a second one
/// inside NVRTC would hide compile times.
pub const BASE_OPTIONS: &[&str] = &["--std=c++17", "-default-device", "-no-cache"];

/// What is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Name of the source file, as errors and line tables give it.
    pub source_name: &'a str,
    /// Its text.
    pub source: &'a str,
    /// The headers that it may include.
    pub headers: &'a [Header<'a>],
    /// C++ name expressions of the kernels wanted, e.g. `batchlas::potrf_tiny<float, 17>`.
    pub entries: &'a [&'a str],
    /// The architecture.
    pub arch: Arch,
    /// Options beside [`BASE_OPTIONS`] and the architecture.
    pub options: &'a [&'a str],
}

impl<'a> Job<'a> {
    /// The job of an operation's kernel, with the shared headers. `entries` holds its name expression: a job borrows
    /// a slice of them.
    pub fn of(kernel: &'a Kernel, entries: &'a [&'a str; 1], arch: Arch) -> Job<'a> {
        let KernelSource { name, text } = *kernel.source;
        Job { source_name: name, source: text, headers: HEADERS, entries, arch, options: &[] }
    }
}

/// One kernel of a compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The mangled name, which the image knows the kernel by.
    pub lowered: String,
    /// What the compiler counted.
    pub usage: Usage,
}

/// Machine code of one or more kernels.
#[derive(Clone, Debug)]
pub struct Cubin {
    /// The image, for `cuModuleLoadData`.
    pub image: Vec<u8>,
    /// One per name expression, in the order of the job.
    pub entries: Vec<Entry>,
    /// Wall time of the compile.
    pub seconds: Duration,
}

/// PTX of one or more kernels, with line information.
#[derive(Clone, Debug)]
pub struct Ptx {
    /// The text.
    pub text: String,
    /// The mangled name of each name expression, in the order of the job.
    pub lowered: Vec<String>,
}

/// The loaded run-time compiler.
#[derive(Clone, Copy, Debug)]
pub struct Nvrtc {
    major: c_int,
    minor: c_int,
    path: &'static Path,
}

impl Nvrtc {
    /// Finds and loads NVRTC.
    ///
    /// # Errors
    /// [`Error::NotFound`], or [`Error::NvrtcTooOld`] where an older release hides the one that was found.
    pub fn load() -> Result<Nvrtc, Error> {
        let loaded = locate::load(Library::Nvrtc)?;
        // SAFETY: opens libraries by the names of NVRTC, as the locator just did.
        let present = unsafe { sys::is_culib_present() };
        if !present {
            let tried = vec![(loaded.path.clone(), "loaded, but cudarc cannot open it by name".to_owned())];
            return Err(locate::NotFound { library: Library::Nvrtc, tried }.into());
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to live integers.
        let result = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
        check("nvrtcVersion", result, "nothing yet")?;
        if major < OLDEST_MAJOR {
            let (needed, located) = (OLDEST_MAJOR, loaded.path.clone());
            return Err(Error::NvrtcTooOld { major, minor, needed, located });
        }
        Ok(Nvrtc { major, minor, path: &loaded.path })
    }

    /// The release, e.g. `13.0`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.major, self.minor)
    }

    /// The file, or the bare name where the system loader found it.
    pub fn path(&self) -> &'static Path {
        self.path
    }

    /// Compiles to machine code.
    ///
    /// # Errors
    /// [`Error::Compile`] with the whole log where the source does not compile or a kernel exceeds a hard limit;
    /// [`Error::LogTruncated`], [`Error::LogLine`] and [`Error::EntriesUnmatched`] where the compiler's report does
    /// not cover exactly the kernels asked for.
    #[tracing::instrument(level = "debug", skip_all, fields(source = job.source_name, entries = ?job.entries, arch = %job.arch))]
    pub fn cubin(&self, job: &Job<'_>) -> Result<Cubin, Error> {
        let start = Instant::now();
        let program = Program::new(job)?;
        let log = program.compile(&job.arch.to_string(), &["-Xptxas=-v"])?;
        let lowered = program.lowered()?;
        let image = program.cubin()?;
        if image.is_empty() {
            return Err(program.failure("no cubin", &job.arch.to_string(), log));
        }
        let usages = ptxas::parse_expecting(&log, &lowered)?;
        let entries =
            lowered.into_iter().zip(usages).map(|(lowered, usage)| Entry { lowered, usage }).collect();
        let seconds = start.elapsed();
        tracing::info!(seconds = seconds.as_secs_f64(), bytes = image.len(), "compiled");
        Ok(Cubin { image, entries, seconds })
    }

    /// Compiles to PTX with line information, for the simulator. The virtual architecture of the job's is used.
    ///
    /// # Errors
    /// [`Error::Compile`] with the whole log.
    #[tracing::instrument(level = "debug", skip_all, fields(source = job.source_name, entries = ?job.entries, arch = %job.arch))]
    pub fn ptx(&self, job: &Job<'_>) -> Result<Ptx, Error> {
        let program = Program::new(job)?;
        let arch = job.arch.virtual_name();
        let log = program.compile(&arch, &["-lineinfo"])?;
        let lowered = program.lowered()?;
        let text = program.ptx()?;
        if text.is_empty() {
            return Err(program.failure("no PTX", &arch, log));
        }
        Ok(Ptx { text, lowered })
    }
}

/// An `nvrtcProgram` that is destroyed on drop, and the strings it refers to.
struct Program<'a> {
    handle: sys::nvrtcProgram,
    job: &'a Job<'a>,
    expressions: Vec<CString>,
    _texts: Vec<CString>,
}

impl<'a> Program<'a> {
    fn new(job: &'a Job<'a>) -> Result<Program<'a>, Error> {
        let c = |what, text: &str| c_string(what, text, job.source_name);
        let name = c("the name", job.source_name)?;
        let source = c("the text", job.source)?;
        let expressions =
            job.entries.iter().map(|entry| c("a name expression", entry)).collect::<Result<Vec<_>, _>>()?;
        let mut texts = Vec::with_capacity(2 * job.headers.len() + 2);
        for header in job.headers {
            texts.push(c("a header's name", header.name)?);
            texts.push(c("a header's text", header.text)?);
        }
        let names: Vec<*const c_char> = texts.iter().step_by(2).map(|text| text.as_ptr()).collect();
        let contents: Vec<*const c_char> =
            texts.iter().skip(1).step_by(2).map(|text| text.as_ptr()).collect();
        let mut handle = ptr::null_mut();
        // SAFETY: the strings are NUL-terminated; both arrays have the length given; all outlive the call, and those
        // that NVRTC may refer to later are kept in the returned value.
        let result = unsafe {
            sys::nvrtcCreateProgram(
                &mut handle,
                source.as_ptr(),
                name.as_ptr(),
                names.len() as c_int,
                contents.as_ptr(),
                names.as_ptr(),
            )
        };
        texts.extend([name, source]);
        check("nvrtcCreateProgram", result, job.source_name)?;
        let program = Program { handle, job, expressions, _texts: texts };
        for expression in &program.expressions {
            // SAFETY: the program is live and not yet compiled; the expression lives as long as it does.
            let result = unsafe { sys::nvrtcAddNameExpression(program.handle, expression.as_ptr()) };
            check("nvrtcAddNameExpression", result, job.source_name)?;
        }
        Ok(program)
    }

    /// Compiles and returns the log.
    fn compile(&self, arch: &str, extra: &[&str]) -> Result<String, Error> {
        let arch_option = format!("--gpu-architecture={arch}");
        let options = BASE_OPTIONS
            .iter()
            .chain(extra)
            .copied()
            .chain([arch_option.as_str()])
            .chain(self.job.options.iter().copied())
            .map(|option| c_string("an option", option, self.job.source_name))
            .collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is live; the array has the length given, of strings that outlive the call.
        let result =
            unsafe { sys::nvrtcCompileProgram(self.handle, pointers.len() as c_int, pointers.as_ptr()) };
        let log = self.text("nvrtcGetProgramLog", sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)?;
        match result {
            sys::nvrtcResult::NVRTC_SUCCESS => Ok(log),
            code => Err(self.failure(&format!("{code:?}"), arch, log)),
        }
    }

    fn failure(&self, code: &str, arch: &str, log: String) -> Error {
        Error::Compile {
            source_name: self.job.source_name.to_owned(),
            arch: arch.to_owned(),
            code: code.to_owned(),
            entries: self.job.entries.join(", "),
            log: if log.trim().is_empty() { "(the compiler wrote no log)".to_owned() } else { log },
        }
    }

    fn lowered(&self) -> Result<Vec<String>, Error> {
        let lower = |expression: &CString| {
            let mut name = ptr::null();
            // SAFETY: the program was compiled, and the expression was added to it.
            let result = unsafe { sys::nvrtcGetLoweredName(self.handle, expression.as_ptr(), &mut name) };
            check("nvrtcGetLoweredName", result, self.job.source_name)?;
            // SAFETY: on success the name is a NUL-terminated string that lives as long as the program.
            let name = unsafe { CStr::from_ptr(name) };
            Ok(name.to_string_lossy().into_owned())
        };
        self.expressions.iter().map(lower).collect()
    }

    fn cubin(&self) -> Result<Vec<u8>, Error> {
        self.bytes("nvrtcGetCUBIN", sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)
    }

    fn ptx(&self) -> Result<String, Error> {
        self.text("nvrtcGetPTX", sys::nvrtcGetPTXSize, sys::nvrtcGetPTX)
    }

    fn text(&self, call: &'static str, size: GetSize, get: GetBytes) -> Result<String, Error> {
        let mut bytes = self.bytes(call, size, get)?;
        bytes.truncate(bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()));
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn bytes(&self, call: &'static str, size: GetSize, get: GetBytes) -> Result<Vec<u8>, Error> {
        let mut length = 0;
        // SAFETY: the program is live and the pointer is to a live integer.
        let result = unsafe { size(self.handle, &mut length) };
        check(call, result, self.job.source_name)?;
        let mut bytes = vec![0_u8; length];
        // SAFETY: the buffer has the length that the program just gave for this output.
        let result = unsafe { get(self.handle, bytes.as_mut_ptr().cast()) };
        check(call, result, self.job.source_name)?;
        Ok(bytes)
    }
}

type GetSize = unsafe fn(sys::nvrtcProgram, *mut usize) -> sys::nvrtcResult;
type GetBytes = unsafe fn(sys::nvrtcProgram, *mut c_char) -> sys::nvrtcResult;

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from nvrtcCreateProgram and is destroyed once. Failure leaves nothing to undo.
        unsafe { sys::nvrtcDestroyProgram(&mut self.handle) };
    }
}

fn check(call: &'static str, result: sys::nvrtcResult, source_name: &str) -> Result<(), Error> {
    match result {
        sys::nvrtcResult::NVRTC_SUCCESS => Ok(()),
        code => Err(Error::Nvrtc { call, code: format!("{code:?}"), source_name: source_name.to_owned() }),
    }
}

fn c_string(what: &'static str, text: &str, source_name: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|error| Error::Nul {
        what,
        source_name: source_name.to_owned(),
        offset: error.nul_position(),
    })
}
