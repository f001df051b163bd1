//! One instruction for a group of lanes at the same place.

use super::{Run, Warp, bits};
use crate::FindingKind;
use crate::alu;
use crate::decode::{CARRY, Logic, Op};

fn logic(f: Logic, a: u32, b: u32) -> u32 {
    match f {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

impl Run<'_> {
    /// Executes the instruction at `pc` for `group`. Returns where the whole group goes on, or `None` when
    /// the lanes' own program counters say where each of them goes on or that it waits.
    pub(super) fn step(&mut self, warp: &mut Warp, group: u32, pc: usize) -> Option<usize> {
        let kernel = self.kernel;
        let Some(inst) = kernel.insts.get(pc) else {
            self.exit(warp, group);
            return None;
        };
        let exec = inst.guard.map_or(group, |g| group & warp.pred(g));
        self.stats.issue(inst.class, exec);
        self.costs[pc].issues += 1;
        let next = pc + 1;
        if exec == 0 {
            return Some(next);
        }
        let mut out = [0u64; 32];
        match &inst.op {
            Op::Nop | Op::Fence => {}
            Op::Mov { d, a } => {
                let a = warp.rows[*a];
                warp.set(*d, exec, &a);
            }
            Op::MovPred { d, a } => {
                let a = warp.pred(*a);
                warp.set_pred(*d, exec, a);
            }
            Op::Unpack { d, a, bits } => {
                let a = warp.rows[*a];
                let keep = u64::MAX >> (64 - bits);
                for (i, d) in d.iter().enumerate() {
                    if let Some(d) = d {
                        let part = a.map(|v| v >> (bits * i as u32) & keep);
                        warp.set(*d, exec, &part);
                    }
                }
            }
            Op::Pack { d, a, bits } => {
                let keep = u64::MAX >> (64 - bits);
                for (i, a) in a.iter().enumerate() {
                    for (o, v) in out.iter_mut().zip(&warp.rows[*a]) {
                        *o |= (v & keep) << (bits * i as u32);
                    }
                }
                warp.set(*d, exec, &out);
            }
            Op::Un { f, d, a } => {
                alu::unary(*f, &warp.rows[*a], &mut out);
                warp.set(*d, exec, &out);
            }
            Op::Bin { f, ftz, sat, d, a, b } => {
                if *ftz {
                    let (mut a, mut b) = (warp.rows[*a], warp.rows[*b]);
                    alu::flush(&mut a);
                    alu::flush(&mut b);
                    alu::binary(*f, &a, &b, &mut out);
                    alu::flush(&mut out);
                } else {
                    alu::binary(*f, &warp.rows[*a], &warp.rows[*b], &mut out);
                }
                if *sat {
                    alu::saturate(&mut out);
                }
                warp.set(*d, exec, &out);
            }
            Op::Ter { f, ftz, sat, d, a, b, c } => {
                if *ftz {
                    let (mut a, mut b, mut c) = (warp.rows[*a], warp.rows[*b], warp.rows[*c]);
                    alu::flush(&mut a);
                    alu::flush(&mut b);
                    alu::flush(&mut c);
                    alu::ternary(*f, &a, &b, &c, &mut out);
                    alu::flush(&mut out);
                } else {
                    alu::ternary(*f, &warp.rows[*a], &warp.rows[*b], &warp.rows[*c], &mut out);
                }
                if *sat {
                    alu::saturate(&mut out);
                }
                warp.set(*d, exec, &out);
            }
            Op::Carry { f, bits: width, d, a, b, c, reads, writes } => {
                let mut carry = 0;
                for l in bits(exec) {
                    let r = |row: &usize| warp.rows[*row][l];
                    let into = *reads && warp.preds[CARRY] >> l & 1 != 0;
                    let (value, over) = alu::carry(*f, *width, r(a), r(b), r(c), into);
                    out[l] = value;
                    carry |= u32::from(over) << l;
                }
                warp.set(*d, exec, &out);
                if *writes {
                    warp.set_pred(CARRY, exec, carry);
                }
            }
            Op::Bfi { d, a, b, pos, len, bits: width } => {
                for l in bits(exec) {
                    let r = |row: &usize| warp.rows[*row][l];
                    out[l] = alu::bfi(r(a), r(b), r(pos), r(len), *width);
                }
                warp.set(*d, exec, &out);
            }
            Op::Cvt { spec, d, a } => {
                alu::convert(*spec, &warp.rows[*a], &mut out);
                warp.set(*d, exec, &out);
            }
            Op::Setp { cmp, ty, d, q, a, b, with } => {
                let value = alu::compare(*cmp, *ty, &warp.rows[*a], &warp.rows[*b]);
                let (mut p, mut n) = (value, !value);
                if let Some((f, c)) = with {
                    let c = warp.pred(*c);
                    (p, n) = (logic(*f, p, c), logic(*f, n, c));
                }
                if let Some(d) = d {
                    warp.set_pred(*d, exec, p);
                }
                if let Some(q) = q {
                    warp.set_pred(*q, exec, n);
                }
            }
            Op::Selp { d, a, b, p } => {
                let p = warp.pred(*p);
                let (a, b) = (&warp.rows[*a], &warp.rows[*b]);
                for l in 0..32 {
                    out[l] = if p >> l & 1 != 0 { a[l] } else { b[l] };
                }
                warp.set(*d, exec, &out);
            }
            Op::LogicPred { f, d, a, b } => {
                let value = logic(*f, warp.pred(*a), warp.pred(*b));
                warp.set_pred(*d, exec, value);
            }
            Op::LdParam { d, value, offset } => {
                for (i, d) in d.iter().enumerate() {
                    let Some(d) = d else { continue };
                    let value = value.value(&self.params.bytes[offset + i * value.bytes..]);
                    warp.set(*d, exec, &[value; 32]);
                }
            }
            Op::Ld { at, d, value, strength } => self.load(warp, exec, pc, *at, d, *value, *strength),
            Op::St { at, a, ty, strength } => self.store(warp, exec, pc, *at, a, *ty, *strength),
            Op::Atom { at, f, ty, d, b, c } => self.atomic(warp, exec, pc, *at, *f, *ty, *d, *b, *c),
            Op::CpAsync { to, from, bytes, live } => {
                self.copy_async(warp, exec, pc, *to, *from, *bytes, *live)
            }
            Op::CpBulk { to, from, bytes, bar } => self.copy_bulk(warp, exec, pc, *to, *from, *bytes, *bar),
            Op::CpTrack { at, extra } => self.phase_track(warp, exec, pc, *at, *extra),
            Op::PhaseInit { at, count } => self.phase_init(warp, exec, pc, *at, *count),
            Op::PhaseInval { at } => self.phase_inval(warp, exec, pc, *at),
            Op::PhaseArrive { at, d, count, bytes } => {
                self.phase_arrive(warp, exec, pc, *at, *d, *count, *bytes);
            }
            Op::PhaseWait { at, p, wait } => self.phase_wait(warp, exec, pc, *at, *p, *wait),
            Op::Yield => self.yielded = true,
            Op::CpCommit => self.copy_commit(warp, exec),
            Op::CpWait(pending) => self.copy_wait(warp, exec, *pending),
            Op::Bra { target } => {
                if exec == group {
                    return Some(*target);
                }
                warp.set_pc(exec, *target);
                warp.set_pc(group & !exec, next);
                return None;
            }
            Op::BranchTable { targets, index } => {
                warp.set_pc(group & !exec, next);
                for l in bits(exec) {
                    let index = warp.rows[*index][l] as u32 as usize;
                    warp.pc[l] = match targets.get(index) {
                        Some(target) => *target,
                        None => {
                            let detail = format!("target {index} of {}", targets.len());
                            self.find(FindingKind::OutOfBounds, 32 * warp.index + l, pc, None, None, &detail);
                            usize::MAX
                        }
                    };
                }
                return None;
            }
            Op::Call { target, into, .. } => {
                warp.calls.resize_with(32, Vec::new);
                for l in bits(exec) {
                    self.copy_local(32 * warp.index + l, into);
                    warp.calls[l].push(pc);
                }
                warp.set_pc(exec, *target);
                warp.set_pc(group & !exec, next);
                return if exec == group { Some(*target) } else { None };
            }
            Op::Return => {
                warp.set_pc(group & !exec, next);
                for l in bits(exec) {
                    // A function's instructions are reached by calls only, unless a branch ran off the kernel.
                    let Some(call) = warp.calls.get_mut(l).and_then(Vec::pop) else {
                        self.exit(warp, 1 << l);
                        continue;
                    };
                    if let Op::Call { back, .. } = &kernel.insts[call].op {
                        self.copy_local(32 * warp.index + l, back);
                    }
                    warp.pc[l] = call + 1;
                }
                return None;
            }
            Op::Exit => {
                warp.set_pc(group & !exec, next);
                self.exit(warp, exec);
                return None;
            }
            Op::Trap => {
                let thread = 32 * warp.index + exec.trailing_zeros() as usize;
                self.find(FindingKind::Trap, thread, pc, None, None, "");
                self.stopped = true;
                return None;
            }
            Op::Barrier { kind, id, count, aligned: _ } => {
                warp.set_pc(group, next);
                let waits = self.barrier_arrive(warp, exec, pc, *kind, *id, *count);
                return if waits { None } else { Some(next) };
            }
            Op::ActiveMask { d } => warp.set(*d, exec, &[u64::from(exec); 32]),
            Op::WarpSync { .. }
            | Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Ballot { .. }
            | Op::Match { .. }
            | Op::Redux { .. }
            | Op::Elect { .. }
            | Op::LdMatrix { .. }
            | Op::StMatrix { .. }
            | Op::Mma { .. } => {
                let done = self.collective(warp, exec, pc, &inst.op);
                if done == exec && warp.at_warp == 0 {
                    return Some(next);
                }
                warp.set_pc(group & !exec | done, next);
                return None;
            }
        }
        Some(next)
    }

    fn exit(&mut self, warp: &mut Warp, lanes: u32) {
        for l in bits(lanes) {
            self.clocks.exit(32 * warp.index + l);
        }
        warp.exited |= lanes;
        // Lanes that wait for these must look again.
        warp.at_warp = 0;
    }
}
