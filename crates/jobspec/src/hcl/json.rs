//! The JSON syntax: our own reader, since every value must know where it stands and repeated names must be kept.

use std::sync::Arc;

use super::ast::{Body, BodyKind, Expr, ExprKind, Ident, Json, JsonKind, ObjectKey, Property};
use super::native::{Failed, Parser, Step};
use super::{MAX_NESTING, Options};
use crate::diag::{Diagnostic, Diagnostics, Source, Span};
use crate::number::Number;

struct Reader<'a> {
    source: &'a Arc<Source>,
    text: &'a str,
    pos: usize,
    depth: usize,
    diagnostics: Diagnostics,
}

/// Parses a JSON document as a body.
pub(super) fn parse(source: &Arc<Source>) -> Result<Body, Diagnostics> {
    let mut reader = Reader { source, text: source.text(), pos: 0, depth: 0, diagnostics: Diagnostics::default() };
    let value = reader.document();
    match value {
        Ok(Json { kind: JsonKind::Object(properties), span }) => {
            Ok(Body { kind: BodyKind::Json(properties), missing: span.head() })
        }
        Ok(other) => {
            reader.diagnostics.push(Diagnostic::error(
                source,
                other.span,
                "Root value must be object",
                "The root value in a JSON-based configuration must be a JSON object.",
            ));
            Err(reader.diagnostics)
        }
        Err(Failed) => Err(reader.diagnostics),
    }
}

/// See [`super::read_json`].
pub(super) fn read(text: &str) -> Result<Json, (usize, String)> {
    let source = Source::new("", text);
    let mut reader = Reader { source: &source, text, pos: 0, depth: 0, diagnostics: Diagnostics::default() };
    reader.document().map_err(|Failed| {
        let first = reader.diagnostics.iter().next();
        let at = first.and_then(|d| d.at.as_ref()).map_or(text.len(), |(_, span)| span.start);
        (at, first.map(|d| d.detail.clone()).unwrap_or_default())
    })
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.pos..).unwrap_or("")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    fn fail<T>(&mut self, span: Span, summary: &str, detail: &str) -> Step<T> {
        self.diagnostics.push(Diagnostic::error(self.source, span, summary, detail));
        Err(Failed)
    }

    fn here(&self) -> Span {
        let len = self.rest().chars().next().map_or(0, char::len_utf8);
        Span::new(self.pos, self.pos + len)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.pos += 1;
        }
    }

    fn document(&mut self) -> Step<Json> {
        let value = self.value()?;
        self.blanks();
        if self.peek().is_some() {
            let span = self.here();
            return self.fail(span, "Extraneous data after value", "Extra characters appear after the JSON value.");
        }
        Ok(value)
    }

    fn value(&mut self) -> Step<Json> {
        self.blanks();
        if self.depth >= MAX_NESTING {
            let span = self.here();
            return self.fail(span, "Nesting too deep", &format!("At most {MAX_NESTING} levels may be nested."));
        }
        self.depth += 1;
        let start = self.pos;
        let result = match self.peek() {
            None => {
                let span = self.here();
                self.fail(span, "Missing value", "The JSON data ends prematurely.")
            }
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string().map(|text| JsonKind::String(text.into())),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => self.word(),
        };
        self.depth -= 1;
        Ok(Json { kind: result?, span: Span::new(start, self.pos) })
    }

    fn word(&mut self) -> Step<JsonKind> {
        let len = self.rest().find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest().len());
        let word = self.rest().get(..len).unwrap_or("");
        let kind = match word {
            "null" => JsonKind::Null,
            "true" => JsonKind::Bool(true),
            "false" => JsonKind::Bool(false),
            _ => {
                let span = Span::new(self.pos, self.pos + len.max(self.here().end - self.pos));
                return self.fail(
                    span,
                    "Invalid JSON value",
                    "A JSON value must be a string, number, object, array, true, false or null.",
                );
            }
        };
        self.pos += len;
        Ok(kind)
    }

    fn number(&mut self) -> Step<JsonKind> {
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let len = self.rest().find(|c| !is_number(c)).unwrap_or(self.rest().len());
        let span = Span::new(self.pos, self.pos + len);
        match self.rest().get(..len).and_then(Number::parse) {
            Some(number) => {
                self.pos += len;
                Ok(JsonKind::Number(number))
            }
            None => self.fail(span, "Invalid JSON number", "This is not a number, or it is too large."),
        }
    }

    fn string(&mut self) -> Step<String> {
        let start = self.pos;
        self.pos += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.rest().chars().next() else {
                return self.fail(
                    Span::new(start, start + 1),
                    "Unterminated string",
                    "This JSON string has no closing quote.",
                );
            };
            match c {
                '"' => {
                    self.pos += 1;
                    return Ok(out);
                }
                '\\' => out.push(self.escape()?),
                '\n' => {
                    return self.fail(
                        Span::new(self.pos, self.pos + 1),
                        "Invalid JSON string",
                        "A JSON string may not contain a line break; write \\n.",
                    );
                }
                _ => {
                    self.pos += c.len_utf8();
                    out.push(c);
                }
            }
        }
    }

    fn escape(&mut self) -> Step<char> {
        let start = self.pos;
        let plain = match self.text.as_bytes().get(self.pos + 1) {
            Some(b'"') => Some('"'),
            Some(b'\\') => Some('\\'),
            Some(b'/') => Some('/'),
            Some(b'b') => Some('\u{8}'),
            Some(b'f') => Some('\u{c}'),
            Some(b'n') => Some('\n'),
            Some(b'r') => Some('\r'),
            Some(b't') => Some('\t'),
            _ => None,
        };
        if let Some(c) = plain {
            self.pos += 2;
            return Ok(c);
        }
        if let Some(first) = self.unicode_unit() {
            if let Some(c) = char::from_u32(first) {
                return Ok(c);
            }
            if (0xd800..0xdc00).contains(&first)
                && let Some(second) = self.unicode_unit()
                && (0xdc00..0xe000).contains(&second)
                && let Some(c) = char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
            {
                return Ok(c);
            }
            return Ok('\u{fffd}');
        }
        self.fail(Span::new(start, start + 1), "Invalid escape sequence", "This is not an escape sequence of JSON.")
    }

    fn unicode_unit(&mut self) -> Option<u32> {
        let hex = self.rest().strip_prefix("\\u")?.get(..4)?;
        if !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let unit = u32::from_str_radix(hex, 16).ok()?;
        self.pos += 6;
        Some(unit)
    }

    fn array(&mut self) -> Step<JsonKind> {
        self.pos += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.peek() == Some(b']') {
            self.pos += 1;
            return Ok(JsonKind::Array(items));
        }
        loop {
            items.push(self.value()?);
            if self.separator(b']', "Missing array element separator")? {
                return Ok(JsonKind::Array(items));
            }
        }
    }

    fn object(&mut self) -> Step<JsonKind> {
        self.pos += 1;
        let mut properties = Vec::new();
        self.blanks();
        if self.peek() == Some(b'}') {
            self.pos += 1;
            return Ok(JsonKind::Object(Arc::new(properties)));
        }
        loop {
            self.blanks();
            let start = self.pos;
            if self.peek() != Some(b'"') {
                let span = self.here();
                if self.peek().is_none() {
                    return self.fail(span, "Missing value", "The JSON data ends prematurely.");
                }
                return self.fail(
                    span,
                    "Invalid object property name",
                    "A JSON object property name must be a quoted string.",
                );
            }
            let name = self.string()?;
            let span = Span::new(start, self.pos);
            self.blanks();
            if self.peek() != Some(b':') {
                let span = self.here();
                return self.fail(
                    span,
                    "Missing property value colon",
                    "A colon must appear between an object property's name and its value.",
                );
            }
            self.pos += 1;
            let value = self.value()?;
            properties.push(Property { name: Ident { name: name.into(), span }, value });
            if self.separator(b'}', "Missing attribute separator")? {
                return Ok(JsonKind::Object(Arc::new(properties)));
            }
        }
    }

    /// A comma, or the end: then true.
    fn separator(&mut self, end: u8, summary: &str) -> Step<bool> {
        self.blanks();
        let found = self.peek();
        if found == Some(end) || found == Some(b',') {
            self.pos += 1;
            return Ok(found == Some(end));
        }
        let span = self.here();
        let detail = if found.is_none() {
            "The JSON data ends prematurely."
        } else {
            "A comma or the closing bracket is expected here."
        };
        self.fail(span, summary, detail)
    }
}

