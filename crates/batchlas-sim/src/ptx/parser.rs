//! Recursive descent over the tokens.

use super::lexer::{Token, tokens};
use super::{
    Entry, Guard, Instruction, Module, Operand, Param, RegId, Register, SourceLine, Space, Type, Variable,
};
use crate::SimError;
use std::collections::HashMap;
use std::sync::Mutex;

pub(super) fn parse(text: &str) -> Result<Module, SimError> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let mut module = Module {
        target: String::new(),
        files: HashMap::new(),
        variables: Vec::new(),
        entries: Vec::new(),
        functions: Vec::new(),
        decoded: Mutex::default(),
    };
    while let Some(token) = parser.peek().cloned() {
        let Token::Word(word) = token else { return Err(parser.error("a directive was expected here")) };
        match word.as_str() {
            ".version" | ".address_size" => parser.at += 2,
            ".target" => {
                parser.at += 1;
                module.target = parser.word()?;
                while parser.eat(',') {
                    parser.word()?;
                }
            }
            ".file" => {
                parser.at += 1;
                let index = parser.integer()? as u32;
                let Some(Token::Text(path)) = parser.next() else { return Err(parser.error("a file name")) };
                module.files.insert(index, path);
                while parser.eat(',') {
                    parser.word()?;
                }
            }
            ".section" => {
                parser.at += 2;
                parser.skip_braces()?;
            }
            ".visible" | ".weak" | ".extern" | ".common" => parser.at += 1,
            ".entry" => {
                parser.at += 1;
                module.entries.push(parser.entry()?);
            }
            ".func" => {
                parser.at += 1;
                if let Some(function) = parser.function()? {
                    module.functions.push(function);
                }
            }
            ".global" | ".const" | ".shared" => {
                let variable = parser.variable()?;
                module.variables.push(variable);
            }
            ".pragma" => parser.skip_statement(),
            _ => return Err(parser.error(&format!("unknown directive {word}"))),
        }
    }
    Ok(module)
}

/// The largest array or register count accepted.
const MAX_EXTENT: usize = 1 << 20;
/// The largest parameter accepted; devices take 32764 bytes in all.
const MAX_PARAM: usize = 32764;

struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
}

/// Names visible in the braces being read, innermost last: inline assembly declares its own registers, and every
/// call its own parameters.
type Scopes = Vec<Scope>;

