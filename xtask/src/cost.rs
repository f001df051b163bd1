//! `cargo xtask cost`: what a call's kernels cost, counted while the simulator runs them.

use crate::Result;

/// Runs one call and prints the costs of its kernels.
pub(crate) fn run(_args: &[&str]) -> Result {
    Ok(())
}
