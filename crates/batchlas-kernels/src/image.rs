//! One compiled kernel, in memory and as bytes.
//!
//! The bytes are the same in the on-disk cache and in a bundle: a magic number that carries the format's version, the
//! SHA-256 of what follows, and the fields. A byte that changed anywhere is noticed.

use sha2::{Digest, Sha256};

use crate::Error;
use crate::cubin;
use crate::nvrtc::Cubin;
use crate::ptxas::Usage;

/// Format of the bytes; raised when the fields change.
const MAGIC: &[u8; 8] = b"BLKERN01";
/// Length of a SHA-256 digest.
pub(crate) const DIGEST: usize = 32;

/// One compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The mangled name, which the cubin knows the kernel by.
    pub lowered: String,
    /// What the compiler counted.
    pub usage: Usage,
    /// Machine code in bytes.
    pub code: u64,
    /// The image, for `cuModuleLoadData`.
    pub cubin: Vec<u8>,
}

impl Image {
    /// The kernel of a compile that had one.
    ///
    /// # Errors
    /// [`Error::Cubin`] if the image does not hold the kernel's code.
    pub fn of(compiled: Cubin) -> Result<Image, Error> {
        let [entry] = <[_; 1]>::try_from(compiled.entries)
            .map_err(|entries| Error::Cubin(format!("{} kernels in the image of one", entries.len())))?;
        let code = cubin::code_size(&compiled.image, &entry.lowered)?;
        Ok(Image { lowered: entry.lowered, usage: entry.usage, code, cubin: compiled.image })
    }

    /// The kernel as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(self.cubin.len() + self.lowered.len() + 64);
        let usage = &self.usage;
        for field in [
            usage.registers,
            usage.frame,
            usage.spill_stores,
            usage.spill_loads,
            usage.shared,
            usage.barriers,
        ] {
            payload.extend(field.to_le_bytes());
        }
        payload.extend(self.code.to_le_bytes());
        payload.extend((self.lowered.len() as u64).to_le_bytes());
        payload.extend(self.lowered.as_bytes());
        payload.extend(&self.cubin);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(Sha256::digest(&payload));
        bytes.extend(payload);
        bytes
    }

    /// The kernel that `bytes` hold, or why they hold none.
    pub fn decode(bytes: &[u8]) -> Result<Image, &'static str> {
        let mut reader = Reader(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err("it is not a compiled kernel of this format");
        }
        let digest = reader.take(DIGEST)?;
        if Sha256::digest(reader.0).as_slice() != digest {
            return Err("its checksum does not match");
        }
        let usage = Usage {
            registers: reader.u32()?,
            frame: reader.u32()?,
            spill_stores: reader.u32()?,
            spill_loads: reader.u32()?,
            shared: reader.u32()?,
            barriers: reader.u32()?,
        };
        let code = reader.u64()?;
        let lowered = reader.string()?;
        Ok(Image { lowered, usage, code, cubin: reader.0.to_vec() })
    }
}

/// Takes little-endian fields off the front of a slice.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (front, rest) = self.0.split_at_checked(count).ok_or("it is truncated")?;
        self.0 = rest;
        Ok(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        self.take(N)?.try_into().map_err(|_| "it is truncated")
    }

    pub(crate) fn u32(&mut self) -> Result<u32, &'static str> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, &'static str> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string after its length in 8 bytes.
    pub(crate) fn string(&mut self) -> Result<String, &'static str> {
        let length = usize::try_from(self.u64()?).map_err(|_| "a length is out of range")?;
        String::from_utf8(self.take(length)?.to_vec()).map_err(|_| "a name is not UTF-8")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample(size: usize) -> Image {
        let usage = Usage { registers: 1, frame: 2, spill_stores: 3, spill_loads: 4, shared: 5, barriers: 6 };
        let cubin = (0..size).map(|i| (i * 37 % 251) as u8).collect();
        Image { lowered: "_Z1kPf".into(), usage, code: 7, cubin }
    }

    #[test]
    fn round_trip() {
        for size in [0, 1, 1000] {
            assert_eq!(Image::decode(&sample(size).encode()), Ok(sample(size)));
        }
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let bytes = sample(40).encode();
        for position in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[position] ^= 0x10;
            assert!(Image::decode(&changed).is_err(), "byte {position}");
            assert!(Image::decode(&bytes[..position]).is_err(), "length {position}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(Image::decode(&longer).is_err());
    }
}
