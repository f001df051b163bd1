//! Breaks a kernel on purpose, so that a test can demand that the break is reported.
//!
//! [`sites`] lists what can be broken in an entry; [`Module::mutated`] returns the module with one site broken. A
//! barrier whose deletion is not reported under any schedule either does nothing, or is not tested.

use crate::SimError;
use crate::ptx::{Entry, Instruction, Module, Operand};
use crate::report::Site;
use std::fmt;

/// A way to break an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// Remove a block barrier, a warp synchronisation or a wait for asynchronous copies.
    Delete,
    /// Remove one lane from the literal mask of a warp synchronisation.
    NarrowMask,
    /// Make a block barrier a synchronisation of each warp alone.
    WarpScope,
    /// Let a wait for asynchronous copies leave one group more under way.
    WaitFewer,
    /// Make a predicated load, store or branch unconditional: the bounds or the triangle that it guards is open.
    DropGuard,
    /// Never take a conditional branch: what it skips is executed by all.
    NeverBranch,
}

/// Something that can be broken.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The instruction; `index` counts instructions of the entry.
    pub site: Site,
    /// How.
    pub mutation: Mutation,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.mutation, self.site)
    }
}

fn synchronises(i: &Instruction) -> bool {
    [
        "bar.sync",
        "bar.arrive",
        "bar.warp.sync",
        "barrier.sync",
        "barrier.cta.sync",
        "cp.async.wait",
        "mbarrier.arrive",
        "cp.async.mbarrier",
    ]
    .iter()
    .any(|p| i.opcode.starts_with(p))
}

fn mutations(i: &Instruction) -> Vec<Mutation> {
    let mut out = Vec::new();
    if synchronises(i) {
        out.push(Mutation::Delete);
    }
    let literal = matches!(i.operands.first(), Some(Operand::Imm(_)));
    if i.opcode == "bar.warp.sync" && literal {
        out.push(Mutation::NarrowMask);
    }
    if ["bar.sync", "barrier.sync", "barrier.cta.sync"].iter().any(|p| i.opcode.starts_with(p)) {
        out.push(Mutation::WarpScope);
    }
    if i.opcode == "cp.async.wait_group" && literal {
        out.push(Mutation::WaitFewer);
    }
    let access = ["ld.", "st.", "atom.", "red.", "cp.async."].iter().any(|p| i.opcode.starts_with(p));
    if i.guard.is_some() && access {
        out.push(Mutation::DropGuard);
    }
    if i.guard.is_some() && i.opcode.starts_with("bra") {
        out.push(Mutation::NeverBranch);
    }
    out
}

/// Everything that can be broken in an entry, in the order of its instructions.
pub fn sites(module: &Module, entry: &Entry) -> Vec<Target> {
    let mut out = Vec::new();
    for (index, i) in entry.body.iter().enumerate() {
        for mutation in mutations(i) {
            out.push(Target { site: module.site(entry, index), mutation });
        }
    }
    out
}

impl Module {
    /// A copy of the module with one site of one entry broken.
    ///
    /// # Errors
    /// [`SimError::NoEntry`] when there is no such entry, [`SimError::Unsupported`] when the instruction cannot be
    /// broken in that way.
    pub fn mutated(&self, entry: &str, target: &Target) -> Result<Module, SimError> {
        let found = self.entry_or_error(entry)?;
        let name = found.name.clone();
        let index = target.site.index;
        let known = found.body.get(index).is_some_and(|i| mutations(i).contains(&target.mutation));
        if !known {
            return Err(SimError::Unsupported {
                line: target.site.ptx_line,
                opcode: target.site.opcode.clone(),
                what: format!("{:?} does not apply to it", target.mutation),
            });
        }
        Ok(self.edited(&name, |e| {
            let i = &mut e.body[index];
            match target.mutation {
                Mutation::Delete | Mutation::NeverBranch => {
                    i.opcode = "nop".to_string();
                    i.operands.clear();
                }
                Mutation::NarrowMask => {
                    if let Some(Operand::Imm(mask)) = i.operands.first_mut() {
                        let full = *mask & 0xffff_ffff;
                        *mask = full & (full - 1);
                    }
                }
                Mutation::WarpScope => {
                    i.opcode = "bar.warp.sync".to_string();
                    i.operands = vec![Operand::Imm(0xffff_ffff)];
                }
                Mutation::WaitFewer => {
                    if let Some(Operand::Imm(pending)) = i.operands.first_mut() {
                        *pending += 1;
                    }
                }
                Mutation::DropGuard => i.guard = None,
            }
        }))
    }
}
