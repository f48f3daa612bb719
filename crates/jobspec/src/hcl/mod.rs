//! The configuration language: text to syntax tree, for job files, variable files and agent configuration.
//!
//! [`parse`] takes either syntax, [`parse_native`] and [`parse_json`] one of them. All faults of a text are reported
//! at once, each with its place.

pub mod ast;
mod expr;
mod json;
mod native;
mod template;

use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, Source, Span};

pub use ast::*;
pub use expr::parse_expression;
pub(crate) use native::{is_ident_continue, is_ident_start};
pub(crate) use template::is_identifier;

/// Longest source text, in bytes.
pub const MAX_SOURCE_BYTES: usize = 4 << 20;
/// Deepest nesting of blocks, brackets and interpolations.
pub const MAX_NESTING: usize = 64;
/// Tallest expression tree: also long chains such as `a.b.c` or `1+1+1` count one per link.
pub const MAX_EXPRESSION_HEIGHT: u16 = 200;

/// What a dialect allows beyond the language.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Old configuration files quote names (`"key" = 1`) and mean every string literally: `${x}` stays text.
    pub lenient: bool,
}

/// Parses a text in the syntax it looks like: JSON if the first character other than a space is `{`.
pub fn parse(source: &Arc<Source>, options: Options) -> Result<File, Diagnostics> {
    if source.text().trim_start_matches(' ').starts_with('{') {
        parse_json(source)
    } else {
        parse_native(source, options)
    }
}

/// Parses the native syntax.
pub fn parse_native(source: &Arc<Source>, options: Options) -> Result<File, Diagnostics> {
    check_size(source)?;
    let mut parser = native::Parser::new(source, options);
    let body = parser.file();
    let diagnostics = parser.finish();
    if diagnostics.has_errors() {
        return Err(diagnostics);
    }
    Ok(File { source: Arc::clone(source), body })
}

/// Parses the JSON syntax.
pub fn parse_json(source: &Arc<Source>) -> Result<File, Diagnostics> {
    check_size(source)?;
    let body = json::parse(source)?;
    Ok(File { source: Arc::clone(source), body })
}

/// The expression a JSON value stands for where an argument is expected: strings are templates.
pub fn json_expression(source: &Arc<Source>, value: &Json) -> Result<Expr, Diagnostics> {
    json::expression(source, value)
}

/// Reads a JSON text; the error is a byte offset and why.
pub(crate) fn read_json(text: &str) -> Result<Json, (usize, String)> {
    json::read(text)
}

fn check_size(source: &Arc<Source>) -> Result<(), Diagnostics> {
    if source.text().len() <= MAX_SOURCE_BYTES {
        return Ok(());
    }
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(Diagnostic::error(
        source,
        Span::default(),
        "File too large",
        format!("The text has {} bytes; at most {MAX_SOURCE_BYTES} are read.", source.text().len()),
    ));
    Err(diagnostics)
}
