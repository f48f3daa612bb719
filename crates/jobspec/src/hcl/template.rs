//! Strings: quoted, heredoc, and the bare texts of JSON; interpolations, directives, strip markers.

use std::sync::Arc;

use super::ast::{Expr, ExprKind, Ident, Part};
use super::native::{Parser, Step, is_ident_continue, is_ident_start};
use crate::diag::Span;

/// A template before its directives are matched up.
enum Token {
    Literal(String),
    Interpolation(Expr),
    If(Expr, Span),
    Else(Span),
    EndIf(Span),
    For(Option<Ident>, Ident, Expr, Span),
    EndFor(Span),
}

/// Where a template ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// At a closing quote; backslash escapes count.
    Quote,
    /// At this byte.
    Byte(usize),
}

/// The tokens of one template, with the state of strip markers.
#[derive(Default)]
struct Tokens {
    list: Vec<Token>,
    /// The next literal loses its leading blanks.
    strip_next: bool,
}

impl Tokens {
    fn literal(&mut self, text: &mut String) {
        if text.is_empty() {
            return;
        }
        let mut text = std::mem::take(text);
        if std::mem::take(&mut self.strip_next) {
            text = text.trim_start().to_owned();
        }
        self.list.push(Token::Literal(text));
    }

    fn strip_last(&mut self) {
        if let Some(Token::Literal(text)) = self.list.last_mut() {
            text.truncate(text.trim_end().len());
        }
    }

    fn push(&mut self, token: Token, strip_next: bool) {
        self.strip_next = strip_next;
        self.list.push(token);
    }
}

