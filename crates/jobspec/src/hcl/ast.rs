//! What a file says, before anything is evaluated.

use std::sync::Arc;

use crate::diag::{Source, Span};
use crate::number::Number;

/// A whole file.
#[derive(Clone, Debug)]
pub struct File {
    /// Its text.
    pub source: Arc<Source>,
    /// Its content.
    pub body: Body,
}

/// A name and where it stands.
#[derive(Clone, Debug)]
pub struct Ident {
    /// The name.
    pub name: Arc<str>,
    /// Where.
    pub span: Span,
}

/// What stands between the braces of a block, or in a file.
#[derive(Clone, Debug)]
pub struct Body {
    /// The content, in the form of its syntax.
    pub kind: BodyKind,
    /// Where a message about something missing points.
    pub missing: Span,
}

/// The two syntaxes.
#[derive(Clone, Debug)]
pub enum BodyKind {
    /// Arguments and blocks, told apart by the text.
    Native {
        /// `name = value`, in order.
        attributes: Vec<Attribute>,
        /// `type "label" { }`, in order.
        blocks: Vec<Block>,
    },
    /// Properties of JSON objects; what is an argument and what a block depends on what the reader expects.
    Json(Arc<Vec<Property>>),
}

/// `name = value`.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// The name.
    pub name: Ident,
    /// The value.
    pub expr: Expr,
    /// The whole of it.
    pub span: Span,
}

/// `type "label" { … }`.
#[derive(Clone, Debug)]
pub struct Block {
    /// The type.
    pub kind: Ident,
    /// The labels.
    pub labels: Vec<Ident>,
    /// The content.
    pub body: Body,
    /// Type and labels.
    pub header: Span,
    /// The opening brace.
    pub open: Span,
    /// From the type to the closing brace.
    pub span: Span,
}

/// One member of a JSON object.
#[derive(Clone, Debug)]
pub struct Property {
    /// The name.
    pub name: Ident,
    /// The value.
    pub value: Json,
}

/// A JSON value that knows where it stands.
#[derive(Clone, Debug)]
pub struct Json {
    /// The value.
    pub kind: JsonKind,
    /// Where.
    pub span: Span,
}

/// The kinds of JSON values.
#[derive(Clone, Debug)]
pub enum JsonKind {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string; a template where an argument is expected.
    String(Arc<str>),
    /// A list.
    Array(Vec<Json>),
    /// An object, in order, with repeated names kept.
    Object(Arc<Vec<Property>>),
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: Box<ExprKind>,
    /// Where it stands.
    pub span: Span,
    /// How deeply it nests, for the limit.
    pub height: u16,
}

/// The kinds of expressions.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string without interpolation.
    String(Arc<str>),
    /// A string with interpolations or directives.
    Template(Vec<Part>),
    /// `"${x}"`: the value itself, not its text.
    Wrapped(Expr),
    /// `[a, b]`.
    Tuple(Vec<Expr>),
    /// `{ a = b }`.
    Object(Vec<(ObjectKey, Expr)>),
    /// The first name of a traversal.
    Name(Arc<str>),
    /// `x.name`.
    Attr(Expr, Ident),
    /// `x[key]`; the span is that of the brackets.
    Index(Expr, Expr, Span),
    /// `x[*].a` or `x.*.a`: the steps apply to each element.
    Splat(Expr, Vec<Step>, Span),
    /// `name(args)`.
    Call(Call),
    /// `!x`, `-x`.
    Unary(Unary, Expr),
    /// `a + b`.
    Binary(Binary, Expr, Expr),
    /// `c ? a : b`.
    Conditional(Expr, Expr, Expr),
    /// `[for …]`, `{for …}`.
    For(Box<For>),
    /// `(x)`.
    Paren(Expr),
}

/// A piece of a template.
#[derive(Clone, Debug)]
pub enum Part {
    /// Text as it stands.
    Literal(Arc<str>),
    /// `${x}`.
    Interpolation(Expr),
    /// `%{ if }`.
    If {
        /// Condition.
        condition: Expr,
        /// When true.
        then: Vec<Part>,
        /// When false.
        otherwise: Vec<Part>,
    },
    /// `%{ for }`.
    For {
        /// Name of the key.
        key: Option<Ident>,
        /// Name of the value.
        value: Ident,
        /// What is walked.
        collection: Expr,
        /// What is repeated.
        body: Vec<Part>,
    },
}

/// The key of an object element.
#[derive(Clone, Debug)]
pub enum ObjectKey {
    /// A bare name.
    Name(Ident),
    /// Anything else.
    Expr(Expr),
}

/// A step of a splat.
#[derive(Clone, Debug)]
pub enum Step {
    /// `.name`
    Attr(Ident),
    /// `[key]`
    Index(Expr, Span),
}

