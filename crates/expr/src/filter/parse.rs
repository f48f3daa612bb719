//! Text to [`Expr`].
//!
//! The parser tries alternatives in order, like the PEG the language is defined by, and notes at
//! the furthest place it came to what would have let it go on; that makes the error message. Unlike
//! a plain PEG it never reads the same text twice for it, so it takes linear time.

use std::collections::BTreeSet;

use super::{
    Binding, Expr, FilterError, MAX_FILTER_BYTES, MAX_FILTER_DEPTH, MAX_FILTER_PATTERNS, Selector, Test, TestKind,
};
use crate::pattern::Pattern;

const SPACE: &str = "[ \\t\\r\\n]";
const END: &str = "EOF";
const LETTER: &str = "[a-zA-Z]";
const WORD: &str = "[a-zA-Z0-9_/]";
const DIGIT: &str = "[0-9]";
const NONZERO: &str = "[1-9]";
const POINTER: &str = "[\\pL\\pN-_.~:|]";

pub(super) fn parse(text: &str) -> Result<Expr, FilterError> {
    if text.len() > MAX_FILTER_BYTES {
        return Err(FilterError::TooLong(text.len()));
    }
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        too_deep: false,
        patterns: 0,
        furthest: 0,
        expected: BTreeSet::new(),
        errors: Vec::new(),
    };
    parser.space();
    let expr = parser.or();
    if parser.too_deep {
        return Err(FilterError::TooDeep);
    }
    if parser.patterns > MAX_FILTER_PATTERNS {
        return Err(FilterError::TooManyPatterns);
    }
    match expr {
        Some(expr) if parser.finish() => Ok(expr),
        _ => Err(FilterError::Syntax(parser.message())),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    too_deep: bool,
    /// How many patterns were met.
    patterns: usize,
    /// The furthest place where something was missing, and what would have fit there.
    furthest: usize,
    expected: BTreeSet<String>,
    /// Errors that are certain, each with its place.
    errors: Vec<String>,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn since(&self, start: usize) -> &'t str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn miss(&mut self, expected: &str) {
        if self.at > self.furthest {
            self.furthest = self.at;
            self.expected.clear();
        }
        if self.at == self.furthest {
            self.expected.insert(expected.to_owned());
        }
    }

    /// Notes a certain error at `at` within the grammar rule `rule`.
    fn error(&mut self, at: usize, rule: &str, what: &str) {
        let message = format!("{}: rule \"{rule}\": {what}", place(self.text, at));
        if !self.errors.contains(&message) {
            self.errors.push(message);
        }
    }

    fn message(&self) -> String {
        if !self.errors.is_empty() {
            return self.errors.join("\n");
        }
        let mut list: Vec<&str> = self.expected.iter().map(String::as_str).collect();
        // The end of the text is named last.
        if let Some(index) = list.iter().position(|e| *e == END) {
            list.remove(index);
            list.push(END);
        }
        let listed = match list.split_last() {
            None => String::new(),
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
        };
        let place = place(self.text, self.furthest);
        format!("{place}: no match found, expected: {listed}")
    }

    fn finish(&mut self) -> bool {
        self.space();
        if self.rest().is_empty() {
            return self.errors.is_empty();
        }
        self.miss(END);
        false
    }

    fn literal(&mut self, text: &str) -> bool {
        if self.rest().starts_with(text) {
            self.at += text.len();
            return true;
        }
        self.miss(&format!("{text:?}"));
        false
    }

    /// As many characters as fit `class`; whether it was any.
    fn many(&mut self, name: &str, class: impl Fn(char) -> bool) -> bool {
        let rest = self.rest();
        let len = rest.find(|c| !class(c)).unwrap_or(rest.len());
        self.at += len;
        self.miss(name);
        len > 0
    }

    fn space(&mut self) -> bool {
        self.many(SPACE, |c| matches!(c, ' ' | '\t' | '\r' | '\n'))
    }

    /// Runs `rule` and goes back to where it began if it does not fit.
    fn attempt<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let start = self.at;
        let found = rule(self);
        if found.is_none() {
            self.at = start;
        }
        found
    }

    /// Runs `rule` one level deeper; past the limit nothing is tried any more.
    fn deeper<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.too_deep || self.depth >= MAX_FILTER_DEPTH {
            self.too_deep = true;
            return None;
        }
        self.depth += 1;
        let found = rule(self);
        self.depth -= 1;
        found
    }

    fn or(&mut self) -> Option<Expr> {
        let Some(first) = self.and() else {
            // A collection stands alone: nothing is joined to it without parentheses.
            return self.collection();
        };
        let mut terms = vec![first];
        loop {
            let end = self.at;
            let joined = self.space() && self.literal("or") && self.space();
            match joined.then(|| self.and()).flatten() {
                Some(term) => terms.push(term),
                None => {
                    match joined.then(|| self.collection()).flatten() {
                        Some(last) => terms.push(last),
                        None => self.at = end,
                    }
                    return Some(single(terms, Expr::Or));
                }
            }
        }
    }

    fn and(&mut self) -> Option<Expr> {
        let mut terms = vec![self.not()?];
        loop {
            let end = self.at;
            let joined = self.space() && self.literal("and") && self.space();
            match joined.then(|| self.not()).flatten() {
                Some(term) => terms.push(term),
                None => {
                    self.at = end;
                    return Some(single(terms, Expr::And));
                }
            }
        }
    }

    fn not(&mut self) -> Option<Expr> {
        let negated = self.attempt(|p| {
            (p.literal("not") && p.space()).then_some(())?;
            p.deeper(Self::not)
        });
        match negated {
            Some(Expr::Not(inner)) => Some(*inner),
            Some(inner) => Some(Expr::Not(Box::new(inner))),
            None => self.grouping(),
        }
    }

    fn grouping(&mut self) -> Option<Expr> {
        let group = self.attempt(|p| {
            p.literal("(").then_some(())?;
            p.space();
            let inner = p.deeper(Self::or)?;
            p.space();
            let end = p.at;
            if p.literal(")") {
                return Some(inner);
            }
            p.error(end, "grouping", "Unmatched parentheses");
            None
        });
        group.or_else(|| self.comparison())
    }

    fn comparison(&mut self) -> Option<Expr> {
        let selected = self.attempt(|p| {
            let selector = p.selector()?;
            let test = p.value_test().or_else(|| p.plain_test())?;
            Some(Expr::Match { selector, test })
        });
        if selected.is_some() {
            return selected;
        }
        self.attempt(|p| {
            let value = p.value()?;
            let negated = if p.words(&["in"], true) {
                false
            } else if p.words(&["not", "in"], true) {
                true
            } else {
                return None;
            };
            let place = p.at;
            let Some(selector) = p.selector() else {
                p.error(place, "match", "Invalid selector");
                return None;
            };
            let kind = TestKind::Contains(value);
            Some(Expr::Match { selector, test: Test { negated, kind } })
        })
    }

    /// ` == x`, ` not contains x` and so on.
    fn value_test(&mut self) -> Option<Test> {
        self.attempt(|p| {
            let (negated, build): (bool, fn(&mut Self, String) -> TestKind) = if p.sign("==") {
                (false, |_, v| TestKind::Equal(v))
            } else if p.sign("!=") {
                (true, |_, v| TestKind::Equal(v))
            } else if p.words(&["contains"], true) {
                (false, |_, v| TestKind::Contains(v))
            } else if p.words(&["not", "contains"], true) {
                (true, |_, v| TestKind::Contains(v))
            } else if p.words(&["matches"], true) {
                (false, Self::pattern)
            } else if p.words(&["not", "matches"], true) {
                (true, Self::pattern)
            } else {
                return None;
            };
            let value = p.value()?;
            let kind = build(p, value);
            Some(Test { negated, kind })
        })
    }

    /// Compiles a pattern, up to the limit; over it the whole filter is refused in the end.
    fn pattern(&mut self, text: String) -> TestKind {
        self.patterns += 1;
        let allowed = self.patterns <= MAX_FILTER_PATTERNS;
        let pattern = Pattern::new(if allowed { &text } else { "" });
        TestKind::Matches { text, pattern }
    }

    /// ` is empty`, ` is not nil` and so on.
    fn plain_test(&mut self) -> Option<Test> {
        let (negated, kind) = if self.words(&["is", "empty"], false) {
            (false, TestKind::Empty)
        } else if self.words(&["is", "not", "empty"], false) {
            (true, TestKind::Empty)
        } else if self.words(&["is", "nil"], false) {
            (false, TestKind::Nil)
        } else if self.words(&["is", "not", "nil"], false) {
            (true, TestKind::Nil)
        } else {
            return None;
        };
        Some(Test { negated, kind })
    }

    /// An operator of signs, with or without white space around.
    fn sign(&mut self, sign: &str) -> bool {
        self.attempt(|p| {
            p.space();
            p.literal(sign).then_some(())?;
            p.space();
            Some(())
        })
        .is_some()
    }

    /// Words with white space before each, and behind the last if a value follows.
    fn words(&mut self, words: &[&str], value_follows: bool) -> bool {
        self.attempt(|p| {
            for word in words {
                (p.space() && p.literal(word)).then_some(())?;
            }
            (!value_follows || p.space()).then_some(())
        })
        .is_some()
    }

    fn collection(&mut self) -> Option<Expr> {
        self.attempt(|p| {
            let any = p.attempt(|p| (p.literal("any") && p.space()).then_some(()));
            let all = any.is_none();
            if all {
                (p.literal("all") && p.space()).then_some(())?;
            }
            let selector = p.selector()?;
            (p.space() && p.literal("as") && p.space()).then_some(())?;
            let binding = p.binding()?;
            p.space();
            p.literal("{").then_some(())?;
            p.space();
            let inner = Box::new(p.deeper(Self::or)?);
            p.space();
            p.literal("}").then_some(())?;
            Some(Expr::Collection { all, selector, binding, inner })
        })
    }

    fn binding(&mut self) -> Option<Binding> {
        let Some(first) = self.identifier() else {
            self.literal("_").then_some(())?;
            self.comma().then_some(())?;
            return Some(Binding::Value(self.identifier()?));
        };
        let end = self.at;
        if self.comma() {
            if let Some(value) = self.identifier() {
                let index = first;
                return Some(Binding::Both { index, value });
            }
            if self.literal("_") {
                return Some(Binding::Index(first));
            }
        }
        self.at = end;
        Some(Binding::Default(first))
    }

    fn comma(&mut self) -> bool {
        self.space();
        let found = self.literal(",");
        if found {
            self.space();
        }
        found
    }

    fn identifier(&mut self) -> Option<String> {
        let start = self.at;
        if !self.rest().starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.miss(LETTER);
            return None;
        }
        self.many(WORD, |c| c.is_ascii_alphanumeric() || c == '_' || c == '/');
        Some(self.since(start).to_owned())
    }

    fn selector(&mut self) -> Option<Selector> {
        if let Some(first) = self.identifier() {
            let mut path = vec![first];
            while let Some(part) = self.member().or_else(|| self.index()).or_else(|| self.ordinal()) {
                path.push(part);
            }
            let pointer = false;
            return Some(Selector { path, pointer });
        }
        self.attempt(|p| {
            p.literal("\"").then_some(())?;
            let mut path = Vec::new();
            while let Some(segment) = p.attempt(Self::segment) {
                path.push(segment);
            }
            p.literal("\"").then_some(())?;
            let pointer = true;
            Some(Selector { path, pointer })
        })
    }

    /// `.name`
    fn member(&mut self) -> Option<String> {
        self.attempt(|p| {
            p.literal(".").then_some(())?;
            p.identifier()
        })
    }

    /// `.0`
    fn ordinal(&mut self) -> Option<String> {
        self.attempt(|p| {
            p.literal(".").then_some(())?;
            let start = p.at;
            p.many(DIGIT, |c| c.is_ascii_digit()).then_some(())?;
            Some(p.since(start).to_owned())
        })
    }

    /// `["key"]`
    fn index(&mut self) -> Option<String> {
        self.attempt(|p| {
            p.literal("[").then_some(())?;
            p.space();
            let place = p.at;
            let Some(key) = p.string() else {
                p.error(place, "index", "Invalid index");
                return None;
            };
            p.space();
            let place = p.at;
            if !p.literal("]") {
                p.error(place, "index", "Unclosed index expression");
                return None;
            }
            Some(key)
        })
    }

    /// One `/name` of a JSON pointer, with `~1` for `/` and `~0` for `~`.
    fn segment(&mut self) -> Option<String> {
        self.literal("/").then_some(())?;
        let start = self.at;
        self.many(POINTER, |c| c.is_alphabetic() || c.is_numeric() || "-_.~:|".contains(c)).then_some(())?;
        Some(self.since(start).replace("~1", "/").replace("~0", "~"))
    }

    fn value(&mut self) -> Option<String> {
        let start = self.at;
        if let Some(selector) = self.selector() {
            // A pointer is a quoted text like any other here.
            let quoted = self.since(start).trim_matches('"');
            return Some(match selector.pointer {
                true => quoted.to_owned(),
                false => selector.shown(),
            });
        }
        self.number().or_else(|| self.string())
    }

    fn number(&mut self) -> Option<String> {
        self.attempt(|p| {
            let start = p.at;
            p.literal("-");
            if !p.literal("0") {
                if !p.rest().starts_with(|c: char| c.is_ascii_digit()) {
                    p.miss(NONZERO);
                    return None;
                }
                p.many(DIGIT, |c| c.is_ascii_digit());
            }
            p.attempt(|p| {
                p.literal(".").then_some(())?;
                p.many(DIGIT, |c| c.is_ascii_digit()).then_some(())
            });
            let end = p.at;
            match p.rest().chars().next() {
                None => p.miss(SPACE),
                Some(' ' | '\t' | '\r' | '\n') => {}
                Some(')') => {
                    p.miss(SPACE);
                    p.miss(END);
                }
                Some(_) => {
                    p.error(end, "number", "Invalid number literal");
                    return None;
                }
            }
            Some(p.since(start).to_owned())
        })
    }

    fn string(&mut self) -> Option<String> {
        let start = self.at;
        let quote = if self.literal("`") {
            '`'
        } else if self.literal("\"") {
            '"'
        } else {
            return None;
        };
        let Some((body, _)) = self.rest().split_once(quote) else {
            self.error(self.text.len(), "string", "Unterminated string literal");
            self.at = start;
            return None;
        };
        self.at += body.len() + 1;
        if quote == '`' {
            return Some(body.replace('\r', ""));
        }
        let unquoted = unquote(body);
        if unquoted.is_none() {
            self.error(start, "string", "invalid syntax");
        }
        // What is noted as an error refuses the whole text in the end.
        Some(unquoted.unwrap_or_default())
    }
}

