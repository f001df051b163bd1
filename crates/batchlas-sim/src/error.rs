//! What stops a launch before or while it runs, as opposed to a finding, which a launch reports and survives.

use thiserror::Error;

/// Why a module, a kernel or a launch was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SimError {
    /// The text is not PTX that the parser knows.
    #[error("PTX line {line}: {what}")]
    Syntax {
        /// 1-based line.
        line: u32,
        /// What was met or expected.
        what: String,
    },
    /// An opcode, modifier or operand that the simulator does not implement.
    #[error("PTX line {line}: `{opcode}` is not supported: {what}")]
    Unsupported {
        /// 1-based line.
        line: u32,
        /// The opcode as written.
        opcode: String,
        /// Which part of it.
        what: String,
    },
    /// No entry of that name.
    #[error("the module has no entry `{name}`; it has {known}")]
    NoEntry {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The parameter block has the wrong size.
    #[error("entry `{name}` takes {expected} bytes of parameters, {given} were given")]
    ParamBytes {
        /// The entry.
        name: String,
        /// What its declaration adds up to.
        expected: usize,
        /// What the caller passed.
        given: usize,
    },
    /// A grid or block that the device does not accept.
    #[error("launch of `{name}`: {what}")]
    Geometry {
        /// The entry.
        name: String,
        /// What is out of range, and the range.
        what: String,
    },
    /// A host access outside an allocation.
    #[error("host access to {bytes} bytes at {addr:#x} is not inside one live allocation")]
    HostAccess {
        /// First address.
        addr: u64,
        /// Length.
        bytes: usize,
    },
    /// The device has no room for another allocation.
    #[error("{what}")]
    Allocation {
        /// The limit, with numbers.
        what: String,
    },
}