/// `name(args...)`.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function.
    pub name: Ident,
    /// The arguments.
    pub args: Vec<Expr>,
    /// Whether the last argument is spread (`...`).
    pub expand: bool,
    /// Name and opening parenthesis.
    pub head: Span,
    /// The closing parenthesis.
    pub close: Span,
}

/// `for k, v in coll : …`.
#[derive(Clone, Debug)]
pub struct For {
    /// Name of the key.
    pub key_name: Option<Ident>,
    /// Name of the value.
    pub value_name: Ident,
    /// What is walked.
    pub collection: Expr,
    /// The key of a resulting object; absent for a tuple.
    pub key: Option<Expr>,
    /// The resulting value.
    pub value: Expr,
    /// Whether values of one key are collected (`...`).
    pub group: bool,
    /// `if …`.
    pub condition: Option<Expr>,
}

/// Operators before an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `!`
    Not,
    /// `-`
    Minus,
}

/// Operators between operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Binary {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

impl Expr {
    /// Where a message about the value of this expression points: at the text inside the quotes of a string, at the
    /// opening bracket of a collection, else at the first operand.
    pub fn focus(&self) -> Span {
        match &*self.kind {
            ExprKind::String(_) | ExprKind::Template(_) if self.span.end > self.span.start + 2 => {
                Span::new(self.span.start + 1, self.span.end - 1)
            }
            ExprKind::Tuple(_) | ExprKind::Object(_) | ExprKind::For(_) => {
                Span::new(self.span.start, self.span.start + 1)
            }
            ExprKind::Call(call) => call.head,
            ExprKind::Binary(_, left, _) => left.focus(),
            ExprKind::Conditional(condition, _, _) => condition.focus(),
            _ => self.span,
        }
    }

    /// Calls `visit` for every expression directly inside this one.
    pub fn each_child(&self, visit: &mut dyn FnMut(&Expr)) {
        match &*self.kind {
            ExprKind::Null | ExprKind::Bool(_) | ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Name(_) => {}
            ExprKind::Template(parts) => parts.iter().for_each(|p| p.each_child(visit)),
            ExprKind::Wrapped(e) | ExprKind::Paren(e) | ExprKind::Unary(_, e) | ExprKind::Attr(e, _) => visit(e),
            ExprKind::Tuple(items) => items.iter().for_each(visit),
            ExprKind::Object(items) => {
                for (key, value) in items {
                    if let ObjectKey::Expr(key) = key {
                        visit(key);
                    }
                    visit(value);
                }
            }
            ExprKind::Index(a, b, _) | ExprKind::Binary(_, a, b) => {
                visit(a);
                visit(b);
            }
            ExprKind::Splat(e, steps, _) => {
                visit(e);
                for step in steps {
                    if let Step::Index(key, _) = step {
                        visit(key);
                    }
                }
            }
            ExprKind::Call(call) => call.args.iter().for_each(visit),
            ExprKind::Conditional(a, b, c) => {
                visit(a);
                visit(b);
                visit(c);
            }
            ExprKind::For(parts) => {
                visit(&parts.collection);
                parts.key.iter().for_each(&mut *visit);
                visit(&parts.value);
                parts.condition.iter().for_each(visit);
            }
        }
    }

    /// The path of names and literal keys, if the expression is nothing else: `a.b["c"][0]`.
    pub fn traversal(&self) -> Option<Vec<TraversalStep<'_>>> {
        let mut steps = Vec::new();
        let mut at = self;
        loop {
            match &*at.kind {
                ExprKind::Name(name) => {
                    steps.push(TraversalStep::Name(name));
                    break;
                }
                ExprKind::Attr(inner, name) => {
                    steps.push(TraversalStep::Name(&name.name));
                    at = inner;
                }
                ExprKind::Index(inner, key, _) => {
                    match &*key.kind {
                        ExprKind::String(text) => steps.push(TraversalStep::Key(text)),
                        ExprKind::Number(number) => steps.push(TraversalStep::Number(number)),
                        _ => return None,
                    }
                    at = inner;
                }
                _ => return None,
            }
        }
        steps.reverse();
        Some(steps)
    }
}

/// A step of [`Expr::traversal`].
#[derive(Clone, Copy, Debug)]
pub enum TraversalStep<'a> {
    /// A name.
    Name(&'a str),
    /// `["key"]`
    Key(&'a str),
    /// `[0]`
    Number(&'a Number),
}

impl Part {
    fn each_child(&self, visit: &mut dyn FnMut(&Expr)) {
        match self {
            Part::Literal(_) => {}
            Part::Interpolation(expr) => visit(expr),
            Part::If { condition, then, otherwise } => {
                visit(condition);
                then.iter().chain(otherwise).for_each(|p| p.each_child(visit));
            }
            Part::For { collection, body, .. } => {
                visit(collection);
                body.iter().for_each(|p| p.each_child(visit));
            }
        }
    }
}
