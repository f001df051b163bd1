//! The batchlas program.
