//! Tokens to a tree.

use crate::lex::{Part, Placed, Token, split};
use crate::{MAX_DEPTH, Options, TemplateError, builtin, number};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// A body: nodes in order.
pub type List = Vec<Node>;

/// A place in the text: line from 1, bytes since its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

#[derive(Debug, Clone)]
pub enum Node {
    Text(String),
    Action(Pipe),
    If { pipe: Pipe, then: List, otherwise: List },
    With { pipe: Pipe, then: List, otherwise: List },
    Range { pipe: Pipe, body: List, otherwise: List },
    Template { name: String, pipe: Option<Pipe>, place: Place },
    Break,
    Continue,
}

/// Commands, each with the value of the one before as its last argument.
#[derive(Debug, Clone)]
pub struct Pipe {
    /// Variables that take the value.
    pub variables: Vec<String>,
    /// They exist already.
    pub assign: bool,
    pub commands: Vec<Command>,
    pub place: Place,
}

#[derive(Debug, Clone)]
pub struct Command {
    pub operands: Vec<Operand>,
    pub place: Place,
}

#[derive(Debug, Clone)]
pub struct Operand {
    pub kind: Kind,
    pub place: Place,
}

#[derive(Debug, Clone)]
pub enum Kind {
    Dot,
    Nil,
    Bool(bool),
    /// The value and how it was written.
    Number(Value, String),
    Text(String),
    /// `.A.B`.
    Field(Vec<String>),
    /// `$x.A`; the name without the dollar sign.
    Variable(String, Vec<String>),
    /// `(…).A`.
    Chain(Box<Operand>, Vec<String>),
    Function(String),
    Pipe(Box<Pipe>),
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let names: Vec<String> = self.variables.iter().map(|v| format!("${v}")).collect();
            write!(f, "{} {} ", names.join(", "), if self.assign { "=" } else { ":=" })?;
        }
        for (at, command) in self.commands.iter().enumerate() {
            if at > 0 {
                f.write_str(" | ")?;
            }
            write!(f, "{command}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, operand) in self.operands.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{operand}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = |f: &mut fmt::Formatter<'_>, names: &[String]| -> fmt::Result {
            for name in names {
                write!(f, ".{name}")?;
            }
            Ok(())
        };
        match &self.kind {
            Kind::Dot => f.write_str("."),
            Kind::Nil => f.write_str("nil"),
            Kind::Bool(b) => write!(f, "{b}"),
            Kind::Number(_, text) => f.write_str(text),
            Kind::Text(text) => f.write_str(&crate::printf::quote(text)),
            Kind::Field(names) => fields(f, names),
            Kind::Variable(name, names) => {
                write!(f, "${name}")?;
                fields(f, names)
            }
            Kind::Chain(inner, names) => {
                match &inner.kind {
                    Kind::Pipe(_) => write!(f, "{inner}")?,
                    _ => write!(f, "{inner}")?,
                }
                fields(f, names)
            }
            Kind::Function(name) => f.write_str(name),
            Kind::Pipe(pipe) => write!(f, "({pipe})"),
        }
    }
}

/// Reads a template: bodies by name, the text's own under the empty key.
pub fn parse(text: &str, options: &Options<'_>) -> Result<BTreeMap<String, List>, TemplateError> {
    let parts = split(text, options)?;
    let lines = text.matches('\n').count() + 1;
    let mut parser = Parser {
        options,
        parts: parts.into_iter(),
        bodies: BTreeMap::new(),
        variables: vec![String::new()],
        ranges: 0,
        depth: 0,
        last_line: lines,
    };
    let (list, end) = parser.list(true)?;
    match end {
        Ended::Text => {}
        Ended::Here(line) => return Err(parser.fault(line, "unexpected {{end}}")),
        Ended::Else(line, _) => return Err(parser.fault(line, "unexpected {{else}}")),
    }
    parser.bodies.insert(String::new(), list);
    Ok(parser.bodies)
}

/// How a body ended.
enum Ended {
    Text,
    Here(usize),
    /// With what follows the word.
    Else(usize, Vec<Placed>),
}

