//! What can be told from the text of a kernel alone.

use crate::ptx::{Entry, Instruction, Module, Operand, RegId, Type};
use crate::report::Site;

/// A multiplication and an addition that the assembler is free to fuse, because neither names a rounding. The result
/// then depends on its choice, and the simulator, which rounds twice, does not show the one that the device gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfused {
    /// The multiplication.
    pub multiply: Site,
    /// The addition or subtraction that uses its result.
    pub add: Site,
}

/// All pairs of an entry that are left to the assembler: write `fma` or an explicitly rounded intrinsic instead.
pub fn unfused(module: &Module, entry: &Entry) -> Vec<Unfused> {
    let mut products: Vec<(RegId, usize)> = Vec::new();
    let mut out = Vec::new();
    for (index, i) in entry.body.iter().enumerate() {
        if contractible(i, &["add", "sub"]) {
            for (_, multiply) in products.iter().filter(|(r, _)| i.operands[1..].contains(&Operand::Reg(*r)))
            {
                out.push(Unfused { multiply: module.site(entry, *multiply), add: module.site(entry, index) });
            }
        }
        let written = match i.operands.first() {
            Some(Operand::Reg(r)) => *r,
            _ => continue,
        };
        products.retain(|(r, _)| *r != written);
        if contractible(i, &["mul"]) {
            products.push((written, index));
        }
    }
    out
}

/// A floating-point operation of one of these kinds without a rounding of its own.
fn contractible(i: &Instruction, kinds: &[&str]) -> bool {
    let mut parts = i.opcode.split('.');
    let head = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let float = matches!(rest.last().copied().and_then(Type::from_name), Some(Type::F32 | Type::F64));
    kinds.contains(&head)
        && float
        && !rest.iter().any(|m| ["rn", "rz", "rm", "rp"].contains(m))
        && i.operands.len() == 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(body: &str) -> usize {
        let text = format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n.reg .f32 %f<9>;\n{body}\nret;\n}}"
        );
        let module = Module::parse(&text).unwrap();
        unfused(&module, &module.entries()[0]).len()
    }

    #[test]
    fn only_pairs_without_rounding_count() {
        assert_eq!(count("mul.f32 %f3, %f1, %f2;\nsub.f32 %f4, %f5, %f3;"), 1);
        assert_eq!(count("mul.ftz.f32 %f3, %f1, %f2;\nadd.ftz.f32 %f4, %f3, %f5;"), 1);
        assert_eq!(count("mul.rn.f32 %f3, %f1, %f2;\nsub.f32 %f4, %f5, %f3;"), 0);
        assert_eq!(count("mul.f32 %f3, %f1, %f2;\nsub.rn.f32 %f4, %f5, %f3;"), 0);
        assert_eq!(count("mul.f32 %f3, %f1, %f2;\nsub.f32 %f4, %f5, %f6;"), 0);
        assert_eq!(count("mul.f32 %f3, %f1, %f2;\nmov.f32 %f3, %f1;\nsub.f32 %f4, %f5, %f3;"), 0);
        assert_eq!(count("fma.rn.f32 %f3, %f1, %f2, %f4;\nsub.f32 %f4, %f5, %f3;"), 0);
    }
}
