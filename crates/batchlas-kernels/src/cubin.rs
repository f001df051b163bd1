//! Reads the code size of kernels from a cubin, an ELF file in which each kernel has a section `.text.<name>`.

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use crate::Error;

/// Size in bytes of the machine code of the kernel with this lowered name.
///
/// # Errors
/// [`Error::Cubin`] if the bytes are not an ELF file, or hold no code of that name.
pub fn code_size(cubin: &[u8], kernel: &str) -> Result<u64, Error> {
    let elf: ElfFile64<'_> = ElfFile64::parse(cubin).map_err(|error| Error::Cubin(error.to_string()))?;
    let section = format!(".text.{kernel}");
    match elf.section_by_name(&section) {
        Some(code) => Ok(code.size()),
        None => {
            let names = elf
                .sections()
                .filter_map(|section| Some(section.name().ok()?.strip_prefix(".text.")?.to_owned()));
            let present: Vec<String> = names.collect();
            Err(Error::Cubin(format!("no code of `{kernel}` among [{}]", present.join(", "))))
        }
    }
}