struct Parser<'p, 'f> {
    options: &'p Options<'f>,
    parts: std::vec::IntoIter<Part>,
    bodies: BTreeMap<String, List>,
    /// Variables in scope; the empty name is `$`.
    variables: Vec<String>,
    ranges: usize,
    depth: usize,
    last_line: usize,
}

impl Parser<'_, '_> {
    fn fault(&self, line: usize, why: &str) -> TemplateError {
        TemplateError(format!("template: {}:{line}: {why}", self.options.name))
    }

    fn deeper(&mut self, line: usize) -> Result<(), TemplateError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fault(line, &format!("actions lie in each other more than {MAX_DEPTH} deep")));
        }
        Ok(())
    }

    fn list(&mut self, top: bool) -> Result<(List, Ended), TemplateError> {
        let mut list = List::new();
        loop {
            let (tokens, line) = match self.parts.next() {
                None => return Ok((list, Ended::Text)),
                Some(Part::Text(text)) => {
                    list.push(Node::Text(text));
                    continue;
                }
                Some(Part::Action { tokens, line }) => (trimmed(tokens), line),
            };
            let word = match tokens.first().map(|t| &t.token) {
                Some(Token::Word(word)) => word.clone(),
                None => return Err(self.fault(line, "missing value for command")),
                _ => String::new(),
            };
            let rest = trimmed(tokens.get(1..).unwrap_or_default().to_vec());
            match word.as_str() {
                "end" => {
                    self.nothing(&rest, line, "end")?;
                    return Ok((list, Ended::Here(line)));
                }
                "else" => return Ok((list, Ended::Else(line, rest))),
                "if" | "with" | "range" => list.push(self.control(&word, rest, line)?),
                "define" if top => self.define(&rest, line)?,
                "define" => return Err(self.fault(line, "unexpected <define> in command")),
                "block" => list.push(self.block(rest, line)?),
                "template" => list.push(self.template(rest, line)?),
                "break" | "continue" => {
                    self.nothing(&rest, line, &word)?;
                    if self.ranges == 0 {
                        return Err(self.fault(line, &format!("{{{{{word}}}}} outside {{{{range}}}}")));
                    }
                    list.push(if word == "break" { Node::Break } else { Node::Continue });
                }
                _ => list.push(Node::Action(self.pipe(tokens, line, "command")?)),
            }
        }
    }

    fn nothing(&self, rest: &[Placed], line: usize, context: &str) -> Result<(), TemplateError> {
        match rest.iter().find(|t| t.token != Token::Space) {
            None => Ok(()),
            Some(token) => Err(self.fault(line, &format!("unexpected {} in {context}", shown(&token.token)))),
        }
    }

    fn control(&mut self, word: &str, tokens: Vec<Placed>, line: usize) -> Result<Node, TemplateError> {
        self.deeper(line)?;
        let mark = self.variables.len();
        let pipe = self.pipe(tokens, line, word)?;
        if word == "range" {
            self.ranges += 1;
        }
        let (then, end) = self.list(false)?;
        if word == "range" {
            self.ranges -= 1;
        }
        let otherwise = match end {
            Ended::Here(_) => List::new(),
            Ended::Text => return Err(self.fault(self.last_line, "unexpected EOF")),
            Ended::Else(line, rest) => self.otherwise(word, rest, line)?,
        };
        self.variables.truncate(mark);
        self.depth -= 1;
        Ok(match word {
            "if" => Node::If { pipe, then, otherwise },
            "with" => Node::With { pipe, then, otherwise },
            _ => Node::Range { pipe, body: then, otherwise },
        })
    }

    /// What stands after `else`, up to the end of the whole.
    fn otherwise(&mut self, word: &str, rest: Vec<Placed>, line: usize) -> Result<List, TemplateError> {
        let chained = matches!(rest.first().map(|t| &t.token), Some(Token::Word(next)) if next == word);
        if chained && matches!(word, "if" | "with") {
            // `else if` holds everything up to the one end.
            let inner = trimmed(rest.get(1..).unwrap_or_default().to_vec());
            return Ok(vec![self.control(word, inner, line)?]);
        }
        self.nothing(&rest, line, "else")?;
        match self.list(false)? {
            (list, Ended::Here(_)) => Ok(list),
            (_, Ended::Text) => Err(self.fault(self.last_line, "unexpected EOF")),
            (_, Ended::Else(line, _)) => Err(self.fault(line, "expected end; found {{else}}")),
        }
    }

    fn define(&mut self, rest: &[Placed], line: usize) -> Result<(), TemplateError> {
        let name = self.name(rest, line, "define clause")?;
        self.nothing(rest.get(1..).unwrap_or_default(), line, "define clause")?;
        self.body(name, line, "define clause")
    }

    /// Reads a body up to its end and keeps it under a name.
    fn body(&mut self, name: String, line: usize, context: &str) -> Result<(), TemplateError> {
        self.deeper(line)?;
        let outer = std::mem::replace(&mut self.variables, vec![String::new()]);
        let ranges = std::mem::take(&mut self.ranges);
        let (list, end) = self.list(false)?;
        self.variables = outer;
        self.ranges = ranges;
        self.depth -= 1;
        match end {
            Ended::Here(_) => {}
            Ended::Text => return Err(self.fault(self.last_line, "unexpected EOF")),
            Ended::Else(line, _) => return Err(self.fault(line, &format!("unexpected {{{{else}}}} in {context}"))),
        }
        let empty = |list: &List| list.iter().all(|node| matches!(node, Node::Text(text) if text.trim().is_empty()));
        match self.bodies.get(&name) {
            Some(known) if !empty(known) && !empty(&list) => {
                Err(self.fault(line, &format!("template: multiple definition of template {name:?}")))
            }
            Some(known) if !empty(known) => Ok(()),
            _ => {
                self.bodies.insert(name, list);
                Ok(())
            }
        }
    }

    fn block(&mut self, rest: Vec<Placed>, line: usize) -> Result<Node, TemplateError> {
        let name = self.name(&rest, line, "block clause")?;
        let pipe = self.pipe(trimmed(rest.get(1..).unwrap_or_default().to_vec()), line, "block clause")?;
        let place = pipe.place;
        self.body(name.clone(), line, "block clause")?;
        Ok(Node::Template { name, pipe: Some(pipe), place })
    }

    fn template(&mut self, rest: Vec<Placed>, line: usize) -> Result<Node, TemplateError> {
        let name = self.name(&rest, line, "template clause")?;
        let place = rest.first().map(place_of).unwrap_or_default();
        let more = trimmed(rest.get(1..).unwrap_or_default().to_vec());
        let pipe = if more.is_empty() { None } else { Some(self.pipe(more, line, "template clause")?) };
        Ok(Node::Template { name, pipe, place })
    }

    fn name(&self, rest: &[Placed], line: usize, context: &str) -> Result<String, TemplateError> {
        match rest.first().map(|t| &t.token) {
            Some(Token::Text(name)) => Ok(name.clone()),
            Some(other) => Err(self.fault(line, &format!("unexpected {} in {context}", shown(other)))),
            None => Err(self.fault(line, &format!("unexpected \"}}}}\" in {context}"))),
        }
    }

    fn pipe(&mut self, tokens: Vec<Placed>, line: usize, context: &str) -> Result<Pipe, TemplateError> {
        let mut reader = PipeReader { tokens: &tokens, at: 0, line };
        let pipe = reader.pipe(self, context)?;
        match reader.peek() {
            None => Ok(pipe),
            Some(token) => Err(self.fault(token.line, &format!("unexpected {} in {context}", shown(&token.token)))),
        }
    }
}