fn single(mut terms: Vec<Expr>, join: fn(Vec<Expr>) -> Expr) -> Expr {
    match terms.pop() {
        Some(only) if terms.is_empty() => only,
        Some(last) => {
            terms.push(last);
            join(terms)
        }
        None => join(terms),
    }
}

/// Line, column and byte offset, in the form `1:8 (7)`.
fn place(text: &str, at: usize) -> String {
    let (mut line, mut column) = (1, 0);
    for (index, c) in text.char_indices() {
        if index > at {
            break;
        }
        column += 1;
        if c == '\n' {
            line += 1;
            column = 0;
        }
    }
    if at >= text.len() {
        column += 1;
    }
    format!("{line}:{column} ({at})")
}

/// Undoes the escapes of a double-quoted Go string; `None` if one is wrong.
fn unquote(body: &str) -> Option<String> {
    let mut out: Vec<u8> = Vec::with_capacity(body.len());
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        match c {
            '\n' => return None,
            '\\' => match chars.next()? {
                'a' => out.push(0x07),
                'b' => out.push(0x08),
                'f' => out.push(0x0c),
                'n' => out.push(b'\n'),
                'r' => out.push(b'\r'),
                't' => out.push(b'\t'),
                'v' => out.push(0x0b),
                '\\' => out.push(b'\\'),
                'x' => out.push(u8::try_from(digits(&mut chars, 2, 16)?).ok()?),
                'u' => push_char(&mut out, digits(&mut chars, 4, 16)?)?,
                'U' => push_char(&mut out, digits(&mut chars, 8, 16)?)?,
                c @ '0'..='7' => {
                    let rest = digits(&mut chars, 2, 8)?;
                    let value = c.to_digit(8)? * 64 + rest;
                    out.push(u8::try_from(value).ok()?);
                }
                _ => return None,
            },
            c => push_char(&mut out, u32::from(c))?,
        }
    }
    String::from_utf8(out).ok()
}

fn push_char(out: &mut Vec<u8>, value: u32) -> Option<()> {
    let c = char::from_u32(value)?;
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Some(())
}

fn digits(chars: &mut std::str::Chars<'_>, count: usize, radix: u32) -> Option<u32> {
    (0..count).try_fold(0u32, |value, _| value.checked_mul(radix)?.checked_add(chars.next()?.to_digit(radix)?))
}
