//! Residency arithmetic: how large a problem fits on chip, how many fit side by side, and what a kernel may hold.
//!
//! Every batched kernel of this project keeps its matrix in shared memory or registers. Whether it may is plain
//! integer arithmetic, so it lives here once, without a device, and both the capability check and the launch read it:
//!
//! | module | question it answers |
//! |---|---|
//! | [`budget`] | how much shared memory may one work-group own on this device |
//! | [`hole`] | which request sizes a launch must avoid, and what to ask for instead |
//! | [`walk`] | up to which order does a footprint fit, with every smaller order fitting too |
//! | [`footprint`] | bytes of the square tile, the left-looking panel and the QR panel |
//! | [`lpanel`] | work-group geometry of the left-looking panel |
//! | [`pack`] | how many matrices share one work-group |
//! | [`registers`] | does a work-group fit the register file, sub-partition by sub-partition |
//! | [`banks`] | how often a shared-memory access is replayed because of bank conflicts |
//!
//! Units are bytes, matrix orders and lanes, all `usize`; products saturate, so no order overflows. A question with no
//! answer is `None`, never zero. Nothing here knows a device: the budget always comes from the live one, and **no
//! per-architecture constant stands in for it** (the 48 KiB figure that build systems like to bake in is less than
//! half of what an `sm_89` device grants).
//!
//! Two scales exist for each footprint and must not be confused. *Advertised* is what a family admits: it leaves room
//! for [`budget::MIN_BLOCKS_PER_SM`] work-groups per multiprocessor. *Resident* is what the leaf of a blocked driver may
//! hold, alone on its multiprocessor. [`walk::Ceilings`] carries both.

pub mod banks;
pub mod budget;
pub mod element;
pub mod footprint;
pub mod hole;
pub mod lpanel;
pub mod pack;
pub mod registers;
pub mod walk;

pub use element::Element;
pub use walk::Ceilings;
