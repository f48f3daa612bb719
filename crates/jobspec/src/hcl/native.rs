//! Bodies of the native syntax: arguments and blocks. Reads characters directly, since strings hold expressions that
//! hold strings.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ast::{Attribute, Block, Body, BodyKind, Ident};
use super::{MAX_NESTING, Options};
use crate::diag::{Diagnostic, Diagnostics, Source, Span};

/// The fault is in the list already; the caller only has to find a place to go on.
pub(super) struct Failed;

/// A parse step that may have failed.
pub(super) type Step<T> = Result<T, Failed>;

/// Reads one text.
pub(super) struct Parser<'a> {
    pub(super) source: &'a Arc<Source>,
    pub(super) text: &'a str,
    pub(super) pos: usize,
    pub(super) options: Options,
    /// Newlines are blanks: inside brackets.
    pub(super) newlines_blank: bool,
    /// Brackets of the expression being read; where recovery starts counting.
    pub(super) brackets: usize,
    pub(super) depth: usize,
    /// A JSON string's template: every message points at the whole string.
    pub(super) fixed_span: Option<Span>,
    diagnostics: Diagnostics,
    at_end_failed: bool,
}

/// The items of a body being read.
#[derive(Default)]
struct Items {
    attributes: Vec<Attribute>,
    blocks: Vec<Block>,
    /// Where each argument was set first.
    first: BTreeMap<Arc<str>, Span>,
}

impl Items {
    fn body(self, missing: Span) -> Body {
        Body { kind: BodyKind::Native { attributes: self.attributes, blocks: self.blocks }, missing }
    }
}

impl<'a> Parser<'a> {
    pub(super) fn new(source: &'a Arc<Source>, options: Options) -> Self {
        Self::over(source, source.text(), options)
    }

    pub(super) fn over(source: &'a Arc<Source>, text: &'a str, options: Options) -> Self {
        let pos = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        Self {
            source,
            text,
            pos,
            options,
            newlines_blank: false,
            brackets: 0,
            depth: 0,
            fixed_span: None,
            diagnostics: Diagnostics::default(),
            at_end_failed: false,
        }
    }

    pub(super) fn finish(mut self) -> Diagnostics {
        self.diagnostics.sort();
        self.diagnostics
    }

    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or("")
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn peek_at(&self, bytes: usize) -> Option<char> {
        self.rest().get(bytes..).and_then(|r| r.chars().next())
    }

    pub(super) fn looking_at(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        Some(c)
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = self.looking_at(text);
        if found {
            self.pos += text.len();
        }
        found
    }

    pub(super) fn span_from(&self, start: usize) -> Span {
        self.fixed_span.unwrap_or(Span::new(start, self.pos))
    }

    pub(super) fn span(&self, start: usize, end: usize) -> Span {
        self.fixed_span.unwrap_or(Span::new(start, end))
    }

    pub(super) fn fail<T>(&mut self, span: Span, summary: &str, detail: impl Into<String>) -> Step<T> {
        let at_end = span.start >= self.text.len();
        if !(at_end && self.at_end_failed) {
            self.diagnostics.push(Diagnostic::error(self.source, self.fixed_span.unwrap_or(span), summary, detail));
        }
        self.at_end_failed |= at_end;
        Err(Failed)
    }

    /// Span of the token that starts here, for messages about it; a newline reaches to the start of the next line.
    pub(super) fn token_span(&self) -> Span {
        let start = self.pos;
        let mut chars = self.rest().char_indices();
        let len = match chars.next() {
            None => 0,
            Some((_, c)) if is_ident_start(c) => {
                chars.find(|(_, c)| !is_ident_continue(*c)).map_or(self.rest().len(), |(i, _)| i)
            }
            Some((_, '\r')) if self.looking_at("\r\n") => 2,
            Some((_, c)) => c.len_utf8(),
        };
        Span::new(start, start + len)
    }