impl Parser<'_> {
    /// `"…"`
    pub(super) fn quoted_template(&mut self) -> Step<Expr> {
        let start = self.pos;
        self.pos += 1;
        let tokens = self.template_tokens(start, Until::Quote)?;
        self.template_expr(tokens, start)
    }

    /// The text of a JSON string.
    pub(super) fn bare_template(&mut self) -> Step<Expr> {
        let tokens = self.template_tokens(0, Until::Byte(self.text.len()))?;
        self.template_expr(tokens, 0)
    }

    /// `<<EOT` and `<<-EOT`
    pub(super) fn heredoc(&mut self) -> Step<Expr> {
        let start = self.pos;
        self.pos += 2;
        let flush = self.eat("-");
        let Some(marker) = self.ident() else {
            let span = self.token_span();
            return self.fail(
                span,
                "Invalid heredoc",
                "A heredoc needs a marker, like \"<<EOT\", alone at the end of the line.",
            );
        };
        self.eat("\r");
        if !self.eat("\n") {
            let span = self.token_span();
            return self.fail(span, "Invalid heredoc", "The marker of a heredoc must be the last thing on its line.");
        }
        let first = self.pos;
        let Some((end, after)) = self.heredoc_end(first, &marker.name) else {
            let end = Span::new(self.text.len(), self.text.len());
            self.pos = self.text.len();
            return self.fail(end, "Unterminated template string", "No closing marker was found for the string.");
        };
        let brackets = self.brackets;
        let mut tokens = self.template_tokens(start, Until::Byte(end)).inspect_err(|_| {
            // What follows is text: one fault in it is not to make others.
            self.pos = after;
            self.brackets = brackets;
        })?;
        if flush {
            unindent(&mut tokens);
        }
        self.pos = after;
        self.template_expr(tokens, start)
    }

    /// Where the content of a heredoc ends, and the place behind its closing marker.
    fn heredoc_end(&self, first: usize, marker: &str) -> Option<(usize, usize)> {
        let mut line_start = first;
        loop {
            let rest = self.text.get(line_start..)?;
            let len = rest.find('\n').unwrap_or(rest.len());
            let line = rest.get(..len)?;
            let trimmed = line.trim_start_matches([' ', '\t']);
            if trimmed.trim_end_matches(['\r', ' ', '\t']) == marker {
                let at = line_start + (line.len() - trimmed.len());
                return Some((line_start, at + marker.len()));
            }
            if len == rest.len() {
                return None;
            }
            line_start += len + 1;
        }
    }

    fn template_tokens(&mut self, start: usize, until: Until) -> Step<Vec<Token>> {
        let mut tokens = Tokens::default();
        let mut literal = String::new();
        loop {
            if let Until::Byte(end) = until
                && self.pos >= end
            {
                break;
            }
            let Some(c) = self.peek() else { return self.unclosed_string(start) };
            match c {
                '"' if until == Until::Quote => {
                    self.pos += 1;
                    break;
                }
                '\n' if until == Until::Quote => return self.unclosed_string(start),
                '\\' if until == Until::Quote => literal.push(self.escape()?),
                '$' | '%' if self.options.lenient => {
                    self.pos += 1;
                    literal.push(c);
                }
                '$' | '%' if self.peek_at(1) == Some(c) && self.peek_at(2) == Some('{') => {
                    self.pos += 3;
                    literal.push(c);
                    literal.push('{');
                }
                '$' | '%' if self.peek_at(1) == Some('{') => {
                    tokens.literal(&mut literal);
                    self.sequence(&mut tokens, c)?;
                }
                _ => {
                    self.pos += c.len_utf8();
                    literal.push(c);
                    // Strip markers and indentation work line by line.
                    if c == '\n' {
                        tokens.literal(&mut literal);
                    }
                }
            }
        }
        tokens.literal(&mut literal);
        Ok(tokens.list)
    }

    /// `${ … }` or `%{ … }`
    fn sequence(&mut self, tokens: &mut Tokens, kind: char) -> Step<()> {
        let start = self.pos;
        self.pos += 2;
        self.brackets += 1;
        let blank = std::mem::replace(&mut self.newlines_blank, true);
        if self.eat("~") {
            tokens.strip_last();
        }
        self.blanks()?;
        let token = if kind == '$' { Token::Interpolation(self.expression()?) } else { self.directive(start)? };
        self.blanks()?;
        let strip = self.eat("~");
        if !self.eat("}") {
            let span = self.token_span();
            let what = if kind == '$' { "template interpolation" } else { "template directive" };
            return self.fail(
                span,
                "Extra characters after interpolation expression",
                format!(
                    "Expected a closing brace to end the {what}, but found extra characters. To write \"{kind}{{\" as \
                     it stands, double the \"{kind}\": \"{kind}{kind}{{\"."
                ),
            );
        }
        self.brackets = self.brackets.saturating_sub(1);
        self.newlines_blank = blank;
        tokens.push(token, strip);
        Ok(())
    }

    fn directive(&mut self, start: usize) -> Step<Token> {
        let Some(keyword) = self.ident() else {
            let span = self.token_span();
            return self.fail(
                span,
                "Invalid template directive",
                "A template directive keyword (\"if\", \"for\", etc) is expected at the beginning of a %{ sequence.",
            );
        };
        let span = Span::new(start, self.pos);
        match &*keyword.name {
            "if" => Ok(Token::If(self.expression()?, span)),
            "else" => Ok(Token::Else(span)),
            "endif" => Ok(Token::EndIf(span)),
            "for" => {
                let (key, value, collection) = self.for_intro()?;
                Ok(Token::For(key, value, collection, span))
            }
            "endfor" => Ok(Token::EndFor(span)),
            other => {
                let detail =
                    format!("{other:?} is not a valid template control keyword; use if, else, endif, for, endfor.");
                self.fail(keyword.span, "Invalid template control keyword", detail)
            }
        }
    }

    fn template_expr(&mut self, tokens: Vec<Token>, start: usize) -> Step<Expr> {
        let mut input = tokens.into_iter().peekable();
        let parts = self.parts(&mut input, None)?;
        let span = self.span_from(start);
        let tallest = tallest(&parts);
        let mut parts = parts;
        if parts.iter().all(|p| matches!(p, Part::Literal(_))) {
            let text: String = parts
                .iter()
                .map(|p| match p {
                    Part::Literal(text) => &**text,
                    _ => "",
                })
                .collect();
            return self.node(ExprKind::String(text.into()), span, 0);
        }
        if parts.len() == 1 {
            match parts.pop() {
                Some(Part::Interpolation(expr)) => return self.node(ExprKind::Wrapped(expr), span, tallest),
                other => parts.extend(other),
            }
        }
        self.node(ExprKind::Template(parts), span, tallest)
    }

    /// Parts up to the directive that ends `open`.
    fn parts(
        &mut self,
        input: &mut std::iter::Peekable<std::vec::IntoIter<Token>>,
        open: Option<(&str, Span)>,
    ) -> Step<Vec<Part>> {
        let mut parts = Vec::new();
        loop {
            match input.peek() {
                None => {
                    return match open {
                        None => Ok(parts),
                        Some((end, span)) => self.fail(
                            span,
                            "Unexpected end of template",
                            format!("This template directive has no corresponding \"%{{ {end} }}\"."),
                        ),
                    };
                }
                Some(Token::Else(_) | Token::EndIf(_) | Token::EndFor(_)) if open.is_some() => return Ok(parts),
                Some(_) => {}
            }
            match input.next() {
                None => return Ok(parts),
                Some(Token::Literal(text)) => {
                    if !text.is_empty() {
                        parts.push(Part::Literal(Arc::from(text)));
                    }
                }
                Some(Token::Interpolation(expr)) => parts.push(Part::Interpolation(expr)),
                Some(Token::If(condition, span)) => parts.push(self.if_part(input, condition, span)?),
                Some(Token::For(key, value, collection, span)) => {
                    self.enter()?;
                    let body = self.parts(input, Some(("endfor", span)))?;
                    self.leave();
                    match input.next() {
                        Some(Token::EndFor(_)) => parts.push(Part::For { key, value, collection, body }),
                        other => return self.mismatch(other, span, "endfor"),
                    }
                }
                Some(token @ (Token::Else(_) | Token::EndIf(_) | Token::EndFor(_))) => {
                    return self.mismatch(Some(token), Span::default(), "");
                }
            }
        }
    }

    fn if_part(
        &mut self,
        input: &mut std::iter::Peekable<std::vec::IntoIter<Token>>,
        condition: Expr,
        span: Span,
    ) -> Step<Part> {
        self.enter()?;
        let then = self.parts(input, Some(("endif", span)))?;
        let mut otherwise = Vec::new();
        if matches!(input.peek(), Some(Token::Else(_))) {
            input.next();
            otherwise = self.parts(input, Some(("endif", span)))?;
        }
        self.leave();
        match input.next() {
            Some(Token::EndIf(_)) => Ok(Part::If { condition, then, otherwise }),
            other => self.mismatch(other, span, "endif"),
        }
    }

    fn mismatch<T>(&mut self, found: Option<Token>, open: Span, wanted: &str) -> Step<T> {
        let (span, word) = match found {
            Some(Token::Else(span)) => (span, "else"),
            Some(Token::EndIf(span)) => (span, "endif"),
            Some(Token::EndFor(span)) => (span, "endfor"),
            _ => (open, "end of the template"),
        };
        let detail = if wanted.is_empty() {
            format!("There is no directive open that {word:?} could belong to.")
        } else {
            format!("Expecting {wanted:?}, but found {word:?}.")
        };
        self.fail(span, "Unexpected template directive", detail)
    }
}

