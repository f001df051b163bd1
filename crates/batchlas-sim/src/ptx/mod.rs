//! PTX text to a typed module.
//!
//! [`Module::parse`] reads the subset of PTX that NVRTC writes: entries, parameters, register and variable
//! declarations, labels, `.loc` source lines and instructions. Instructions keep their opcode as text and
//! their operands as typed trees; `decode` turns them into the form that runs and is the place where an
//! opcode can be unknown.

mod lexer;
mod parser;

use crate::SimError;
use crate::decode::Kernel;
use crate::report::Site;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A PTX scalar type. `B` is untyped bits, `U`/`S` are unsigned and signed integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    F32,
    F64,
}

impl Type {
    /// The type spelled `name` in an opcode or a declaration (without the dot).
    pub fn from_name(name: &str) -> Option<Type> {
        Some(match name {
            "pred" => Type::Pred,
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "b128" => Type::B128,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2,
            "tf32" => Type::Tf32,
            "f32" => Type::F32,
            "f64" => Type::F64,
            _ => return None,
        })
    }

    /// Size in bytes; a predicate counts as one.
    pub fn bytes(self) -> usize {
        match self {
            Type::Pred | Type::B8 | Type::U8 | Type::S8 => 1,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 2,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F16x2 | Type::Bf16x2 | Type::Tf32 => 4,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
            Type::B128 => 16,
        }
    }

    /// Whether the type is a signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// Whether the type is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::Tf32 | Type::F32 | Type::F64
        )
    }
}

/// A state space that a variable can be declared in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Space {
    Global,
    Shared,
    Local,
    Const,
    Param,
    /// An address that carries its space in its value.
    Generic,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Space::Global => "global",
            Space::Shared => "shared",
            Space::Local => "local",
            Space::Const => "const",
            Space::Param => "param",
            Space::Generic => "generic",
        })
    }
}

/// A position in the CUDA source, from a `.loc` directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// Index of a `.file` directive.
    pub file: u32,
    /// 1-based line.
    pub line: u32,
    /// The call site (file, line) when the code was inlined.
    pub inlined_at: Option<(u32, u32)>,
}

/// Index of a register in [`Entry::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegId(pub u32);

/// A declared register.
#[derive(Clone, Debug)]
pub struct Register {
    /// Its name, with the percent sign.
    pub name: String,
    /// Its declared type.
    pub ty: Type,
}

/// An instruction operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A declared register.
    Reg(RegId),
    /// An integer, or the bits of an `0f`/`0d` floating-point literal.
    Imm(u64),
    /// A special register, by name with the percent sign.
    Special(String),
    /// A variable, parameter or label, plus a byte offset.
    Symbol(String, i64),
    /// `[base + offset]`.
    Address(Box<Operand>, i64),
    /// `{a, b, ..}`.
    Vector(Vec<Operand>),
    /// `a|b`.
    Pair(Box<Operand>, Box<Operand>),
    /// `!p`.
    Not(Box<Operand>),
    /// `_`, a result that is dropped.
    Sink,
}

/// `@p` or `@!p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate register.
    pub reg: RegId,
    /// Whether it is negated.
    pub negated: bool,
}

/// One instruction as written.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// The guard predicate.
    pub guard: Option<Guard>,
    /// The full opcode with its modifiers, for instance `shfl.sync.idx.b32`.
    pub opcode: String,
    /// The operands, destination first.
    pub operands: Vec<Operand>,
    /// 1-based line in the PTX text.
    pub line: u32,
    /// Position in the CUDA source, when compiled with line information.
    pub source: Option<SourceLine>,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Byte offset in the parameter block.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// A module or function variable.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The state space.
    pub space: Space,
    /// Alignment in bytes.
    pub align: usize,
    /// Size in bytes; 0 for the dynamic shared array.
    pub size: usize,
    /// The initialiser, when there is one; shorter than `size` means zero fill.
    pub init: Option<Vec<u8>>,
}

