//! Contexts on the simulated device, for the verbs that execute kernels: every PTX is compiled once a process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use batchlas::{Context, Environment, Kernel};
use batchlas_bench::once::{Call, Operand};
use batchlas_core::QueueError;
use batchlas_kernels::Arch;
use batchlas_kernels::headers::{HEADERS, Header};
use batchlas_kernels::nvrtc::{Job, Nvrtc};
use batchlas_sim::{Compiled, DeviceConfig, Layout, Permission, SimQueue};

use crate::Result;

/// The architecture that is simulated: the one that is measured.
pub(crate) const ARCH: &str = "sm_90";

/// A change of one file of the device code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    /// The end of the file's name.
    pub(crate) file: &'static str,
    /// What is there; once.
    pub(crate) find: &'static str,
    /// What stands there instead.
    pub(crate) replace: &'static str,
}

impl Edit {
    /// The text of a file with the edit, if it is the file.
    fn apply(&self, name: &str, text: &str) -> Option<String> {
        name.ends_with(self.file).then(|| text.replacen(self.find, self.replace, 1))
    }

    /// How often the text is in the device code that `kernels` are made of, headers included.
    pub(crate) fn matches(&self, kernels: &[Kernel]) -> usize {
        let mut files: Vec<(&str, &str)> = kernels.iter().map(|k| (k.source.name, k.source.text)).collect();
        files.extend(HEADERS.iter().map(|h| (h.name, h.text)));
        files.sort_unstable();
        files.dedup();
        let of = files.iter().filter(|(name, _)| name.ends_with(self.file));
        of.map(|(_, text)| text.matches(self.find).count()).sum()
    }
}

/// The compiler behind the queues.
pub(crate) struct Compiler {
    nvrtc: Nvrtc,
    arch: Arch,
    edit: Option<Edit>,
    done: Mutex<HashMap<Kernel, Compiled>>,
}

impl Compiler {
    /// One that compiles the code as it is, or with an edit.
    pub(crate) fn new(edit: Option<Edit>) -> Result<Arc<Compiler>> {
        let done = Mutex::default();
        Ok(Arc::new(Compiler { nvrtc: Nvrtc::load()?, arch: ARCH.parse()?, edit, done }))
    }

    fn compile(&self, kernel: &Kernel) -> Result<Compiled, QueueError> {
        let lock = || self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = lock().get(kernel) {
            return Ok(done.clone());
        }
        let entry = [kernel.entry.as_str()];
        let mut job = Job::of(kernel, &entry, self.arch);
        let edited = |name: &str, text: &str| self.edit.and_then(|edit| edit.apply(name, text));
        let source = edited(job.source_name, job.source);
        let headers: Vec<Option<String>> = HEADERS.iter().map(|h| edited(h.name, h.text)).collect();
        let headers: Vec<Header<'_>> = (HEADERS.iter().zip(&headers))
            .map(|(h, text)| Header { name: h.name, text: text.as_deref().unwrap_or(h.text) })
            .collect();
        job.source = source.as_deref().unwrap_or(job.source);
        job.headers = &headers;
        let ptx = self.nvrtc.ptx(&job);
        let ptx = ptx.map_err(|error| QueueError::runtime("compiling for the simulator", error))?;
        let compiled = Compiled { entry: ptx.lowered[0].clone(), ptx: ptx.text };
        lock().insert(kernel.clone(), compiled.clone());
        Ok(compiled)
    }

    /// A context on a fresh simulated device.
    pub(crate) fn context(self: &Arc<Self>) -> Result<Context> {
        let this = self.clone();
        let queue = SimQueue::new(ARCH, DeviceConfig::default(), move |kernel| this.compile(kernel));
        Ok(Context::on(Box::new(queue), Environment::default())?)
    }

    /// The PTX of kernels of one source, by one compile.
    pub(crate) fn ptx(&self, source_name: &str, source: &str, entries: &[&str]) -> Result<String> {
        let job = Job { source_name, source, headers: HEADERS, entries, arch: self.arch, options: &[] };
        Ok(self.nvrtc.ptx(&job)?.text)
    }
}

/// The queue of a context made here.
pub(crate) fn queue(ctx: &Context) -> Result<&SimQueue> {
    ctx.queue().as_any().downcast_ref().ok_or_else(|| "the context is not simulated".into())
}

/// Runs a call with its operands described to the device, so that reports name elements and an access outside of what
/// the operation may touch is a finding. Returns the bytes of the outputs.
pub(crate) fn run(ctx: &Context, call: &Call) -> Result<Vec<u8>> {
    let queue = queue(ctx)?;
    let mut refused = None;
    let mut watch = |operand: &Operand| {
        let Operand { name, address, element, len, ld, stride, written, .. } = *operand;
        let allowed = if written { Permission::ReadWrite } else { Permission::ReadOnly };
        let permission = |i| if operand.referenced(i) { allowed } else { Permission::None };
        let described = queue.with_device(|device| {
            device.set_name(address, name)?;
            device.set_layout(address, Layout { element, ld, stride })?;
            device.protect_elements(address, element, len, permission)
        });
        refused = refused.take().or(described.err());
    };
    let out = call.run(ctx, &mut watch)?;
    match refused {
        Some(error) => Err(error.into()),
        None => Ok(out),
    }
}