fn place_of(token: &Placed) -> Place {
    Place { line: token.line, column: token.column }
}

/// Tokens without the spaces at both ends.
fn trimmed(mut tokens: Vec<Placed>) -> Vec<Placed> {
    while tokens.last().is_some_and(|t| t.token == Token::Space) {
        tokens.pop();
    }
    let start = tokens.iter().take_while(|t| t.token == Token::Space).count();
    tokens.drain(..start);
    tokens
}

/// A token as messages show it.
fn shown(token: &Token) -> String {
    match token {
        Token::Field(name) => format!("\".{name}\""),
        Token::Dot => "<.>".to_string(),
        Token::Variable(name) => format!("\"${name}\""),
        Token::Word(word) if KEYWORDS.contains(&word.as_str()) => format!("<{word}>"),
        Token::Word(word) => format!("{word:?}"),
        Token::Number(text) => format!("{text:?}"),
        Token::Char(c) => format!("\"'{c}'\""),
        Token::Text(text) => format!("{:?}", crate::printf::quote(text)),
        Token::Pipe => "\"|\"".to_string(),
        Token::Comma => "\",\"".to_string(),
        Token::Open => "\"(\"".to_string(),
        Token::Close => "\")\"".to_string(),
        Token::Declare => "\":=\"".to_string(),
        Token::Assign => "\"=\"".to_string(),
        Token::Space => "\" \"".to_string(),
    }
}

