//! Tokens of PTX text, with their lines.

use crate::SimError;

/// One token. Words hold opcodes, directives, names and numbers alike: what a word means depends on where it
/// stands, so the parser decides.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    Text(String),
    Mark(char),
}

/// Splits `text` into tokens, each with its 1-based line. Comments are dropped.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, u32)>, SimError> {
    let mut out = Vec::new();
    let mut in_comment = false;
    for (index, line) in text.lines().enumerate() {
        let number = index as u32 + 1;
        let bytes = line.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let rest = &line[at..];
            if in_comment {
                match rest.find("*/") {
                    Some(end) => {
                        in_comment = false;
                        at += end + 2;
                    }
                    None => break,
                }
                continue;
            }
            let byte = bytes[at];
            if rest.starts_with("//") {
                break;
            } else if rest.starts_with("/*") {
                in_comment = true;
                at += 2;
            } else if byte.is_ascii_whitespace() || byte == 0 {
                at += 1;
            } else if byte == b'"' {
                let end = rest[1..]
                    .find('"')
                    .ok_or(SimError::Syntax { line: number, what: "string without an end".into() })?;
                out.push((Token::Text(rest[1..=end].to_string()), number));
                at += end + 2;
            } else if is_word(byte) {
                let end = bytes[at..].iter().position(|b| !is_word(*b)).unwrap_or(bytes.len() - at);
                let mut end = at + end;
                // A label's colon is a mark; `L2::128B` and `shared::cta` are parts of an opcode.
                while bytes[end..].starts_with(b"::") {
                    let more = bytes[end + 2..].iter().position(|b| !is_word(*b));
                    end = more.map_or(bytes.len(), |m| end + 2 + m);
                }
                out.push((Token::Word(line[at..end].to_string()), number));
                at = end;
            } else if byte.is_ascii() {
                out.push((Token::Mark(byte as char), number));
                at += 1;
            } else {
                return Err(SimError::Syntax { line: number, what: "a character outside ASCII".into() });
            }
        }
    }
    Ok(out)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}
