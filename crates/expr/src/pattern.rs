//! Regular expressions as the job language knows them: the RE2 syntax of Go's `regexp` package.
//!
//! The matching is done by the `regex` crate, which has the same linear-time guarantee. Its syntax
//! differs in places (`\d` is Unicode there, `[a&&b]` is an intersection, `a{` is an error,
//! `\Q..\E` is unknown, `a**` is accepted), so the text is read here by Go's rules and written
//! again in a form that means the same. Errors carry Go's texts, which job authors see.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Longest pattern taken, in bytes.
pub const MAX_PATTERN_BYTES: usize = 16 * 1024;
/// Most memory one compiled pattern may take, in bytes.
pub const MAX_PROGRAM_BYTES: usize = 1024 * 1024;
/// Deepest nesting of groups.
pub const MAX_GROUP_DEPTH: u32 = 200;
/// Highest count in `x{n}`.
pub const MAX_REPEAT: u32 = 1000;

/// Why a pattern was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text breaks the syntax; `what` is Go's name of the error, `part` the piece it is about.
    #[error("error parsing regexp: {what}: `{part}`")]
    Syntax {
        /// Kind of error.
        what: &'static str,
        /// Piece of the pattern.
        part: String,
    },
    /// The pattern is longer than [`MAX_PATTERN_BYTES`].
    #[error("error parsing regexp: expression too large: {0} bytes, at most {MAX_PATTERN_BYTES} are taken")]
    TooLong(usize),
    /// The compiled form would be larger than [`MAX_PROGRAM_BYTES`].
    #[error("error parsing regexp: expression too large: compiled it exceeds {MAX_PROGRAM_BYTES} bytes")]
    TooLarge,
    /// Accepted by the rules here, but the regex engine has no such thing.
    #[error("error parsing regexp: {0}")]
    Unsupported(String),
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: regex::Regex,
}

impl Pattern {
    /// Compiles `text`.
    ///
    /// # Errors
    /// Malformed text, or one over the limits of this module.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let translated = translate(text)?;
        let regex = regex::RegexBuilder::new(&translated)
            .size_limit(MAX_PROGRAM_BYTES)
            .dfa_size_limit(MAX_PROGRAM_BYTES)
            .nest_limit(MAX_GROUP_DEPTH.saturating_mul(2))
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
                other => PatternError::Unsupported(last_line(&other.to_string())),
            })?;
        Ok(Self { regex })
    }

    /// Whether the pattern occurs anywhere in `text`.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The engine's form, for callers that need captures.
    #[must_use]
    pub fn as_regex(&self) -> &regex::Regex {
        &self.regex
    }
}

/// The regex crate's messages show the pattern over several lines; the reason is the last.
fn last_line(message: &str) -> String {
    let line = message.lines().last().unwrap_or(message).trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Rewrites Go syntax into the regex crate's.
fn translate(text: &str) -> Result<String, PatternError> {
    if text.len() > MAX_PATTERN_BYTES {
        return Err(PatternError::TooLong(text.len()));
    }
    let mut translator = Translator {
        text,
        at: 0,
        out: String::with_capacity(text.len() + 16),
        depth: 0,
        last: Last::Nothing,
        names: BTreeSet::new(),
    };
    while translator.peek().is_some() {
        translator.step()?;
    }
    if translator.depth > 0 {
        return Err(syntax("missing closing )", text));
    }
    Ok(translator.out)
}

fn syntax(what: &'static str, part: &str) -> PatternError {
    PatternError::Syntax { what, part: part.to_owned() }
}

/// What stands before the place looked at; decides whether a repetition may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Item,
    /// A repetition, beginning at this byte.
    Repeat(usize),
}

struct Translator<'t> {
    text: &'t str,
    at: usize,
    out: String,
    depth: u32,
    last: Last,
    /// Names of groups so far; a name that comes again names nothing.
    names: BTreeSet<&'t str>,
}

