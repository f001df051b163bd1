//! The Q4_K super-block: 256 weights in 144 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0-1, 2-3 | `d` and `dmin`, IEEE half precision, little endian |
//! | 4-15 | eight scales `sc` and eight minima `m` of six bits |
//! | 16-143 | nibbles `q` |
//!
//! Chunk `j` (weights `32 j .. 32 j + 32`) stands for `d sc_j q - dmin m_j`. Its nibbles are those of bytes `16 + 32 (j / 2) ..`: the low ones where `j` is
//! even, the high ones where it is odd. Bytes 4-7 hold scales 0-3 and, in their two top bits, those of scales 4-7; bytes 8-11 the same of the minima; bytes
//! 12-15 the low four bits of scales 4-7 and, in their upper halves, of minima 4-7.
//!
//! `d sc q` has at most 21 significant bits and `dmin m` 17, so that a weight in f32 is rounded once, by the subtraction.

/// Weights of a super-block.
pub const BLOCK: usize = 256;
/// Bytes of a super-block.
pub const BLOCK_BYTES: usize = 144;
/// Weights that share a scale and a minimum.
pub const CHUNK: usize = 32;
/// Chunks of a super-block.
pub const CHUNKS: usize = BLOCK / CHUNK;
/// Bytes before the nibbles.
const HEADER: usize = 16;

/// A super-block, its bytes checked for nothing: every bit pattern is one.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a>(pub &'a [u8; BLOCK_BYTES]);

impl Block<'_> {
    /// The scale of the scales.
    pub fn d(&self) -> f32 {
        half(u16::from_le_bytes([self.0[0], self.0[1]]))
    }

    /// The scale of the minima.
    pub fn dmin(&self) -> f32 {
        half(u16::from_le_bytes([self.0[2], self.0[3]]))
    }

    /// Scale and minimum of chunk `j < 8`, each below 64.
    pub fn sixes(&self, j: usize) -> (u8, u8) {
        let s = &self.0[4..HEADER];
        if j < 4 {
            (s[j] & 63, s[j + 4] & 63)
        } else {
            (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4)
        }
    }

    /// The nibbles of chunk `j < 8`, in order.
    pub fn nibbles(&self, j: usize) -> [u8; CHUNK] {
        std::array::from_fn(|l| self.0[HEADER + CHUNK * (j / 2) + l] >> (4 * (j % 2)) & 15)
    }

    /// The weights in f32, each rounded once.
    pub fn decode(&self) -> [f32; BLOCK] {
        let mut weights = [0.0; BLOCK];
        for (j, chunk) in weights.chunks_exact_mut(CHUNK).enumerate() {
            let (scale, minimum) = self.sixes(j);
            let (scale, minimum) = (self.d() * f32::from(scale), self.dmin() * f32::from(minimum));
            for (weight, q) in chunk.iter_mut().zip(self.nibbles(j)) {
                *weight = scale * f32::from(q) - minimum;
            }
        }
        weights
    }
}

/// A half-precision number, exactly.
pub fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) =
        (u32::from(bits >> 15) << 31, u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let magnitude = match exponent {
        // A multiple of 2^-24.
        0 => (fraction as f32 / 16_777_216.0).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves() {
        let cases =
            [(0x0000, 0.0), (0x3c00, 1.0), (0xc000, -2.0), (0x0001, 2f32.powi(-24)), (0x7bff, 65_504.0)];
        for (bits, value) in cases {
            assert_eq!(half(bits), value, "{bits:#06x}");
        }
        assert!(
            half(0x8000).to_bits() == 0x8000_0000 && half(0x7c00) == f32::INFINITY && half(0x7e01).is_nan()
        );
        assert_eq!(half(0x03ff), 1023.0 / 16_777_216.0);
    }
}
