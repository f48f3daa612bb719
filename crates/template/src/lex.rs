//! Text to tokens: what stands between the delimiters, and the text around it.

use crate::{Options, TemplateError};

/// A token within an action.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// `.Name`.
    Field(String),
    /// `.` alone.
    Dot,
    /// `$name`; the name without the dollar sign.
    Variable(String),
    /// A word: a keyword, a function, `true`, `false`, `nil`.
    Word(String),
    /// A number as written.
    Number(String),
    /// A character constant.
    Char(char),
    Text(String),
    Pipe,
    Comma,
    Open,
    Close,
    /// `:=`.
    Declare,
    /// `=`.
    Assign,
    /// Whitespace matters between arguments.
    Space,
}

/// A token with its place.
#[derive(Debug, Clone)]
pub struct Placed {
    pub token: Token,
    pub line: usize,
    pub column: usize,
}

/// A part of the text.
#[derive(Debug, Clone)]
pub enum Part {
    Text(String),
    Action { tokens: Vec<Placed>, line: usize },
}

/// What trims the text beside an action.
const TRIM: char = '-';

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Follows lines and columns through the text.
#[derive(Clone, Copy)]
struct Place {
    line: usize,
    /// Bytes since the beginning of the line.
    column: usize,
}

impl Place {
    fn over(mut self, text: &str) -> Place {
        match text.rfind('\n') {
            Some(at) => {
                self.line += text.matches('\n').count();
                self.column = text.len() - at - 1;
            }
            None => self.column += text.len(),
        }
        self
    }
}

/// Splits a template into its parts.
pub fn split(text: &str, options: &Options<'_>) -> Result<Vec<Part>, TemplateError> {
    let mut parts = Vec::new();
    let mut rest = text;
    let mut place = Place { line: 1, column: 0 };
    let mut trim_next = false;
    loop {
        let (before, found) = match rest.split_once(options.left) {
            Some((before, after)) => (before, Some(after)),
            None => (rest, None),
        };
        let trims_left = found.is_some_and(|after| after.strip_prefix(TRIM).is_some_and(|a| a.starts_with(is_blank)));
        let mut shown = before;
        if trim_next {
            shown = shown.trim_start_matches(is_blank);
        }
        if trims_left {
            shown = shown.trim_end_matches(is_blank);
        }
        if !shown.is_empty() {
            parts.push(Part::Text(shown.to_string()));
        }
        let Some(after) = found else { return Ok(parts) };
        place = place.over(before).over(options.left);
        let (after, skipped) = if trims_left {
            let body = after.get(1..).unwrap_or_default();
            (body, taken(after, body))
        } else {
            (after, "")
        };
        place = place.over(skipped);
        let (next, consumed, trims_right) = action(after, place, options, &mut parts)?;
        trim_next = trims_right;
        place = place.over(consumed);
        rest = next;
    }
}

/// Reads one action up to its end; what follows it, what it took, and whether it trims what follows.
fn action<'t>(
    text: &'t str,
    place: Place,
    options: &Options<'_>,
    parts: &mut Vec<Part>,
) -> Result<(&'t str, &'t str, bool), TemplateError> {
    let fault = |place: Place, why: &str| TemplateError(format!("template: {}:{}: {why}", options.name, place.line));
    let body = text.trim_start_matches(is_blank);
    if body.starts_with("/*") {
        let Some((_, after)) = body.split_once("*/") else { return Err(fault(place, "unclosed comment")) };
        let (after, trims) = match after.trim_start_matches(is_blank).strip_prefix(TRIM) {
            Some(inner) if inner.starts_with(options.right) && after.starts_with(is_blank) => (inner, true),
            _ => (after, false),
        };
        let Some(next) = after.strip_prefix(options.right) else {
            return Err(fault(place, "comment ends before closing delimiter"));
        };
        return Ok((next, taken(text, next), trims));
    }
    let mut scan = Scan { rest: text, place, tokens: Vec::new(), depth: 0 };
    loop {
        if let Some((next, trims)) = scan.at_end(options) {
            if scan.depth > 0 {
                return Err(fault(scan.place, "unclosed left paren"));
            }
            parts.push(Part::Action { tokens: scan.tokens, line: place.line });
            return Ok((next, taken(text, next), trims));
        }
        if scan.rest.is_empty() {
            return Err(fault(place, "unclosed action"));
        }
        let at = scan.place;
        scan.one().map_err(|why| fault(at, &why))?;
    }
}