impl<'t> Translator<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn since(&self, start: usize) -> &'t str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, prefix: &str) -> bool {
        let found = self.rest().starts_with(prefix);
        if found {
            self.at += prefix.len();
        }
        found
    }

    fn step(&mut self) -> Result<(), PatternError> {
        let start = self.at;
        match self.next() {
            None => {}
            Some('\\') => self.escape(start)?,
            Some('[') => self.class(start)?,
            Some('(') => self.open(start)?,
            Some(')') => {
                if self.depth == 0 {
                    return Err(syntax("unexpected )", self.text));
                }
                self.depth -= 1;
                self.out.push(')');
                self.last = Last::Item;
            }
            Some('|') => {
                self.out.push('|');
                self.last = Last::Nothing;
            }
            Some(c @ ('*' | '+' | '?')) => self.repeat(start, c.encode_utf8(&mut [0; 4]))?,
            Some('{') => match self.counts(start)? {
                Some(counts) => self.repeat(start, &counts)?,
                None => self.literal('{'),
            },
            Some(c @ ('^' | '$' | '.')) => {
                self.out.push(c);
                self.last = Last::Item;
            }
            Some(c) => self.literal(c),
        }
        Ok(())
    }

    fn literal(&mut self, c: char) {
        push_literal(&mut self.out, c);
        self.last = Last::Item;
    }

    /// After `*`, `+`, `?` or `{n,m}` which began at `start`.
    fn repeat(&mut self, start: usize, operator: &str) -> Result<(), PatternError> {
        let lazy = self.eat("?");
        match self.last {
            Last::Nothing => {
                return Err(syntax("missing argument to repetition operator", self.since(start)));
            }
            Last::Repeat(first) => {
                return Err(syntax("invalid nested repetition operator", self.since(first)));
            }
            Last::Item => {}
        }
        self.out.push_str(operator);
        if lazy {
            self.out.push('?');
        }
        self.last = Last::Repeat(start);
        Ok(())
    }

    /// Behind a `{`: the counts in the form `{n}`, `{n,}`, `{n,m}`; `None` if it is a plain brace.
    fn counts(&mut self, start: usize) -> Result<Option<String>, PatternError> {
        let Some((inner, _)) = self.rest().split_once('}') else {
            return Ok(None);
        };
        let (low, high) = match inner.split_once(',') {
            None => (inner, Some(inner)),
            Some((low, "")) => (low, None),
            Some((low, high)) => (low, Some(high)),
        };
        let numeric =
            |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) && (s.len() == 1 || !s.starts_with('0'));
        if !numeric(low) || !high.is_none_or(numeric) {
            return Ok(None);
        }
        let written = format!("{{{inner}}}");
        self.at += inner.len() + 1;
        // Too many digits for u32 are over the limit as well.
        let low = low.parse::<u32>().unwrap_or(u32::MAX);
        let high = high.map(|h| h.parse::<u32>().unwrap_or(u32::MAX));
        if low > MAX_REPEAT || high.is_some_and(|h| h > MAX_REPEAT || h < low) {
            return Err(syntax("invalid repeat count", self.since(start)));
        }
        Ok(Some(written))
    }

    /// Behind a `(` at `start`.
    fn open(&mut self, start: usize) -> Result<(), PatternError> {
        if !self.eat("?") {
            self.out.push('(');
            return self.enter();
        }
        if self.eat("P<") || self.eat("<") {
            let name = self.rest().split_once('>').map(|(name, _)| name);
            let Some(name) = name else {
                let part = self.text.get(start..).unwrap_or_default();
                return Err(syntax("invalid named capture", part));
            };
            self.at += name.len() + 1;
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(syntax("invalid named capture", self.since(start)));
            }
            if self.names.insert(name) && !name.starts_with(|c: char| c.is_ascii_digit()) {
                let _ = write!(self.out, "(?P<{name}>");
            } else {
                self.out.push('(');
            }
            return self.enter();
        }
        self.flags(start)
    }

    fn enter(&mut self) -> Result<(), PatternError> {
        self.depth += 1;
        if self.depth > MAX_GROUP_DEPTH {
            return Err(syntax("expression nests too deeply", self.text));
        }
        self.last = Last::Nothing;
        Ok(())
    }

    /// Behind `(?`: flags and then `)` or `:`.
    fn flags(&mut self, start: usize) -> Result<(), PatternError> {
        let bad = "invalid or unsupported Perl syntax";
        let (mut negated, mut any_since) = (false, false);
        loop {
            match self.next() {
                Some('i' | 'm' | 's' | 'U') => any_since = true,
                Some('-') if !negated => {
                    negated = true;
                    any_since = false;
                }
                Some(c @ (':' | ')')) => {
                    if negated && !any_since {
                        return Err(syntax(bad, self.since(start)));
                    }
                    let written = self.since(start);
                    if c == ':' {
                        self.out.push_str(written);
                        return self.enter();
                    }
                    // `(?)` changes nothing, and the engine does not take it.
                    if any_since {
                        self.out.push_str(written);
                    }
                    return Ok(());
                }
                None | Some(_) => return Err(syntax(bad, self.since(start))),
            }
        }
    }

    /// Behind a `\` outside of a class.
    fn escape(&mut self, start: usize) -> Result<(), PatternError> {
        if self.eat("Q") {
            let (quoted, skip) = match self.rest().split_once("\\E") {
                Some((quoted, _)) => (quoted, quoted.len() + 2),
                None => (self.rest(), self.rest().len()),
            };
            self.at += skip;
            for c in quoted.chars() {
                self.literal(c);
            }
            return Ok(());
        }
        for (name, written) in [("A", "\\A"), ("z", "\\z"), ("b", "(?-u:\\b)"), ("B", "(?-u:\\B)")] {
            if self.eat(name) {
                self.out.push_str(written);
                self.last = Last::Item;
                return Ok(());
            }
        }
        if !self.perl_class() && !self.unicode_class(start)? {
            let c = self.escaped_char(start)?;
            push_literal(&mut self.out, c);
        }
        self.last = Last::Item;
        Ok(())
    }

    /// `\d` and its kin are ASCII in Go. The forms are valid in and out of a class.
    fn perl_class(&mut self) -> bool {
        let written = match self.peek() {
            Some('d') => "[0-9]",
            Some('D') => "[^0-9]",
            Some('s') => "[\\t\\n\\x0C\\r ]",
            Some('S') => "[^\\t\\n\\x0C\\r ]",
            Some('w') => "[0-9A-Za-z_]",
            Some('W') => "[^0-9A-Za-z_]",
            _ => return false,
        };
        self.at += 1;
        self.out.push_str(written);
        true
    }

    /// `\pL`, `\p{Greek}`, `\p{^Greek}`, `\P...`; `start` is the place of the backslash.
    fn unicode_class(&mut self, start: usize) -> Result<bool, PatternError> {
        let negated = match self.peek() {
            Some('p') => false,
            Some('P') => true,
            _ => return Ok(false),
        };
        self.at += 1;
        let what = "invalid character class range";
        let name = match self.next() {
            Some('{') => {
                let Some((name, _)) = self.rest().split_once('}') else {
                    let part = self.text.get(start..).unwrap_or_default();
                    return Err(syntax(what, part));
                };
                self.at += name.len() + 1;
                name.to_owned()
            }
            Some(c) => c.to_string(),
            None => return Err(syntax(what, self.since(start))),
        };
        let (name, negated) = match name.strip_prefix('^') {
            Some(name) => (name.to_owned(), !negated),
            None => (name, negated),
        };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') {
            return Err(syntax(what, self.since(start)));
        }
        let sign = if negated { 'P' } else { 'p' };
        let _ = write!(self.out, "\\{sign}{{{name}}}");
        Ok(true)
    }

    /// Behind a `\`: one character in escaped form.
    fn escaped_char(&mut self, start: usize) -> Result<char, PatternError> {
        let what = "invalid escape sequence";
        let Some(c) = self.next() else {
            return Err(syntax("trailing backslash at end of expression", ""));
        };
        let value = match c {
            'a' => '\x07',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            'x' => return self.hex(start),
            '0'..='7' => {
                let followed = matches!(self.peek(), Some('0'..='7'));
                if c != '0' && !followed {
                    return Err(syntax(what, self.since(start)));
                }
                let mut value = u32::from(c) - u32::from('0');
                for _ in 0..2 {
                    let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                        break;
                    };
                    self.at += 1;
                    value = value * 8 + digit;
                }
                char::from_u32(value).ok_or_else(|| syntax(what, self.since(start)))?
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            _ => return Err(syntax(what, self.since(start))),
        };
        Ok(value)
    }

    /// Behind `\x`: two hex digits, or any number of them in braces.
    fn hex(&mut self, start: usize) -> Result<char, PatternError> {
        let braces = self.eat("{");
        let rest = self.rest();
        let digits = if braces {
            rest.split_once('}').map_or("", |(digits, _)| digits)
        } else {
            let end = rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at);
            rest.get(..end).unwrap_or_default()
        };
        self.at += digits.len();
        let valid = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let valid = valid && (braces || digits.len() == 2);
        let value = valid
            .then(|| u32::from_str_radix(digits, 16).ok())
            .flatten()
            .and_then(char::from_u32)
            .ok_or_else(|| syntax("invalid escape sequence", self.since(start)))?;
        self.at += usize::from(braces);
        Ok(value)
    }

    /// Behind a `[` at `start`.
    fn class(&mut self, start: usize) -> Result<(), PatternError> {
        self.out.push('[');
        if self.eat("^") {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            if !first && self.eat("]") {
                break;
            }
            if self.peek().is_none() {
                let part = self.text.get(start..).unwrap_or_default();
                return Err(syntax("missing closing ]", part));
            }
            first = false;
            self.class_item(start)?;
        }
        self.out.push(']');
        self.last = Last::Item;
        Ok(())
    }

    fn class_item(&mut self, class_start: usize) -> Result<(), PatternError> {
        let start = self.at;
        if self.rest().starts_with("[:")
            && let Some((name, _)) = self.rest().get(2..).unwrap_or_default().split_once(":]")
        {
            self.at += name.len() + 4;
            if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
                return Err(syntax("invalid character class range", self.since(start)));
            }
            self.out.push_str(self.since(start));
            return Ok(());
        }
        if self.eat("\\") {
            if self.perl_class() || self.unicode_class(start)? {
                return Ok(());
            }
            self.at = start;
        }
        let low = self.class_char(class_start)?;
        push_literal(&mut self.out, low);
        let rest = self.rest();
        if rest.starts_with('-') && !rest.starts_with("-]") && rest.len() > 1 {
            self.at += 1;
            let high = self.class_char(class_start)?;
            if high < low {
                return Err(syntax("invalid character class range", self.since(start)));
            }
            self.out.push('-');
            push_literal(&mut self.out, high);
        }
        Ok(())
    }

    fn class_char(&mut self, class_start: usize) -> Result<char, PatternError> {
        let start = self.at;
        match self.next() {
            Some('\\') => self.escaped_char(start),
            Some(c) => Ok(c),
            None => {
                let part = self.text.get(class_start..).unwrap_or_default();
                Err(syntax("missing closing ]", part))
            }
        }
    }
}

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Writes a character that stands for itself, so that none of the engine's operators can arise
/// from it in or out of a class.
fn push_literal(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\x{{{:X}}}", u32::from(c));
    } else {
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn agrees_with_go() {
        let table = include_str!("../tests/data/patterns.tsv");
        let mut rows = 0;
        for line in table.lines() {
            let cells: Vec<String> =
                line.split('\t').map(|cell| cell.replace("\\n", "\n").replace("\\\\", "\\")).collect();
            let (pattern, text, want) = (&cells[0], &cells[1], &cells[2]);
            let got = match Pattern::new(pattern) {
                Ok(p) => p.is_match(text).to_string(),
                Err(error) => error.to_string(),
            };
            assert_eq!(&got, want, "{pattern:?} on {text:?}");
            rows += 1;
        }
        assert!(rows > 100, "table is cut: {rows} rows");
    }

    #[test]
    fn limits_refuse() {
        assert_eq!(
            Pattern::new(&"a".repeat(MAX_PATTERN_BYTES + 1)).unwrap_err(),
            PatternError::TooLong(MAX_PATTERN_BYTES + 1)
        );
        assert!(matches!(Pattern::new("(\\pL{500}){500}"), Err(PatternError::TooLarge)));
        assert!(Pattern::new(&"(".repeat(5000)).is_err());
        let deep = format!("{}a{}", "(".repeat(190), ")".repeat(190));
        assert!(Pattern::new(&deep).unwrap().is_match("a"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            let _ = Pattern::new(&text);
        }

        #[test]
        fn near_patterns_never_panic(text in r"([\[\](){}*+?|^$.\\a-c0-9:=<>P,&~-]|\\[pPdwQEx]){0,16}") {
            if let Ok(pattern) = Pattern::new(&text) {
                let _ = pattern.is_match("abc");
            }
        }

        #[test]
        fn a_quoted_text_finds_itself(text in "[^\\\\]{0,12}") {
            let pattern = Pattern::new(&format!("^\\Q{text}\\E$")).unwrap();
            prop_assert!(pattern.is_match(&text));
        }
    }
}
