//! Go's `text/template` over JSON values: the language of `-t` on the command line, made so that other functions can be
//! plugged in.
//!
//! [`Template::parse`] reads a text; [`Template::render`] writes it for a value. Functions beyond the built-in ones come
//! through [`Functions`].
//!
//! This crate owns no task and no channel.
//!
//! Architecture invariant: nothing here reads a file, a clock or a source of randomness; functions that do are the
//! caller's.
//! Architecture invariant: whatever the text and the value, reading and writing end: depth, steps and output have named
//! limits.

mod builtin;
mod exec;
mod lex;
mod number;
mod parse;
mod printf;
mod show;
pub mod task;

pub use builtin::CallError;
pub use show::show;

use serde_json::Value;
use std::collections::BTreeMap;

/// The longest text of a template, bytes.
pub const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;
/// How deep actions and parentheses may lie in each other.
pub const MAX_DEPTH: usize = 100;
/// How deep templates may call templates.
pub const MAX_CALLS: usize = 100;
/// The most steps of one rendering.
pub const MAX_STEPS: usize = 10_000_000;
/// The most bytes one rendering, or one value in it, makes.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024 * 1024;

/// Why a template cannot be read or rendered, in Go's words where they are known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(pub(crate) String);

/// What a field that an object lacks comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// `<no value>`, as for Go's maps.
    #[default]
    NoValue,
    /// An error that names the field, as for Go's structures.
    Error,
}

/// Functions beyond the built-in ones.
pub trait Functions {
    /// Calls a function; none when there is no such function.
    ///
    /// # Errors
    /// The function's own.
    fn call(&self, name: &str, arguments: &[Value]) -> Option<Result<Value, String>>;
    /// Calls a function, telling wrong use from failure; none when there is no such function.
    ///
    /// # Errors
    /// The function's own.
    fn invoke(&self, name: &str, arguments: &[Value]) -> Option<Result<Value, CallError>> {
        Some(self.call(name, arguments)?.map_err(CallError::Failed))
    }
    /// Whether there is such a function.
    fn has(&self, name: &str) -> bool;
}

/// No functions beyond the built-in ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFunctions;

impl Functions for NoFunctions {
    fn call(&self, _: &str, _: &[Value]) -> Option<Result<Value, String>> {
        None
    }
    fn has(&self, _: &str) -> bool {
        false
    }
}

/// How a template is read and rendered.
pub struct Options<'f> {
    /// The name that messages show; may be empty.
    pub name: &'f str,
    pub left: &'f str,
    pub right: &'f str,
    pub missing: Missing,
    pub functions: &'f dyn Functions,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { name: "", left: "{{", right: "}}", missing: Missing::default(), functions: &NoFunctions }
    }
}

/// A template that was read.
pub struct Template<'f> {
    options: Options<'f>,
    /// Bodies by name; the one of the empty key is the text itself.
    bodies: BTreeMap<String, parse::List>,
}

impl<'f> Template<'f> {
    /// Reads a template.
    ///
    /// # Errors
    /// The text is no template; the message names the line.
    pub fn parse(text: &str, options: Options<'f>) -> Result<Template<'f>, TemplateError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(TemplateError(format!("template: {}: larger than {MAX_TEXT_BYTES} bytes", options.name)));
        }
        let bodies = parse::parse(text, &options)?;
        Ok(Template { options, bodies })
    }

    /// Writes the template for a value.
    ///
    /// # Errors
    /// An action fails or a limit is reached; the message names the place.
    pub fn render(&self, data: &Value) -> Result<String, TemplateError> {
        exec::render(&self.options, &self.bodies, data)
    }
}