const KEYWORDS: &[&str] =
    &["if", "else", "end", "range", "with", "template", "define", "block", "break", "continue", "nil"];

struct PipeReader<'t> {
    tokens: &'t [Placed],
    at: usize,
    line: usize,
}

impl<'t> PipeReader<'t> {
    fn peek(&self) -> Option<&'t Placed> {
        self.tokens.get(self.at)
    }

    fn peek_at(&self, ahead: usize) -> Option<&'t Token> {
        self.tokens.get(self.at + ahead).map(|t| &t.token)
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(|t| t.token == Token::Space) {
            self.at += 1;
        }
    }

    fn line(&self) -> usize {
        self.peek().map_or(self.line, |t| t.line)
    }

    /// Declarations and commands, up to the end or a closing parenthesis.
    fn pipe(&mut self, parser: &mut Parser<'_, '_>, context: &str) -> Result<Pipe, TemplateError> {
        self.skip_spaces();
        let place = self.peek().map(place_of).unwrap_or(Place { line: self.line, column: 0 });
        let (variables, assign) = self.declarations(parser, context)?;
        let mut commands = Vec::new();
        loop {
            self.skip_spaces();
            match self.peek().map(|t| &t.token) {
                None | Some(Token::Close) => break,
                _ => commands.push(self.command(parser)?),
            }
            if self.peek().is_some_and(|t| t.token == Token::Pipe) {
                self.at += 1;
                self.skip_spaces();
            }
        }
        if commands.is_empty() {
            return Err(parser.fault(self.line(), &format!("missing value for {context}")));
        }
        for (at, command) in commands.iter().enumerate().skip(1) {
            let kind = command.operands.first().map(|o| &o.kind);
            if matches!(kind, Some(Kind::Bool(_) | Kind::Dot | Kind::Nil | Kind::Number(..) | Kind::Text(_))) {
                let why = format!("non executable command in pipeline stage {}", at + 1);
                return Err(parser.fault(self.line, &why));
            }
        }
        // A declared variable is not in scope of its own value.
        if !assign {
            parser.variables.extend(variables.iter().cloned());
        }
        Ok(Pipe { variables, assign, commands, place })
    }

    fn declarations(&mut self, parser: &Parser<'_, '_>, context: &str) -> Result<(Vec<String>, bool), TemplateError> {
        let start = self.at;
        let mut names = Vec::new();
        while let Some(Token::Variable(name)) = self.peek().map(|t| &t.token) {
            names.push(name.clone());
            self.at += 1;
            self.skip_spaces();
            match self.peek().map(|t| &t.token) {
                Some(Token::Declare) => {
                    self.at += 1;
                    return self.declared(parser, names, false, context);
                }
                Some(Token::Assign) => {
                    self.at += 1;
                    return self.declared(parser, names, true, context);
                }
                Some(Token::Comma) if context == "range" && names.len() == 1 => {
                    self.at += 1;
                    self.skip_spaces();
                }
                Some(Token::Comma) if context == "range" => {
                    return Err(parser.fault(self.line(), "too many declarations in range"));
                }
                Some(Token::Comma) => {
                    return Err(parser.fault(self.line(), &format!("too many declarations in {context}")));
                }
                _ => break,
            }
        }
        self.at = start;
        Ok((Vec::new(), false))
    }

    fn declared(
        &self,
        parser: &Parser<'_, '_>,
        names: Vec<String>,
        assign: bool,
        context: &str,
    ) -> Result<(Vec<String>, bool), TemplateError> {
        if names.len() > 1 && context != "range" {
            return Err(parser.fault(self.line(), &format!("too many declarations in {context}")));
        }
        Ok((names, assign))
    }

    fn known(&self, parser: &Parser<'_, '_>, name: &str) -> Result<(), TemplateError> {
        if parser.variables.iter().any(|v| v == name) {
            return Ok(());
        }
        Err(parser.fault(self.line(), &format!("undefined variable \"${name}\"")))
    }

    fn command(&mut self, parser: &mut Parser<'_, '_>) -> Result<Command, TemplateError> {
        let place = self.peek().map(place_of).unwrap_or_default();
        let mut operands = Vec::new();
        loop {
            self.skip_spaces();
            match self.peek().map(|t| &t.token) {
                None | Some(Token::Pipe | Token::Close) => break,
                _ => operands.push(self.operand(parser)?),
            }
            match self.peek().map(|t| &t.token) {
                None | Some(Token::Space | Token::Pipe | Token::Close) => {}
                Some(other) => {
                    return Err(parser.fault(self.line(), &format!("unexpected {} in operand", shown(other))));
                }
            }
        }
        if operands.is_empty() {
            return Err(parser.fault(self.line(), "unexpected \"|\" in command"));
        }
        Ok(Command { operands, place })
    }

    fn operand(&mut self, parser: &mut Parser<'_, '_>) -> Result<Operand, TemplateError> {
        let Some(first) = self.peek() else { return Err(parser.fault(self.line, "unexpected EOF")) };
        let place = place_of(first);
        let kind = self.term(parser, first)?;
        let mut fields = Vec::new();
        // The place of a chain is that of its second part, as Go has it.
        let second = self.peek().map(place_of);
        while let Some(Token::Field(name)) = self.peek().map(|t| &t.token) {
            fields.push(name.clone());
            self.at += 1;
        }
        if fields.is_empty() {
            return Ok(Operand { kind, place });
        }
        let kind = match kind {
            Kind::Field(mut names) => {
                names.extend(fields);
                Kind::Field(names)
            }
            Kind::Variable(name, _) => Kind::Variable(name, fields),
            kind @ (Kind::Bool(_) | Kind::Text(_) | Kind::Number(..) | Kind::Nil | Kind::Dot) => {
                let inner = Operand { kind, place };
                return Err(parser.fault(self.line(), &format!("unexpected . after term {:?}", inner.to_string())));
            }
            kind => Kind::Chain(Box::new(Operand { kind, place }), fields),
        };
        Ok(Operand { kind, place: second.unwrap_or(place) })
    }

    fn term(&mut self, parser: &mut Parser<'_, '_>, first: &Placed) -> Result<Kind, TemplateError> {
        self.at += 1;
        Ok(match &first.token {
            Token::Dot => Kind::Dot,
            Token::Field(name) => Kind::Field(vec![name.clone()]),
            Token::Variable(name) => {
                self.known(parser, name)?;
                Kind::Variable(name.clone(), Vec::new())
            }
            Token::Text(text) => Kind::Text(text.clone()),
            Token::Char(c) => Kind::Number(Value::from(u32::from(*c)), format!("'{c}'")),
            Token::Number(text) => {
                let value = number::parse(text)
                    .ok_or_else(|| parser.fault(first.line, &format!("illegal number syntax: {text:?}")))?;
                Kind::Number(value, text.clone())
            }
            Token::Word(word) => match word.as_str() {
                "true" => Kind::Bool(true),
                "false" => Kind::Bool(false),
                "nil" => Kind::Nil,
                word if KEYWORDS.contains(&word) => {
                    return Err(parser.fault(first.line, &format!("unexpected <{word}> in command")));
                }
                word if builtin::has(word) || parser.options.functions.has(word) => Kind::Function(word.to_string()),
                word => return Err(parser.fault(first.line, &format!("function {word:?} not defined"))),
            },
            Token::Open => {
                parser.deeper(first.line)?;
                let pipe = self.pipe(parser, "parenthesized pipeline")?;
                parser.depth -= 1;
                if self.peek_at(0) != Some(&Token::Close) {
                    return Err(parser.fault(self.line(), "unclosed left paren"));
                }
                self.at += 1;
                Kind::Pipe(Box::new(pipe))
            }
            other => return Err(parser.fault(first.line, &format!("unexpected {} in command", shown(other)))),
        })
    }
}
