//! Job files: HCL2 and its JSON form, to the job as a client submits it, with the place of every part.
//!
//! [`parse`] is the way in. [`hcl`] is the language alone, also used for agent configuration; [`eval`] are its values
//! and functions; [`schema`] is the table of every block and argument, from which reading, suggestions and
//! [`describe`] derive; [`format()`] writes a file in canonical form.
//!
//! This crate owns no task and no channel.
//!
//! Architecture invariant: nothing here reads a file, a clock or a source of randomness; functions that need one get
//! it through [`Host`].
//! Architecture invariant: whatever the bytes, [`parse`] ends: size, nesting, steps, texts and collections have named
//! limits, and every fault is a [`Diagnostic`] with its place.
//! Architecture invariant: what may stand in a job file is said once, in [`schema`].

mod assemble;
pub mod content;
mod decode;
pub mod diag;
pub mod duration;
pub mod eval;
mod fmt;
pub mod hcl;
pub mod number;
pub mod schema;
mod tree;
mod variables;

use std::collections::BTreeMap;
use std::sync::Arc;

use content::{BlockShape, Reader, Shape};
use decode::Decoder;
pub use diag::{Diagnostic, Diagnostics, Severity, Source, Span};
use eval::Evaluator;
pub use eval::{Files, Host, NoHost, Scope};
pub use fmt::format;
pub use schema::{Described, describe};
pub use variables::Inputs;

/// A job file read.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The job in the form of the API, every field present.
    pub job: serde_json::Value,
    /// What the reader of the file should know.
    pub warnings: Vec<Diagnostic>,
    /// Where each part was written, by its JSON pointer (`/TaskGroups/0/Count`).
    pub spans: BTreeMap<String, Span>,
    /// What the peer would refuse the file for.
    pub extensions: Vec<Extension>,
    /// The text the spans point into.
    pub source: Arc<Source>,
}

/// A key that was written and that the peer does not know.
#[derive(Clone, Debug)]
pub struct Extension {
    /// Blocks from the job down and the key: `job.group.task.lifecycle.when`.
    pub path: String,
    /// Where it was written.
    pub span: Span,
}

impl Parsed {
    /// The place of the part a JSON pointer names, or of the nearest part around it that was written.
    pub fn span(&self, pointer: &str) -> Option<Span> {
        let mut at = pointer;
        loop {
            if let Some(span) = self.spans.get(at) {
                return Some(*span);
            }
            at = at.rsplit_once('/')?.0;
        }
    }

    /// A message about a part of the job, for checks that come after parsing.
    pub fn error_at(&self, pointer: &str, summary: &str, detail: &str) -> Diagnostic {
        match self.span(pointer) {
            Some(span) => Diagnostic::error(&self.source, span, summary, detail),
            None => Diagnostic::nowhere(summary, detail),
        }
    }
}

/// Reads a job file.
///
/// `name` is what messages call the file. The error holds every fault found, in the order of the text.
pub fn parse(name: &str, text: &str, inputs: &Inputs, host: &dyn Host) -> Result<Parsed, Diagnostics> {
    let source = Source::new(name, text);
    let file = hcl::parse(&source, hcl::Options::default())?;
    let mut evaluator = Evaluator::new(host);
    let shape = Shape {
        attributes: Vec::new(),
        blocks: vec![
            BlockShape { name: "job", labels: &["name"] },
            BlockShape { name: "variable", labels: &["name"] },
            BlockShape { name: "variables", labels: &[] },
            BlockShape { name: "locals", labels: &[] },
        ],
        dynamic: false,
    };
    let content = Reader { source: &source, evaluator: &mut evaluator }.content(&file.body, &shape, &Scope::default());
    let mut declared = variables::Declarations::default();
    let mut jobs = Vec::new();
    for block in content.blocks {
        match &*block.kind.name {
            "job" => jobs.push(block),
            "variable" => declared.variables.push(block),
            "variables" => declared.shorthand.push(block),
            _ => declared.locals.push(block),
        }
    }
    let scope = variables::scope(&mut evaluator, &source, &declared, inputs);
    let mut jobs = jobs.into_iter();
    let job = jobs.next();
    if let (Some(first), Some(second)) = (&job, jobs.next()) {
        duplicate_job(&mut evaluator, &source, first.header, second.header);
    }
    let mut decoder = Decoder { source: &source, evaluator: &mut evaluator, extensions: Vec::new(), path: vec!["job"] };
    let job = job.map(|block| assemble::job(&mut decoder, &content::BlockItem { scope, ..block }));
    let extensions = decoder.extensions;
    if job.is_none() && !evaluator.diagnostics.has_errors() {
        let end = Span::new(text.len(), text.len());
        evaluator.diagnostics.push(Diagnostic::error(&source, end, "Missing job block", "A job block is required"));
    }
    finish(evaluator.diagnostics, job, extensions, source)
}

/// A file of any content: volume, quota and policy files.
#[derive(Clone, Debug)]
pub struct Document {
    /// Arguments as they are; blocks as lists of objects by type, with an object around them for each label.
    pub value: serde_json::Value,
    /// Where each part was written, by its JSON pointer.
    pub spans: BTreeMap<String, Span>,
    /// The text the spans point into.
    pub source: Arc<Source>,
}

/// Reads a file of which nothing is expected. Names are texts (`${x}`), as there are no variables.
pub fn document(name: &str, text: &str, options: hcl::Options, host: &dyn Host) -> Result<Document, Diagnostics> {
    let source = Source::new(name, text);
    let file = hcl::parse(&source, options)?;
    let mut evaluator = Evaluator::new(host);
    let mut decoder = Decoder { source: &source, evaluator: &mut evaluator, extensions: Vec::new(), path: Vec::new() };
    let whole = Span::new(0, text.len());
    let node = decoder.free_body(&file.body, &Scope::default(), whole, decode::Maps::Plain);
    let mut diagnostics = evaluator.diagnostics;
    diagnostics.sort();
    match node {
        Ok(node) if !diagnostics.has_errors() => {
            let mut spans = BTreeMap::new();
            let value = node.finish(&mut String::new(), &mut spans);
            Ok(Document { value, spans, source })
        }
        _ => Err(diagnostics),
    }
}

fn duplicate_job(evaluator: &mut Evaluator<'_>, source: &Arc<Source>, first: Span, second: Span) {
    let (from, to) = (source.position(first.start), source.position(first.end));
    let detail = format!(
        "Only one block of type \"job\" is allowed. Previous definition was at {}:{},{}-{}.",
        source.name(),
        from.line,
        from.column,
        to.column
    );
    evaluator.diagnostics.push(Diagnostic::error(source, second, "Duplicate job block", detail));
}

fn finish(
    mut diagnostics: Diagnostics,
    job: Option<tree::Node>,
    extensions: Vec<Extension>,
    source: Arc<Source>,
) -> Result<Parsed, Diagnostics> {
    diagnostics.sort();
    let Some(job) = job.filter(|_| !diagnostics.has_errors()) else { return Err(diagnostics) };
    let mut spans = BTreeMap::new();
    let job = job.finish(&mut String::new(), &mut spans);
    let (_, warnings) = diagnostics.split();
    Ok(Parsed { job, warnings, spans, extensions, source })
}