#[derive(Default)]
struct Scope {
    registers: HashMap<String, RegId>,
    /// Variables by the name that is unique in the body.
    variables: HashMap<String, String>,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|t| &t.0)
    }

    fn next(&mut self) -> Option<Token> {
        self.at += 1;
        self.tokens.get(self.at - 1).map(|t| t.0.clone())
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |t| t.1)
    }

    fn error(&self, what: &str) -> SimError {
        SimError::Syntax { line: self.line(), what: what.to_string() }
    }

    fn eat(&mut self, mark: char) -> bool {
        let yes = self.peek() == Some(&Token::Mark(mark));
        self.at += usize::from(yes);
        yes
    }

    fn expect(&mut self, mark: char) -> Result<(), SimError> {
        if self.eat(mark) { Ok(()) } else { Err(self.error(&format!("'{mark}' was expected here"))) }
    }

    fn word(&mut self) -> Result<String, SimError> {
        match self.peek() {
            Some(Token::Word(w)) => {
                let word = w.clone();
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.error("a word was expected here")),
        }
    }

    fn integer(&mut self) -> Result<i64, SimError> {
        let negative = self.eat('-');
        let word = self.word()?;
        let value = number(&word).ok_or_else(|| self.error(&format!("{word} is not a number")))? as i64;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    /// A size, count or alignment. The bound is far above what a device has and keeps products small.
    fn extent(&mut self) -> Result<usize, SimError> {
        let value = self.integer()?;
        match usize::try_from(value) {
            Ok(v) if v <= MAX_EXTENT => Ok(v),
            _ => Err(self.error(&format!("{value} is not a size of 0 to {MAX_EXTENT}"))),
        }
    }

    fn skip_statement(&mut self) {
        while let Some(token) = self.next() {
            if token == Token::Mark(';') {
                break;
            }
        }
    }

    fn skip_braces(&mut self) -> Result<(), SimError> {
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Some(Token::Mark('{')) => depth += 1,
                Some(Token::Mark('}')) => depth -= 1,
                Some(_) => {}
                None => return Err(self.error("braces without an end")),
            }
        }
        Ok(())
    }

    /// `.shared .align 4 .b8 name[16];` and the like, from the state space on.
    fn variable(&mut self) -> Result<Variable, SimError> {
        let space = match self.word()?.as_str() {
            ".global" => Space::Global,
            ".const" => Space::Const,
            ".shared" => Space::Shared,
            ".param" => Space::Param,
            _ => Space::Local,
        };
        let (mut align, mut ty) = (1, None);
        let name = loop {
            let word = self.word()?;
            match word.as_str() {
                ".align" => align = self.extent()?,
                ".attribute" | ".unified" | ".managed" => {
                    return Err(self.error("variable attributes are not supported"));
                }
                _ => match word.strip_prefix('.') {
                    Some(t) => ty = Type::from_name(t),
                    None => break word,
                },
            }
        };
        let ty = ty.ok_or_else(|| self.error("a variable without a known type"))?;
        if !align.is_power_of_two() {
            return Err(self.error(&format!("alignment {align} is not a power of two")));
        }
        let (mut count, mut array) = (1, false);
        while self.eat('[') {
            array = true;
            count = if self.eat(']') {
                0
            } else {
                let extent = self.extent()?;
                self.expect(']')?;
                count * extent
            };
        }
        if count > MAX_EXTENT {
            return Err(self.error(&format!("{count} elements; at most {MAX_EXTENT}")));
        }
        let mut init = None;
        if self.eat('=') {
            let mut bytes = Vec::new();
            let braces = array && self.eat('{');
            loop {
                let value = self.integer()? as u64;
                bytes.extend_from_slice(&value.to_le_bytes()[..ty.bytes()]);
                if !self.eat(',') {
                    break;
                }
            }
            if braces {
                self.expect('}')?;
            }
            if count == 0 {
                count = bytes.len() / ty.bytes();
            }
            init = Some(bytes);
        }
        self.expect(';')?;
        Ok(Variable { name, space, align: align.max(ty.bytes()), size: count * ty.bytes(), init })
    }

    fn param(&mut self, offset: usize) -> Result<Param, SimError> {
        let (mut align, mut ty) = (1, None);
        let name = loop {
            let word = self.word()?;
            match word.as_str() {
                ".param" | ".ptr" | ".global" | ".shared" | ".const" | ".local" => {}
                ".align" => align = self.extent()?,
                _ => match word.strip_prefix('.') {
                    Some(t) => ty = ty.or(Type::from_name(t)),
                    None => break word,
                },
            }
        };
        let ty = ty.ok_or_else(|| self.error("a parameter without a known type"))?;
        let mut size = ty.bytes();
        if self.eat('[') {
            size *= self.extent()?;
            self.expect(']')?;
        } else {
            // `.ptr .align n` speaks of what the pointer points at.
            align = size;
        }
        if size > MAX_PARAM || !align.is_power_of_two() {
            return Err(
                self.error(&format!("a parameter of {size} bytes aligned to {align}; at most {MAX_PARAM}"))
            );
        }
        Ok(Param { name, offset: offset.next_multiple_of(align.max(ty.bytes())), size })
    }

    /// `.func [(results)] name (parameters) { .. }`, or a declaration without a body.
    fn function(&mut self) -> Result<Option<Entry>, SimError> {
        let results = self.params()?;
        let mut function = self.head()?;
        function.results = results;
        if self.eat(';') {
            return Ok(None);
        }
        self.directives(&mut function)?;
        self.body(&mut function)?;
        Ok(Some(function))
    }

    fn entry(&mut self) -> Result<Entry, SimError> {
        let mut entry = self.head()?;
        self.directives(&mut entry)?;
        self.body(&mut entry)?;
        Ok(entry)
    }

    /// A list of parameters in parentheses, if there is one.
    fn params(&mut self) -> Result<Vec<Param>, SimError> {
        let mut params: Vec<Param> = Vec::new();
        if self.eat('(') {
            while !self.eat(')') {
                let end = params.last().map_or(0, |p| p.offset + p.size);
                params.push(self.param(end)?);
                self.eat(',');
            }
        }
        Ok(params)
    }

    fn head(&mut self) -> Result<Entry, SimError> {
        Ok(Entry {
            name: self.word()?,
            params: self.params()?,
            results: Vec::new(),
            registers: Vec::new(),
            variables: Vec::new(),
            body: Vec::new(),
            labels: HashMap::new(),
            branch_targets: HashMap::new(),
            max_threads: None,
        })
    }

    fn directives(&mut self, entry: &mut Entry) -> Result<(), SimError> {
        while !self.eat('{') {
            let word = self.word()?;
            let mut product = 1;
            if matches!(self.peek(), Some(Token::Word(w)) if number(w).is_some()) {
                product = self.integer()?;
                while self.eat(',') {
                    product = product.saturating_mul(self.integer()?);
                }
            }
            match word.as_str() {
                ".maxntid" | ".reqntid" => entry.max_threads = u32::try_from(product).ok(),
                ".minnctapersm" | ".maxnreg" | ".maxnctapersm" | ".noreturn" => {}
                _ => return Err(self.error(&format!("directive {word} is not supported"))),
            }
        }
        Ok(())
    }

    fn body(&mut self, entry: &mut Entry) -> Result<(), SimError> {
        let mut scopes: Scopes = vec![Scope::default()];
        let mut source = None;
        let mut label = String::new();
        while !scopes.is_empty() {
            let line = self.line();
            match self.peek().cloned() {
                Some(Token::Mark('{')) => {
                    self.at += 1;
                    scopes.push(Scope::default());
                }
                Some(Token::Mark('}')) => {
                    self.at += 1;
                    scopes.pop();
                }
                Some(Token::Mark(';')) => self.at += 1,
                Some(Token::Mark('@')) => {
                    self.at += 1;
                    let negated = self.eat('!');
                    let name = self.word()?;
                    let reg = lookup(&scopes, &name)
                        .ok_or_else(|| self.error(&format!("guard {name} is not a register")))?;
                    let instruction =
                        self.instruction(Some(Guard { reg, negated }), &scopes, line, source)?;
                    entry.body.push(instruction);
                }
                Some(Token::Word(word)) => match word.as_str() {
                    ".reg" => self.registers(entry, &mut scopes)?,
                    ".local" | ".shared" => {
                        let variable = self.variable()?;
                        entry.variables.push(variable);
                    }
                    ".param" => {
                        let mut variable = self.variable()?;
                        let unique = format!("{}#{}", variable.name, entry.variables.len());
                        if let Some(scope) = scopes.last_mut() {
                            scope.variables.insert(variable.name, unique.clone());
                        }
                        variable.name = unique;
                        entry.variables.push(variable);
                    }
                    ".loc" => source = self.loc()?,
                    ".branchtargets" => {
                        self.at += 1;
                        let mut targets = vec![self.word()?];
                        while self.eat(',') {
                            targets.push(self.word()?);
                        }
                        self.expect(';')?;
                        entry.branch_targets.insert(label.clone(), targets);
                    }
                    ".pragma" => self.skip_statement(),
                    _ if word.starts_with('.') => {
                        return Err(self.error(&format!("unknown directive {word}")));
                    }
                    _ if self.tokens.get(self.at + 1).map(|t| &t.0) == Some(&Token::Mark(':')) => {
                        self.at += 2;
                        label.clone_from(&word);
                        entry.labels.insert(word, entry.body.len());
                    }
                    _ => {
                        let instruction = self.instruction(None, &scopes, line, source)?;
                        entry.body.push(instruction);
                    }
                },
                _ => return Err(self.error("a statement was expected here")),
            }
        }
        Ok(())
    }

    fn registers(&mut self, entry: &mut Entry, scopes: &mut Scopes) -> Result<(), SimError> {
        self.at += 1;
        let word = self.word()?;
        let ty = word
            .strip_prefix('.')
            .and_then(Type::from_name)
            .ok_or_else(|| self.error(&format!("register type {word}")))?;
        let scope = scopes.last_mut().ok_or_else(|| self.error("a register outside of a body"))?;
        let mut declare = |name: String| {
            scope.registers.insert(name.clone(), RegId(entry.registers.len() as u32));
            entry.registers.push(Register { name, ty });
        };
        loop {
            let name = self.word()?;
            if self.eat('<') {
                for index in 0..self.extent()? {
                    declare(format!("{name}{index}"));
                }
                self.expect('>')?;
            } else {
                declare(name);
            }
            if !self.eat(',') {
                break;
            }
        }
        self.expect(';')
    }

    /// `.loc file line column[, function_name label[+offset], inlined_at file line column]`; line 0 is no line.
    fn loc(&mut self) -> Result<Option<SourceLine>, SimError> {
        self.at += 1;
        let (file, line) = (self.integer()? as u32, self.integer()? as u32);
        self.integer()?;
        let mut inlined_at = None;
        while self.eat(',') {
            match self.word()?.as_str() {
                "function_name" => {
                    self.word()?;
                    if self.eat('+') {
                        self.integer()?;
                    }
                }
                "inlined_at" => {
                    inlined_at = Some((self.integer()? as u32, self.integer()? as u32));
                    self.integer()?;
                }
                other => return Err(self.error(&format!("unknown .loc attribute {other}"))),
            }
        }
        Ok((line > 0).then_some(SourceLine { file, line, inlined_at }))
    }

    fn instruction(
        &mut self,
        guard: Option<Guard>,
        scopes: &Scopes,
        line: u32,
        source: Option<SourceLine>,
    ) -> Result<Instruction, SimError> {
        let opcode = self.word()?;
        let mut operands = Vec::new();
        while !self.eat(';') {
            operands.push(self.operand(scopes)?);
            if !self.eat(',') {
                self.expect(';')?;
                break;
            }
        }
        Ok(Instruction { guard, opcode, operands, line, source })
    }

    fn operand(&mut self, scopes: &Scopes) -> Result<Operand, SimError> {
        if self.eat('!') {
            return Ok(Operand::Not(Box::new(self.atom(scopes)?)));
        }
        // A list of registers, or of the arguments of a call.
        if let Some(close) =
            [('{', '}'), ('(', ')')].into_iter().find(|(open, _)| self.eat(*open)).map(|p| p.1)
        {
            let mut items = Vec::new();
            while !self.eat(close) {
                items.push(self.atom(scopes)?);
                self.eat(',');
            }
            return Ok(Operand::Vector(items));
        }
        if self.eat('[') {
            let base = self.atom(scopes)?;
            let offset = if self.eat('+') { self.integer()? } else { 0 };
            self.expect(']')?;
            return Ok(match base {
                Operand::Symbol(name, more) => {
                    Operand::Address(Box::new(Operand::Symbol(name, 0)), offset + more)
                }
                base => Operand::Address(Box::new(base), offset),
            });
        }
        let first = self.atom(scopes)?;
        if self.eat('|') {
            let second = self.atom(scopes)?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn atom(&mut self, scopes: &Scopes) -> Result<Operand, SimError> {
        if self.eat('-') {
            let word = self.word()?;
            let value = number(&word).ok_or_else(|| self.error(&format!("-{word} is not a number")))?;
            return Ok(Operand::Imm(value.wrapping_neg()));
        }
        let word = self.word()?;
        if word == "_" {
            return Ok(Operand::Sink);
        }
        if let Some(reg) = lookup(scopes, &word) {
            return Ok(Operand::Reg(reg));
        }
        if let Some(value) = number(&word) {
            return Ok(Operand::Imm(value));
        }
        if word.starts_with('%') {
            return Ok(Operand::Special(word));
        }
        let offset = if self.eat('+') { self.integer()? } else { 0 };
        let unique = scopes.iter().rev().find_map(|s| s.variables.get(&word).cloned());
        Ok(Operand::Symbol(unique.unwrap_or(word), offset))
    }
}

fn lookup(scopes: &Scopes, name: &str) -> Option<RegId> {
    scopes.iter().rev().find_map(|s| s.registers.get(name).copied())
}

/// Integers (decimal, hexadecimal, octal, binary, with an optional `U`) and the bits of floating-point literals.
fn number(word: &str) -> Option<u64> {
    let lower = word.to_ascii_lowercase();
    if !lower.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Some(bits) = lower.strip_prefix("0f").or(lower.strip_prefix("0d")) {
        return u64::from_str_radix(bits, 16).ok();
    }
    let digits = lower.trim_end_matches('u');
    if let Some(hex) = digits.strip_prefix("0x") {
        u64::from_str_radix(hex, 16).ok()
    } else if let Some(binary) = digits.strip_prefix("0b") {
        u64::from_str_radix(binary, 2).ok()
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8).ok()
    } else {
        digits.parse().ok()
    }
}
