//! Expressions of the native syntax.

use std::sync::Arc;

use super::ast::{Binary, Call, Expr, ExprKind, For, Ident, ObjectKey, Step as SplatStep, Unary};
use super::native::{Failed, Parser, Step, is_ident_start};
use super::{MAX_EXPRESSION_HEIGHT, Options};
use crate::diag::{Diagnostics, Source, Span};
use crate::number::{MAX_NUMBER_LEN, Number};

/// Parses a text that is one expression, as variables are given on a command line.
pub fn parse_expression(source: &Arc<Source>) -> Result<Expr, Diagnostics> {
    super::check_size(source)?;
    let mut parser = Parser::new(source, Options::default());
    parser.newlines_blank = true;
    let result = parser.whole_expression();
    let diagnostics = parser.finish();
    match result {
        Ok(expr) if !diagnostics.has_errors() => Ok(expr),
        _ => Err(diagnostics),
    }
}

impl Parser<'_> {
    fn whole_expression(&mut self) -> Step<Expr> {
        let expr = self.expression()?;
        self.blanks()?;
        if self.peek().is_some() {
            let span = self.token_span();
            return self.fail(span, "Extra characters after expression", "An expression was already complete here.");
        }
        Ok(expr)
    }

    /// Gives a node its height and refuses one that is too tall.
    pub(super) fn node(&mut self, kind: ExprKind, span: Span, tallest: u16) -> Step<Expr> {
        if tallest >= MAX_EXPRESSION_HEIGHT {
            return self.fail(
                span,
                "Expression too complex",
                format!("An expression may nest or chain at most {MAX_EXPRESSION_HEIGHT} operations."),
            );
        }
        Ok(Expr { kind: Box::new(kind), span: self.fixed_span.unwrap_or(span), height: tallest + 1 })
    }

    pub(super) fn expression(&mut self) -> Step<Expr> {
        self.enter()?;
        let result = self.conditional();
        self.leave();
        result
    }

    fn conditional(&mut self) -> Step<Expr> {
        let condition = self.binary(1)?;
        self.blanks()?;
        if !self.eat("?") {
            return Ok(condition);
        }
        let then = self.expression()?;
        self.blanks()?;
        if !self.eat(":") {
            let span = self.token_span();
            return self.fail(
                span,
                "Missing false expression in conditional",
                "The conditional operator (...?...:...) requires a false expression, delimited by a colon.",
            );
        }
        let otherwise = self.expression()?;
        let span = condition.span.to(otherwise.span);
        let tallest = condition.height.max(then.height).max(otherwise.height);
        self.node(ExprKind::Conditional(condition, then, otherwise), span, tallest)
    }

    fn operator(&self) -> Option<(Binary, u8, usize)> {
        const OPERATORS: [(&str, Binary, u8); 13] = [
            ("||", Binary::Or, 1),
            ("&&", Binary::And, 2),
            ("==", Binary::Eq, 3),
            ("!=", Binary::Ne, 3),
            ("<=", Binary::Le, 4),
            (">=", Binary::Ge, 4),
            ("<", Binary::Lt, 4),
            (">", Binary::Gt, 4),
            ("+", Binary::Add, 5),
            ("-", Binary::Sub, 5),
            ("*", Binary::Mul, 6),
            ("/", Binary::Div, 6),
            ("%", Binary::Rem, 6),
        ];
        if self.looking_at("//") || self.looking_at("/*") {
            return None;
        }
        OPERATORS
            .iter()
            .find(|(text, _, _)| self.looking_at(text))
            .map(|(text, operator, level)| (*operator, *level, text.len()))
    }

    fn binary(&mut self, lowest: u8) -> Step<Expr> {
        let mut left = self.unary()?;
        loop {
            self.blanks()?;
            let Some((operator, level, len)) = self.operator() else { return Ok(left) };
            if level < lowest {
                return Ok(left);
            }
            self.pos += len;
            let right = self.binary(level + 1)?;
            let span = left.span.to(right.span);
            let tallest = left.height.max(right.height);
            left = self.node(ExprKind::Binary(operator, left, right), span, tallest)?;
        }
    }

    fn unary(&mut self) -> Step<Expr> {
        self.blanks()?;
        let start = self.pos;
        let operator = match self.peek() {
            Some('!') if self.peek_at(1) != Some('=') => Unary::Not,
            Some('-') => Unary::Minus,
            _ => return self.postfix(),
        };
        self.pos += 1;
        self.enter()?;
        let operand = self.unary();
        self.leave();
        let operand = operand?;
        let (span, height) = (self.span_from(start), operand.height);
        self.node(ExprKind::Unary(operator, operand), span, height)
    }

    fn postfix(&mut self) -> Step<Expr> {
        let mut expr = self.primary()?;
        loop {
            let end = self.pos;
            self.blanks()?;
            let start = self.pos;
            match self.peek() {
                Some('.') if !self.looking_at("...") => expr = self.dotted(expr, start)?,
                Some('[') => expr = self.bracketed(expr, start)?,
                _ => {
                    self.pos = end;
                    return Ok(expr);
                }
            }
        }
    }

    fn dotted(&mut self, expr: Expr, start: usize) -> Step<Expr> {
        self.pos += 1;
        self.blanks()?;
        let height = expr.height;
        if self.eat("*") {
            let mut steps = Vec::new();
            while self.looking_at(".") && self.peek_at(1).is_some_and(is_ident_start) {
                self.pos += 1;
                steps.extend(self.ident().map(SplatStep::Attr));
            }
            let marker = self.span(start, start + 2);
            let span = expr.span.to(self.span_from(start));
            let height = height.saturating_add(steps.len().min(usize::from(u16::MAX)) as u16);
            return self.node(ExprKind::Splat(expr, steps, marker), span, height);
        }
        if self.peek().is_some_and(|c| c.is_ascii_digit()) {
            return self.legacy_index(expr, start);
        }
        let Some(name) = self.ident() else {
            let span = self.token_span();
            return self.fail(span, "Invalid attribute name", "An attribute name is required after a dot.");
        };
        let step = Ident { name: name.name, span: self.span(start, name.span.end) };
        let span = expr.span.to(step.span);
        self.node(ExprKind::Attr(expr, step), span, height)
    }

    /// `list.0`, and `list.0.1`, whose digits look like one number.
    fn legacy_index(&mut self, expr: Expr, start: usize) -> Step<Expr> {
        let digits = self.rest().find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest().len());
        let text = self.rest().get(..digits).unwrap_or("");
        let at = self.pos;
        let Some(number) = Number::parse(text) else {
            let span = Span::new(at, at + digits);
            return self.fail(span, "Invalid number", "This index is too large.");
        };
        self.pos += digits;
        let key_span = self.span_from(at);
        let key = self.node(ExprKind::Number(number), key_span, 0)?;
        let marker = self.span_from(start);
        let (span, height) = (expr.span.to(marker), expr.height);
        self.node(ExprKind::Index(expr, key, marker), span, height)
    }

    fn bracketed(&mut self, expr: Expr, start: usize) -> Step<Expr> {
        let blank = self.open_bracket();
        self.blanks()?;
        if self.looking_at("*") {
            self.pos += 1;
            self.close_bracket(']', blank)?;
            return self.full_splat(expr, start);
        }
        let key = self.expression()?;
        self.blanks()?;
        self.close_bracket(']', blank)?;
        let marker = self.span_from(start);
        let (span, height) = (expr.span.to(marker), expr.height.max(key.height));
        self.node(ExprKind::Index(expr, key, marker), span, height)
    }

    fn full_splat(&mut self, expr: Expr, start: usize) -> Step<Expr> {
        let marker = self.span_from(start);
        let mut steps = Vec::new();
        let mut height = expr.height;
        loop {
            let at = self.pos;
            if self.looking_at(".") && self.peek_at(1).is_some_and(is_ident_start) {
                self.pos += 1;
                let name = self.ident();
                let span = self.span_from(at);
                steps.extend(name.map(|n| SplatStep::Attr(Ident { name: n.name, span })));
            } else if self.looking_at("[") && !self.looking_at("[*]") {
                let blank = self.open_bracket();
                let key = self.expression()?;
                self.blanks()?;
                self.close_bracket(']', blank)?;
                height = height.max(key.height);
                steps.push(SplatStep::Index(key, self.span_from(at)));
            } else {
                break;
            }
        }
        let span = expr.span.to(self.span_from(start));
        let height = height.saturating_add(steps.len().min(usize::from(u16::MAX)) as u16);
        self.node(ExprKind::Splat(expr, steps, marker), span, height)
    }

    /// Steps over an opening bracket; inside, newlines are blanks.
    fn open_bracket(&mut self) -> bool {
        self.pos += 1;
        self.brackets += 1;
        std::mem::replace(&mut self.newlines_blank, true)
    }

    fn close_bracket(&mut self, bracket: char, blank: bool) -> Step<()> {
        self.blanks()?;
        if self.peek() != Some(bracket) {
            let span = self.token_span();
            return self.fail(
                span,
                "Missing closing bracket",
                format!("A \"{bracket}\" is expected here to end what was opened before."),
            );
        }
        self.pos += 1;
        self.brackets = self.brackets.saturating_sub(1);
        self.newlines_blank = blank;
        Ok(())
    }

    fn primary(&mut self) -> Step<Expr> {
        let start = self.pos;
        match self.peek() {
            Some('(') => {
                let blank = self.open_bracket();
                let inner = self.expression()?;
                self.close_bracket(')', blank)?;
                let (span, height) = (self.span_from(start), inner.height);
                self.node(ExprKind::Paren(inner), span, height)
            }
            Some('"') => self.quoted_template(),
            Some('<') if self.looking_at("<<") => self.heredoc(),
            Some('[') => self.tuple(start),
            Some('{') => self.object(start),
            Some(c) if c.is_ascii_digit() => self.number(start),
            Some(c) if is_ident_start(c) => self.name(start),
            Some('\'') => {
                let span = self.token_span();
                self.single_quote(span)
            }
            Some(c @ ('\\' | '`' | ';' | '@' | '$' | '^' | '~' | '&' | '|')) => self.bad_character(c),
            _ => {
                let span = self.token_span();
                self.fail(
                    span,
                    "Invalid expression",
                    "Expected the start of an expression, but found an invalid expression token.",
                )
            }
        }
    }

    fn bad_character<T>(&mut self, c: char) -> Step<T> {
        let span = self.token_span();
        let detail = match c {
            '&' => "Did you mean logical AND (\"&&\")?",
            '|' => "Did you mean logical OR (\"||\")?",
            ';' => {
                "The \";\" character is not valid. Use newlines to separate arguments and blocks, and commas to \
                    separate items in collection values."
            }
            '`' => {
                "The \"`\" character is not valid. To create a multi-line string, use the \"heredoc\" syntax, \
                    like \"<<EOT\"."
            }
            _ => "This character is not used within the language.",
        };
        self.fail(span, "Invalid character", detail)
    }

    fn number(&mut self, start: usize) -> Step<Expr> {
        let bytes = self.rest().as_bytes();
        let digits = |from: usize| bytes.iter().skip(from).take_while(|b| b.is_ascii_digit()).count();
        let at = |i: usize| bytes.get(i).copied();
        let mut len = digits(0);
        if at(len) == Some(b'.') && at(len + 1).is_some_and(|b| b.is_ascii_digit()) {
            len += 1 + digits(len + 1);
        }
        if matches!(at(len), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(at(len + 1), Some(b'+' | b'-')));
            if at(len + 1 + sign).is_some_and(|b| b.is_ascii_digit()) {
                len += 1 + sign + digits(len + 1 + sign);
            }
        }
        let text = self.rest().get(..len).unwrap_or("");
        let span = Span::new(start, start + len);
        let Some(number) = Number::parse(text) else {
            return self.fail(
                span,
                "Invalid number",
                format!("A number may have at most {MAX_NUMBER_LEN} digits and an exponent of about 1200."),
            );
        };
        self.pos += len;
        self.node(ExprKind::Number(number), span, 0)
    }

    fn name(&mut self, start: usize) -> Step<Expr> {
        let Some(name) = self.ident() else { return Err(Failed) };
        let after = self.pos;
        self.blanks()?;
        if self.looking_at("(") {
            return self.call(name);
        }
        self.pos = after;
        let span = self.span_from(start);
        let kind = match &*name.name {
            "true" => ExprKind::Bool(true),
            "false" => ExprKind::Bool(false),
            "null" => ExprKind::Null,
            _ => ExprKind::Name(name.name),
        };
        self.node(kind, span, 0)
    }

    fn call(&mut self, name: Ident) -> Step<Expr> {
        let blank = self.open_bracket();
        let head = name.span.to(self.span(self.pos - 1, self.pos));
        let mut args = Vec::new();
        let mut expand = false;
        let mut tallest = 0;
        loop {
            self.blanks()?;
            if self.looking_at(")") {
                break;
            }
            let arg = self.expression()?;
            tallest = tallest.max(arg.height);
            args.push(arg);
            self.blanks()?;
            if self.eat("...") {
                expand = true;
                self.blanks()?;
                self.eat(",");
                self.blanks()?;
                break;
            }
            if !self.eat(",") {
                break;
            }
        }
        self.blanks()?;
        if !self.looking_at(")") {
            let span = self.token_span();
            return self.fail(
                span,
                "Missing argument separator",
                "A comma is required to separate each function argument from the next.",
            );
        }
        let close = self.span(self.pos, self.pos + 1);
        self.close_bracket(')', blank)?;
        let span = name.span.to(close);
        self.node(ExprKind::Call(Call { name, args, expand, head, close }), span, tallest)
    }

    /// Whether the bracket just opened begins a `for` expression.
    fn at_for(&self) -> bool {
        self.looking_at("for") && self.peek_at(3).is_some_and(|c| c.is_whitespace())
    }

    fn tuple(&mut self, start: usize) -> Step<Expr> {
        let blank = self.open_bracket();
        self.blanks()?;
        if self.at_for() {
            return self.for_expression(start, ']', blank);
        }
        let mut items = Vec::new();
        let mut tallest = 0;
        loop {
            self.blanks()?;
            if self.looking_at("]") {
                break;
            }
            let item = self.expression()?;
            tallest = tallest.max(item.height);
            items.push(item);
            self.blanks()?;
            if !self.eat(",") {
                break;
            }
        }
        if !self.looking_at("]") {
            let span = self.token_span();
            return self.fail(
                span,
                "Missing item separator",
                "Expected a comma to mark the beginning of the next item.",
            );
        }
        self.close_bracket(']', blank)?;
        let span = self.span_from(start);
        self.node(ExprKind::Tuple(items), span, tallest)
    }

    fn object(&mut self, start: usize) -> Step<Expr> {
        let blank = self.open_bracket();
        self.blanks()?;
        if self.at_for() {
            return self.for_expression(start, '}', blank);
        }
        let mut items = Vec::new();
        let mut tallest = 0;
        loop {
            self.all_blanks()?;
            if self.looking_at("}") {
                break;
            }
            let (key, height) = self.object_key()?;
            self.all_blanks_before_value()?;
            // The value ends at a newline, as items may be separated by nothing else.
            self.newlines_blank = false;
            let value = self.expression()?;
            tallest = tallest.max(height).max(value.height);
            items.push((key, value));
            self.blanks()?;
            let comma = self.eat(",");
            if !comma && !self.at_line_end() && !self.looking_at("}") {
                let span = self.token_span();
                return self.fail(
                    span,
                    "Missing attribute separator",
                    "Expected a newline or comma to mark the beginning of the next attribute.",
                );
            }
            self.newlines_blank = true;
        }
        self.close_bracket('}', blank)?;
        let span = self.span_from(start);
        self.node(ExprKind::Object(items), span, tallest)
    }

    fn all_blanks_before_value(&mut self) -> Step<()> {
        self.blanks()?;
        let found = (self.looking_at("=") && !self.looking_at("==")) || self.looking_at(":");
        if found {
            self.pos += 1;
            return self.blanks();
        }
        let span = self.token_span();
        self.fail(span, "Missing attribute value", "Expected an attribute value, introduced by an equals sign (\"=\").")
    }

    fn object_key(&mut self) -> Step<(ObjectKey, u16)> {
        let start = self.pos;
        if let Some(name) = self.ident() {
            self.blanks()?;
            if self.looking_at("=") || self.looking_at(":") {
                return Ok((ObjectKey::Name(name), 0));
            }
            self.pos = start;
        }
        let expr = self.expression()?;
        if matches!(&*expr.kind, ExprKind::Attr(..)) {
            return self.fail(
                expr.span,
                "Ambiguous attribute key",
                "If this expression is intended to be a reference, wrap it in parentheses. If it's instead intended \
                 as a literal name containing periods, wrap it in quotes to create a string literal.",
            );
        }
        let height = expr.height;
        Ok((ObjectKey::Expr(expr), height))
    }

    fn for_expression(&mut self, start: usize, bracket: char, blank: bool) -> Step<Expr> {
        self.pos += 3;
        let (key_name, value_name, collection) = self.for_intro()?;
        self.blanks()?;
        if !self.eat(":") {
            let span = self.token_span();
            return self.fail(
                span,
                "Invalid 'for' expression",
                "For expression requires a colon after the collection expression.",
            );
        }
        let mut value = self.expression()?;
        let mut key = None;
        let mut group = false;
        self.blanks()?;
        if bracket == '}' {
            if !self.eat("=>") {
                let span = self.token_span();
                return self.fail(
                    span,
                    "Invalid 'for' expression",
                    "An object 'for' expression needs \"=>\" between key and value.",
                );
            }
            key = Some(std::mem::replace(&mut value, self.expression()?));
            self.blanks()?;
            group = self.eat("...");
            self.blanks()?;
        }
        let mut condition = None;
        if self.looking_at("if") && self.peek_at(2).is_none_or(|c| !super::native::is_ident_continue(c)) {
            self.pos += 2;
            condition = Some(self.expression()?);
        }
        self.close_bracket(bracket, blank)?;
        let tallest = [Some(&collection), key.as_ref(), Some(&value), condition.as_ref()]
            .into_iter()
            .flatten()
            .map(|e| e.height)
            .max()
            .unwrap_or(0);
        let span = self.span_from(start);
        let parts = For { key_name, value_name, collection, key, value, group, condition };
        self.node(ExprKind::For(Box::new(parts)), span, tallest)
    }

    /// `k, v in collection`
    pub(super) fn for_intro(&mut self) -> Step<(Option<Ident>, Ident, Expr)> {
        let first = self.for_name()?;
        self.blanks()?;
        let (key, value) = if self.eat(",") { (Some(first), self.for_name()?) } else { (None, first) };
        self.blanks()?;
        if !(self.looking_at("in") && self.peek_at(2).is_none_or(|c| !super::native::is_ident_continue(c))) {
            let span = self.token_span();
            return self.fail(
                span,
                "Invalid 'for' expression",
                "For expression requires the 'in' keyword after its name declarations.",
            );
        }
        self.pos += 2;
        let collection = self.expression()?;
        Ok((key, value, collection))
    }

    fn for_name(&mut self) -> Step<Ident> {
        self.blanks()?;
        match self.ident() {
            Some(name) => Ok(name),
            None => {
                let span = self.token_span();
                self.fail(span, "Invalid 'for' expression", "For expression requires variable name after 'for'.")
            }
        }
    }
}
