//! Filter expressions of list endpoints: `Status == "ready" and Meta.rack in Racks`.
//!
//! A filter is read with [`Filter::parse`] and asked with [`Filter::matches`] per list item, which
//! is the JSON value the API shows. Errors carry the texts clients know.
//!
//! One reading differs from the peer on purpose: a quoted value that begins with a slash
//! (`Path == "/opt/x"`) is that text, the slash included.

mod eval;
mod parse;

use crate::pattern::{Pattern, PatternError};

pub use eval::{MAP_FIELDS, Shape};

/// Longest filter taken, in bytes.
pub const MAX_FILTER_BYTES: usize = 16 * 1024;
/// Deepest nesting of parentheses, `not`, `any` and `all`.
pub const MAX_FILTER_DEPTH: usize = 64;
/// Most `matches` in one filter; each keeps a compiled pattern.
pub const MAX_FILTER_PATTERNS: usize = 32;
/// Most comparisons and joins done for one item; nested `any` and `all` multiply them.
pub const MAX_FILTER_STEPS: usize = 1_000_000;

/// Why a filter is not taken, or cannot be held against an item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The text breaks the grammar; place and reason are in the message.
    #[error("{0}")]
    Syntax(String),
    /// More than [`MAX_FILTER_BYTES`].
    #[error("filter expression has {0} bytes, at most {MAX_FILTER_BYTES} are taken")]
    TooLong(usize),
    /// Nested deeper than [`MAX_FILTER_DEPTH`].
    #[error("filter expression nests deeper than {MAX_FILTER_DEPTH} levels")]
    TooDeep,
    /// More than [`MAX_FILTER_PATTERNS`] patterns.
    #[error("filter expression uses \"matches\" more than {MAX_FILTER_PATTERNS} times")]
    TooManyPatterns,
    /// More than [`MAX_FILTER_STEPS`] steps for one item.
    #[error("filter expression takes more than {MAX_FILTER_STEPS} steps on one item; nest fewer \"any\" and \"all\"")]
    TooCostly,
    /// A selector that leads nowhere.
    #[error("error finding value in datum: {0}")]
    NotFound(String),
    /// A value that is not of the field's type.
    #[error("error getting match value in expression: strconv.{parser}: parsing {text:?}: {cause}")]
    Value {
        /// Which type was wanted, as the name of Go's parser for it.
        parser: &'static str,
        /// The value.
        text: String,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// An operator that does not fit the field's type.
    #[error("{0}")]
    Type(String),
    /// `matches` with a bad pattern.
    #[error("failed to compile regular expression {text:?}: {cause}")]
    Pattern {
        /// The pattern.
        text: String,
        /// What is wrong with it.
        cause: PatternError,
    },
}

/// A parsed filter.
#[derive(Debug, Clone)]
pub struct Filter {
    expr: Expr,
}

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// Malformed text, or text over the limits of this module.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Ok(Self { expr: parse::parse(text)? })
    }

    /// Whether `item` fits, with the usual [`Shape`].
    ///
    /// # Errors
    /// A selector, value or operator that does not fit the item.
    pub fn matches(&self, item: &serde_json::Value) -> Result<bool, FilterError> {
        eval::eval(&self.expr, item, &Shape::default())
    }

    /// Whether `item` fits, where the caller knows which of its objects are maps.
    ///
    /// # Errors
    /// As [`Filter::matches`].
    pub fn matches_shaped(&self, item: &serde_json::Value, shape: &Shape<'_>) -> Result<bool, FilterError> {
        eval::eval(&self.expr, item, shape)
    }
}

#[derive(Debug, Clone)]
enum Expr {
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    Match { selector: Selector, test: Test },
    Collection { all: bool, selector: Selector, binding: Binding, inner: Box<Expr> },
}

#[derive(Debug, Clone)]
struct Selector {
    path: Vec<String>,
    /// Written as a JSON pointer.
    pointer: bool,
}

impl Selector {
    fn shown(&self) -> String {
        self.path.join(if self.pointer { "/" } else { "." })
    }
}

#[derive(Debug, Clone)]
struct Test {
    negated: bool,
    kind: TestKind,
}

#[derive(Debug, Clone)]
enum TestKind {
    Equal(String),
    Contains(String),
    Matches {
        text: String,
        /// A bad pattern only fails once it is needed.
        pattern: Result<Pattern, PatternError>,
    },
    Empty,
    Nil,
}

/// The names in `any X as a, b { ... }`.
#[derive(Debug, Clone)]
enum Binding {
    /// One name: the value of a list, the key of a map.
    Default(String),
    Both {
        index: String,
        value: String,
    },
    Index(String),
    Value(String),
}
