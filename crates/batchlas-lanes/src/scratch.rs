//! Scratch of a thread: aligned, kept between calls, as large as the largest group it ever packed.

use std::cell::RefCell;

/// The unit of scratch: one cache line, which is also the widest register.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

thread_local! {
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with at least `bytes` bytes of this thread, aligned to a cache line, contents initialised but arbitrary.
pub(crate) fn with<R>(bytes: usize, work: impl FnOnce(*mut u8) -> R) -> R {
    SCRATCH.with_borrow_mut(|lines| {
        if lines.len() * size_of::<Line>() < bytes {
            lines.resize(bytes.div_ceil(size_of::<Line>()), Line([0; 64]));
        }
        work(lines.as_mut_ptr().cast())
    })
}