    /// Skips blanks and comments; newlines too where they are blanks.
    pub(super) fn blanks(&mut self) -> Step<()> {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.pos += 1,
                Some('\r') if self.newlines_blank => self.pos += 1,
                Some('\n') if self.newlines_blank => self.pos += 1,
                Some('#') if self.newlines_blank => self.line_comment(),
                Some('/') if self.looking_at("//") && self.newlines_blank => self.line_comment(),
                Some('/') if self.looking_at("/*") => self.block_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn line_comment(&mut self) {
        self.pos += self.rest().find('\n').unwrap_or(self.rest().len());
    }

    fn block_comment(&mut self) -> Step<()> {
        let start = self.pos;
        match self.rest().find("*/") {
            Some(at) => {
                self.pos += at + 2;
                Ok(())
            }
            None => {
                self.pos = self.text.len();
                self.fail(Span::new(start, start + 2), "Unterminated comment", "This comment has no closing \"*/\".")
            }
        }
    }

    /// Whether a newline, a line comment or the end comes next, where newlines end things.
    pub(super) fn at_line_end(&self) -> bool {
        matches!(self.peek(), None | Some('\n' | '#')) || self.looking_at("\r\n") || self.looking_at("//")
    }

    /// Skips blanks, comments and newlines.
    pub(super) fn all_blanks(&mut self) -> Step<()> {
        let before = std::mem::replace(&mut self.newlines_blank, true);
        let result = self.blanks();
        self.newlines_blank = before;
        result
    }

    pub(super) fn ident(&mut self) -> Option<Ident> {
        let span = self.token_span();
        if !self.peek().is_some_and(is_ident_start) {
            return None;
        }
        let name = self.text.get(span.start..span.end)?;
        self.pos = span.end;
        Some(Ident { name: name.into(), span: self.fixed_span.unwrap_or(span) })
    }

    pub(super) fn enter(&mut self) -> Step<()> {
        if self.depth >= MAX_NESTING {
            let span = self.token_span();
            return self.fail(span, "Nesting too deep", format!("At most {MAX_NESTING} levels may be nested."));
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    pub(super) fn file(&mut self) -> Body {
        let mut items = Items::default();
        loop {
            // A stray closing brace is reported as an item and skipped.
            let _ = self.items(&mut items);
            match self.peek() {
                None => break,
                Some(_) => {
                    let span = self.token_span();
                    let _: Step<()> = self.item_expected(span);
                    self.pos = span.end.max(self.pos + 1);
                }
            }
        }
        items.body(Span::new(self.text.len(), self.text.len()))
    }

    fn item_expected<T>(&mut self, span: Span) -> Step<T> {
        if self.looking_at("'") {
            return self.single_quote(span);
        }
        self.fail(span, "Argument or block definition required", "An argument or block definition is required here.")
    }

    pub(super) fn single_quote<T>(&mut self, span: Span) -> Step<T> {
        self.fail(span, "Invalid character", "Single quotes are not valid. Use double quotes (\") to enclose strings.")
    }

    /// Items up to a closing brace or the end.
    fn items(&mut self, items: &mut Items) -> Step<()> {
        loop {
            self.all_blanks()?;
            match self.peek() {
                None | Some('}') => return Ok(()),
                Some(_) => {
                    self.brackets = 0;
                    if self.item(items).is_err() {
                        self.recover();
                    }
                }
            }
        }
    }

    /// Goes to the end of the faulty item: the next newline outside of brackets.
    fn recover(&mut self) {
        self.newlines_blank = false;
        let mut depth = std::mem::take(&mut self.brackets);
        while let Some(c) = self.peek() {
            match c {
                '\n' if depth == 0 => return,
                '}' if depth == 0 => return,
                '{' | '[' | '(' => depth += 1,
                '}' | ']' | ')' => depth = depth.saturating_sub(1),
                '"' => {
                    self.pos += 1;
                    self.skip_string();
                    continue;
                }
                _ => {}
            }
            self.bump();
        }
    }

    fn skip_string(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                '\n' => return,
                '\\' => {
                    self.bump();
                    if self.peek() != Some('\n') {
                        self.bump();
                    }
                    continue;
                }
                '"' => {
                    self.pos += 1;
                    return;
                }
                _ => {}
            }
            self.bump();
        }
    }

    fn item(&mut self, items: &mut Items) -> Step<()> {
        let start = self.pos;
        let name = match self.ident() {
            Some(name) => name,
            None if self.looking_at("\"") => self.quoted_name(start)?,
            None => {
                let span = self.token_span();
                self.item_expected::<()>(span)?;
                return Ok(());
            }
        };
        self.blanks()?;
        match self.peek() {
            Some('=') if self.peek_at(1) != Some('=') => {
                let attribute = self.attribute(name)?;
                self.end_of_argument()?;
                self.keep(items, attribute);
                Ok(())
            }
            Some('{' | '"') => self.block_item(name, &mut items.blocks),
            Some(c) if is_ident_start(c) => self.block_item(name, &mut items.blocks),
            Some('\'') => {
                let span = self.token_span();
                self.single_quote(span)
            }
            _ => {
                let span = self.token_span();
                self.fail(
                    span,
                    "Invalid block definition",
                    "Either a quoted string block label, an opening brace (\"{\") or an equals sign is expected here.",
                )
            }
        }
    }

    fn keep(&mut self, items: &mut Items, attribute: Attribute) {
        if let Some(first) = items.first.get(&attribute.name.name) {
            let at = self.source.position(first.start);
            let end = self.source.position(first.end);
            let detail = format!(
                "The argument \"{}\" was already set at {}:{},{}-{}. Each argument may be set only once.",
                attribute.name.name,
                self.source.name(),
                at.line,
                at.column,
                end.column
            );
            let _: Step<()> = self.fail(attribute.name.span, "Attribute redefined", detail);
        } else {
            items.first.insert(Arc::clone(&attribute.name.name), attribute.name.span);
            items.attributes.push(attribute);
        }
    }

    fn quoted_name(&mut self, start: usize) -> Step<Ident> {
        if !self.options.lenient {
            return self.fail(
                Span::new(start, start + 1),
                "Invalid argument name",
                "Argument names must not be quoted.",
            );
        }
        self.pos += 1;
        let label = self.label_text(start)?;
        Ok(Ident { name: label.into(), span: Span::new(start, self.pos) })
    }

    /// After `name`: `= value`.
    fn attribute(&mut self, name: Ident) -> Step<Attribute> {
        self.pos += 1;
        let expr = self.expression()?;
        let span = Span::new(name.span.start, self.pos);
        Ok(Attribute { name, expr, span })
    }

    /// Old configuration files put several items on one line, with commas or without.
    fn may_share_line(&mut self) -> bool {
        if self.options.lenient {
            self.eat(",");
        }
        self.options.lenient
    }

    fn end_of_argument(&mut self) -> Step<()> {
        self.blanks()?;
        if self.at_line_end() || self.may_share_line() {
            return Ok(());
        }
        let span = self.token_span();
        match self.peek() {
            Some(',') => self.fail(
                span,
                "Unexpected comma after argument",
                "Argument definitions must be separated by newlines, not commas. An argument definition must end \
                 with a newline.",
            ),
            _ => self.fail(span, "Missing newline after argument", "An argument definition must end with a newline."),
        }
    }

    fn block_item(&mut self, kind: Ident, blocks: &mut Vec<Block>) -> Step<()> {
        let block = self.block(kind)?;
        self.blanks()?;
        blocks.push(block);
        if self.at_line_end() || self.may_share_line() {
            return Ok(());
        }
        let span = self.token_span();
        self.fail(span, "Missing newline after block definition", "A block definition must end with a newline.")
    }

    fn block(&mut self, kind: Ident) -> Step<Block> {
        let mut labels = Vec::new();
        let mut header = kind.span;
        loop {
            self.blanks()?;
            let start = self.pos;
            match self.peek() {
                Some('{') => break,
                Some('"') => {
                    self.pos += 1;
                    let name = self.label_text(start)?;
                    labels.push(Ident { name: name.into(), span: Span::new(start, self.pos) });
                }
                Some(c) if is_ident_start(c) => labels.extend(self.ident()),
                Some('\'') => {
                    let span = self.token_span();
                    return self.single_quote(span);
                }
                _ => {
                    let span = self.token_span();
                    return self.fail(
                        span,
                        "Invalid block definition",
                        "A block definition must have block content delimited by \"{\" and \"}\", starting on the \
                         same line as the block header.",
                    );
                }
            }
            header = header.to(Span::new(start, self.pos));
        }
        let open = Span::new(self.pos, self.pos + 1);
        self.enter()?;
        let body = self.block_body(open);
        self.leave();
        let span = Span::new(kind.span.start, self.pos);
        Ok(Block { kind, labels, body: body?, header, open, span })
    }

    fn block_body(&mut self, open: Span) -> Step<Body> {
        self.pos += 1;
        self.blanks()?;
        let mut items = Items::default();
        let mut missing = open;
        if !self.options.lenient && !self.at_line_end() && !self.looking_at("}") {
            missing = Span::new(self.pos, self.pos);
            items.attributes.push(self.single_argument()?);
        } else {
            self.items(&mut items)?;
        }
        if self.eat("}") {
            return Ok(items.body(missing));
        }
        // A fault inside may have swallowed the closing brace.
        let inside = self.diagnostics.iter().any(|d| d.at.as_ref().is_some_and(|(_, span)| span.start > open.start));
        if std::mem::replace(&mut self.at_end_failed, true) || inside {
            return Err(Failed);
        }
        self.diagnostics.push(Diagnostic::error(
            self.source,
            open,
            "Unclosed configuration block",
            "There is no closing brace for this block before the end of the file. This may be caused by incorrect \
             brace nesting elsewhere in this file.",
        ));
        Err(Failed)
    }

    /// `{ name = value }` on one line.
    fn single_argument(&mut self) -> Step<Attribute> {
        // Recovery then ends behind the brace of this block.
        self.brackets += 1;
        let start = self.pos;
        let name = match self.ident() {
            Some(name) => name,
            None if self.looking_at("\"") => self.quoted_name(start)?,
            None => {
                let span = self.token_span();
                return self.item_expected(span);
            }
        };
        self.blanks()?;
        if !self.looking_at("=") || self.looking_at("==") {
            let span = self.token_span();
            return self.fail(
                span,
                "Invalid single-argument block definition",
                format!(
                    "A single-line block definition can contain only a single argument. If you meant to define \
                     argument \"{}\", use an equals sign to assign it a value. To define a nested block, place it on \
                     a line of its own within its parent block.",
                    name.name
                ),
            );
        }
        let attribute = self.attribute(name)?;
        self.blanks()?;
        if !self.looking_at("}") {
            let span = self.token_span();
            return self.fail(
                span,
                "Invalid single-argument block definition",
                "A single-line block definition must end with a closing brace immediately after its single argument \
                 definition.",
            );
        }
        self.brackets -= 1;
        Ok(attribute)
    }

    /// The text of a quoted label, behind its opening quote: escapes, but no templates.
    fn label_text(&mut self, start: usize) -> Step<String> {
        let mut out = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return self.unclosed_string(start),
                Some('"') => {
                    self.pos += 1;
                    return Ok(out);
                }
                Some('\\') => out.push(self.escape()?),
                Some('$' | '%') if self.template_starts() && !self.options.lenient => {
                    let span = Span::new(self.pos, self.pos + 2);
                    return self.fail(
                        span,
                        "Invalid string literal",
                        "Template sequences are not allowed in this string. To include a literal \"$\", double it \
                         (as \"$$\") to escape it.",
                    );
                }
                Some(c) => {
                    self.pos += c.len_utf8();
                    out.push(c);
                }
            }
        }
    }

    pub(super) fn template_starts(&self) -> bool {
        self.looking_at("${") || self.looking_at("%{")
    }

    pub(super) fn unclosed_string<T>(&mut self, start: usize) -> Step<T> {
        if self.peek().is_none() {
            return self.fail(
                Span::new(start, start + 1),
                "Unterminated template string",
                "No closing marker was found for the string.",
            );
        }
        let span = self.token_span();
        self.fail(
            span,
            "Invalid multi-line string",
            "Quoted strings may not be split over multiple lines. To produce a multi-line string, either use the \\n \
             escape to represent a newline character or use the \"heredoc\" multi-line template syntax.",
        )
    }

    /// A backslash escape.
    pub(super) fn escape(&mut self) -> Step<char> {
        let start = self.pos;
        self.pos += 1;
        let selector = self.peek();
        let digits = match selector {
            Some('u') => 4,
            Some('U') => 8,
            _ => 0,
        };
        let plain = match selector {
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some('"') => Some('"'),
            Some('\\') => Some('\\'),
            _ => None,
        };
        if let Some(c) = plain {
            self.pos += 1;
            return Ok(c);
        }
        if digits > 0 {
            let hex = self.rest().get(1..=digits).unwrap_or("");
            let value =
                if hex.bytes().all(|b| b.is_ascii_hexdigit()) { u32::from_str_radix(hex, 16).ok() } else { None };
            if let Some(c) = value.and_then(char::from_u32) {
                self.pos += 1 + digits;
                return Ok(c);
            }
            let span = Span::new(start, start + 2);
            return self.fail(
                span,
                "Invalid escape sequence",
                format!(
                    "The \\{} escape must be followed by {digits} hexadecimal digits of a character.",
                    selector.unwrap_or('u')
                ),
            );
        }
        let end = self.pos + selector.map_or(0, char::len_utf8);
        let detail = match selector {
            Some(c) => format!("The symbol {:?} is not a valid escape sequence selector.", c.to_string()),
            None => "A backslash must be followed by an escape sequence selector.".to_owned(),
        };
        self.fail(Span::new(start, end), "Invalid escape sequence", detail)
    }
}

/// Whether a name may begin with the character.
pub(crate) fn is_ident_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Whether a name may go on with the character.
pub(crate) fn is_ident_continue(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}
