//! The two sizes of a scalar type that footprints depend on.

/// Size of a matrix element and of its real part, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Element {
    /// Bytes of one element.
    pub bytes: usize,
    /// Bytes of its real part (equal to `bytes` for a real type).
    pub real_bytes: usize,
}

impl Element {
    /// `f32`.
    pub const F32: Self = Self { bytes: 4, real_bytes: 4 };
    /// `f64`.
    pub const F64: Self = Self { bytes: 8, real_bytes: 8 };
    /// `Complex<f32>`.
    pub const C32: Self = Self { bytes: 8, real_bytes: 4 };
    /// `Complex<f64>`.
    pub const C64: Self = Self { bytes: 16, real_bytes: 8 };
    /// The four types, in the order of every table of this project.
    pub const ALL: [Self; 4] = [Self::F32, Self::F64, Self::C32, Self::C64];
}
