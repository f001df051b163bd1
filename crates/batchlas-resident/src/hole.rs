//! The launch hole at 48 KiB, and the padding that steps over it.
//!
//! A function must opt in before it may use more than 49,152 bytes of shared memory. A launcher that decides to opt in
//! from the *dynamic* request alone forgets the function's static bytes, so a first launch that asks for between
//! `49,152 - static` and 49,152 dynamic bytes is refused. The opt-in then sticks to the function handle: the same request
//! succeeds once a larger one has been made. Results must not depend on launch history, so requests near the boundary
//! are padded past it. A kernel without static shared memory has no hole; the padding stays because one work-group
//! reduction brings static memory back.
//!
//! This is the only definition of the band. A footprint that is not padded here is a defect.

/// Requests above this many bytes are padded ...
pub const HOLE_LO: usize = 47_104;
/// ... up to and including this many ...
pub const HOLE_HI: usize = 49_664;
/// ... and become this many.
pub const HOLE_PAD_TO: usize = 49_920;

/// The dynamic request to make for `bytes` in total.
///
/// Not monotone: `pad(47_200)` is 49,920 while `pad(49_700)` is 49,700, which is why a capacity search may not skip a
/// miss (see [`crate::walk::resident_max_n`]).
#[must_use]
pub const fn pad(bytes: usize) -> usize {
    if bytes > HOLE_LO && bytes <= HOLE_HI { HOLE_PAD_TO } else { bytes }
}