/// One kernel.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The (mangled) name.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Results, for a function.
    pub results: Vec<Param>,
    /// Registers, indexed by [`RegId`].
    pub registers: Vec<Register>,
    /// Variables declared in the body.
    pub variables: Vec<Variable>,
    /// Instructions in order.
    pub body: Vec<Instruction>,
    /// Label to index in `body`.
    pub labels: HashMap<String, usize>,
    /// `.branchtargets` lists, by their label.
    pub branch_targets: HashMap<String, Vec<String>>,
    /// `.maxntid`, the largest block allowed.
    pub max_threads: Option<u32>,
}

impl Entry {
    /// Size of the parameter block in bytes.
    pub fn param_bytes(&self) -> usize {
        self.params.iter().map(|p| p.offset + p.size).max().unwrap_or(0)
    }
}

/// A parsed PTX module. Kernels are decoded at their first launch and kept.
#[derive(Debug)]
pub struct Module {
    pub(crate) target: String,
    pub(crate) files: HashMap<u32, String>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) entries: Vec<Entry>,
    /// Functions that the kernels call.
    pub(crate) functions: Vec<Entry>,
    decoded: Mutex<HashMap<String, Arc<Kernel>>>,
}

impl Module {
    /// Parses PTX text.
    ///
    /// # Errors
    /// [`SimError::Syntax`] with the line, for text that is not the PTX described above.
    pub fn parse(text: &str) -> Result<Module, SimError> {
        parser::parse(text)
    }

    /// The `.target` architecture, for instance `sm_90`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The kernels.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry called `name`, or the only one whose mangled name contains it.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name).or_else(|| {
            let mut found = self.entries.iter().filter(|e| e.name.contains(name));
            found.next().filter(|_| found.next().is_none())
        })
    }

    /// Decodes every entry, so that what the simulator does not know shows before a launch.
    ///
    /// # Errors
    /// [`SimError::Unsupported`] with the line.
    pub fn check(&self) -> Result<(), SimError> {
        self.entries.iter().try_for_each(|e| self.check_entry(&e.name))
    }

    /// Decodes one entry.
    ///
    /// # Errors
    /// [`SimError::NoEntry`], or [`SimError::Unsupported`] with the line.
    pub fn check_entry(&self, name: &str) -> Result<(), SimError> {
        self.kernel(name).map(|_| ())
    }

    /// The place of an instruction of an entry.
    pub fn site(&self, entry: &Entry, index: usize) -> Site {
        let i = &entry.body[index];
        let source = i.source.map(|s| (self.file(s.file), s.line));
        let inlined_at = i.source.and_then(|s| s.inlined_at).map(|(file, line)| (self.file(file), line));
        Site { index, ptx_line: i.line, opcode: i.opcode.clone(), source, inlined_at }
    }

    /// The name of a source file, without its folder.
    fn file(&self, index: u32) -> String {
        match self.files.get(&index) {
            Some(path) => path.rsplit('/').next().unwrap_or_default().to_string(),
            None => format!("file {index}"),
        }
    }

    pub(crate) fn entry_or_error(&self, name: &str) -> Result<&Entry, SimError> {
        self.entry(name).ok_or_else(|| SimError::NoEntry {
            name: name.to_string(),
            known: self.entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<Arc<Kernel>, SimError> {
        let entry = self.entry_or_error(name)?;
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = decoded.get(&entry.name) {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(Kernel::decode(self, entry)?);
        decoded.insert(entry.name.clone(), kernel.clone());
        Ok(kernel)
    }

    /// A copy with one entry edited.
    pub(crate) fn edited(&self, name: &str, edit: impl FnOnce(&mut Entry)) -> Module {
        let mut entries = self.entries.clone();
        if let Some(entry) = entries.iter_mut().find(|e| e.name == name) {
            edit(entry);
        }
        Module {
            target: self.target.clone(),
            files: self.files.clone(),
            variables: self.variables.clone(),
            entries,
            functions: self.functions.clone(),
            decoded: Mutex::default(),
        }
    }
}