/// See [`super::json_expression`].
pub(super) fn expression(source: &Arc<Source>, value: &Json) -> Result<Expr, Diagnostics> {
    let span = value.span;
    let mut tallest = 0;
    let kind = match &value.kind {
        JsonKind::Null => ExprKind::Null,
        JsonKind::Bool(b) => ExprKind::Bool(*b),
        JsonKind::Number(n) => ExprKind::Number(n.clone()),
        JsonKind::String(text) => return template(source, text, span),
        JsonKind::Array(items) => {
            let items = items.iter().map(|item| expression(source, item)).collect::<Result<Vec<_>, _>>()?;
            tallest = items.iter().map(|e| e.height).max().unwrap_or(0);
            ExprKind::Tuple(items)
        }
        JsonKind::Object(properties) => {
            let mut items = Vec::new();
            for property in properties.iter() {
                let key = template(source, &property.name.name, property.name.span)?;
                let value = expression(source, &property.value)?;
                tallest = tallest.max(key.height).max(value.height);
                items.push((ObjectKey::Expr(key), value));
            }
            ExprKind::Object(items)
        }
    };
    Ok(Expr { kind: Box::new(kind), span, height: tallest + 1 })
}

fn template(source: &Arc<Source>, text: &str, span: Span) -> Result<Expr, Diagnostics> {
    let mut parser = Parser::over(source, text, Options::default());
    parser.fixed_span = Some(span);
    let result = parser.bare_template();
    let diagnostics = parser.finish();
    match result {
        Ok(expr) if !diagnostics.has_errors() => Ok(expr),
        _ => Err(diagnostics),
    }
}