fn tallest(parts: &[Part]) -> u16 {
    parts
        .iter()
        .map(|part| match part {
            Part::Literal(_) => 0,
            Part::Interpolation(expr) => expr.height,
            Part::If { condition, then, otherwise } => {
                condition.height.max(tallest(then)).max(tallest(otherwise)).saturating_add(1)
            }
            Part::For { collection, body, .. } => collection.height.max(tallest(body)).saturating_add(1),
        })
        .max()
        .unwrap_or(0)
}

/// Removes the indentation that all lines of a `<<-` heredoc share; blank lines do not count.
fn unindent(tokens: &mut [Token]) {
    let mut at_line_start = true;
    let mut indented = Vec::new();
    let mut shared = usize::MAX;
    for (i, token) in tokens.iter().enumerate() {
        let text = match token {
            Token::Literal(text) => text.as_str(),
            _ => "",
        };
        if std::mem::take(&mut at_line_start) {
            let body = text.trim_start();
            if !(body.is_empty() && text.ends_with('\n')) {
                shared = shared.min(text.chars().count() - body.chars().count());
                indented.push(i);
            }
        }
        at_line_start = text.ends_with('\n');
    }
    for i in indented {
        if let Some(Token::Literal(text)) = tokens.get_mut(i) {
            *text = text.chars().skip(shared).collect();
        }
    }
}

/// Whether a text may be written as a bare name.
pub(crate) fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(is_ident_start) && chars.all(is_ident_continue)
}