fn taken<'t>(all: &'t str, rest: &str) -> &'t str {
    all.get(..all.len().saturating_sub(rest.len())).unwrap_or_default()
}

struct Scan<'t> {
    rest: &'t str,
    place: Place,
    tokens: Vec<Placed>,
    depth: usize,
}

impl<'t> Scan<'t> {
    /// What follows the action, when it ends here.
    fn at_end(&self, options: &Options<'_>) -> Option<(&'t str, bool)> {
        if let Some(next) = self.rest.strip_prefix(options.right) {
            return Some((next, false));
        }
        let blank = self.rest.trim_start_matches(is_blank);
        if blank.len() == self.rest.len() {
            return None;
        }
        let next = blank.strip_prefix(TRIM)?.strip_prefix(options.right)?;
        Some((next, true))
    }

    fn take(&mut self, length: usize, token: Token) {
        let (text, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.tokens.push(Placed { token, line: self.place.line, column: self.place.column });
        self.place = self.place.over(text);
        self.rest = rest;
    }

    fn one(&mut self) -> Result<(), String> {
        let Some(first) = self.rest.chars().next() else { return Ok(()) };
        let second = self.rest.chars().nth(1);
        match first {
            c if is_blank(c) => {
                let length = self.rest.len() - self.rest.trim_start_matches(is_blank).len();
                self.take(length, Token::Space);
            }
            ':' if second == Some('=') => self.take(2, Token::Declare),
            ':' => return Err("expected :=".to_string()),
            '=' => self.take(1, Token::Assign),
            '|' => self.take(1, Token::Pipe),
            ',' => self.take(1, Token::Comma),
            '(' => {
                self.depth += 1;
                self.take(1, Token::Open);
            }
            ')' => {
                let Some(depth) = self.depth.checked_sub(1) else { return Err("unexpected right paren".to_string()) };
                self.depth = depth;
                self.take(1, Token::Close);
            }
            '"' => self.quoted()?,
            '`' => self.raw()?,
            '\'' => self.char_constant()?,
            '.' if second.is_none_or(|c| !c.is_ascii_digit()) => self.dotted()?,
            '$' => {
                let name = word_at(self.rest.get(1..).unwrap_or_default());
                self.take(1 + name.len(), Token::Variable(name.to_string()));
                self.boundary()?;
            }
            '+' | '-' | '.' | '0'..='9' => self.number()?,
            c if is_word(c) => {
                let word = word_at(self.rest);
                self.take(word.len(), Token::Word(word.to_string()));
                self.boundary()?;
            }
            c => return Err(format!("unexpected {:?} in command", c.to_string())),
        }
        Ok(())
    }

    /// Words end where something else may begin.
    fn boundary(&self) -> Result<(), String> {
        match self.rest.chars().next() {
            None => Ok(()),
            Some(c) if is_blank(c) || matches!(c, '.' | ',' | '|' | ':' | ')' | '(' | '=' | '}') => Ok(()),
            Some(c) => Err(format!("bad character {}", unicode(c))),
        }
    }

    fn dotted(&mut self) -> Result<(), String> {
        let name = word_at(self.rest.get(1..).unwrap_or_default());
        if name.is_empty() {
            self.take(1, Token::Dot);
        } else {
            self.take(1 + name.len(), Token::Field(name.to_string()));
            return self.boundary();
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        let body = self.rest.strip_prefix(['+', '-']).unwrap_or(self.rest);
        let sign = self.rest.len() - body.len();
        let mut length = 0;
        let mut before = ' ';
        for c in body.chars() {
            let exponent_sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E' | 'p' | 'P');
            if !(c.is_ascii_alphanumeric() || c == '.' || c == '_' || exponent_sign) {
                break;
            }
            length += c.len_utf8();
            before = c;
        }
        let text = self.rest.get(..sign + length).unwrap_or_default().to_string();
        if length == 0 || crate::number::parse(&text).is_none() {
            return Err(format!("bad number syntax: {text:?}"));
        }
        self.take(sign + length, Token::Number(text));
        Ok(())
    }

    fn quoted(&mut self) -> Result<(), String> {
        let body = self.rest.get(1..).unwrap_or_default();
        let mut out = Vec::new();
        let mut chars = body.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    let text = String::from_utf8_lossy(&out).into_owned();
                    self.take(1 + at + 1, Token::Text(text));
                    return Ok(());
                }
                '\n' => break,
                '\\' => escape(&mut chars, '"', &mut out)?,
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        Err("unterminated quoted string".to_string())
    }

    fn raw(&mut self) -> Result<(), String> {
        let body = self.rest.get(1..).unwrap_or_default();
        let Some((text, _)) = body.split_once('`') else { return Err("unterminated raw quoted string".to_string()) };
        self.take(text.len() + 2, Token::Text(text.replace('\r', "")));
        Ok(())
    }

    fn char_constant(&mut self) -> Result<(), String> {
        let body = self.rest.get(1..).unwrap_or_default();
        let mut chars = body.char_indices();
        let unterminated = || "unterminated character constant".to_string();
        let (_, first) = chars.next().ok_or_else(unterminated)?;
        let value = if first == '\\' {
            let mut out = Vec::new();
            escape(&mut chars, '\'', &mut out)?;
            String::from_utf8_lossy(&out).chars().next().unwrap_or('\u{fffd}')
        } else {
            first
        };
        match chars.next() {
            Some((at, '\'')) => {
                self.take(1 + at + 1, Token::Char(value));
                Ok(())
            }
            Some(_) => {
                let end = body.find('\'').map_or(body.len(), |at| at + 1);
                let whole = self.rest.get(..1 + end).unwrap_or(self.rest);
                Err(format!("malformed character constant: {whole}"))
            }
            None => Err(unterminated()),
        }
    }
}

/// Reads what follows a backslash.
fn escape(chars: &mut std::str::CharIndices<'_>, quote: char, out: &mut Vec<u8>) -> Result<(), String> {
    let bad = || "unterminated quoted string".to_string();
    let (_, c) = chars.next().ok_or_else(bad)?;
    let mut digits = |count: usize, radix: u32, first: Option<char>| -> Result<u32, String> {
        let mut value = match first {
            Some(c) => c.to_digit(radix).ok_or_else(|| "invalid syntax".to_string())?,
            None => 0,
        };
        for _ in 0..count {
            let (_, c) = chars.next().ok_or_else(bad)?;
            let digit = c.to_digit(radix).ok_or_else(|| "invalid syntax".to_string())?;
            value = value.saturating_mul(radix).saturating_add(digit);
        }
        Ok(value)
    };
    let simple = match c {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        'x' => u8::try_from(digits(2, 16, None)?).unwrap_or(0),
        '0'..='7' => u8::try_from(digits(2, 8, Some(c))?).map_err(|_| "invalid syntax".to_string())?,
        'u' | 'U' => {
            let value = digits(if c == 'u' { 4 } else { 8 }, 16, None)?;
            let shown = char::from_u32(value).ok_or_else(|| "invalid syntax".to_string())?;
            out.extend_from_slice(shown.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(());
        }
        c if c == quote => {
            out.push(if quote == '"' { b'"' } else { b'\'' });
            return Ok(());
        }
        _ => return Err("invalid syntax".to_string()),
    };
    out.push(simple);
    Ok(())
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn word_at(text: &str) -> &str {
    let length = text.find(|c| !is_word(c)).unwrap_or(text.len());
    text.get(..length).unwrap_or_default()
}

/// A character as Go's `%#U` shows it.
pub fn unicode(c: char) -> String {
    format!("U+{:04X} '{c}'", u32::from(c))
}
