//! Values, and what expressions evaluate to.

pub mod convert;
mod expr;
pub mod functions;
pub mod value;

use std::rc::Rc;
use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, Source, Span};

pub(crate) use expr::pairs_of;
pub use value::{Type, Value};

/// Most steps (operations, elements walked, pieces copied) one input may take.
pub const MAX_STEPS: usize = 1_000_000;
/// Longest text an expression may build, in bytes.
pub const MAX_STRING_BYTES: usize = 8 << 20;
/// Largest value: its elements at all levels, and one more per 64 bytes of text.
pub const MAX_VALUE_WEIGHT: usize = 262_144;
/// Deepest nesting of a value.
pub const MAX_VALUE_DEPTH: usize = 100;

/// What functions need from outside: files, randomness, the home directory.
pub trait Host {
    /// Random bytes, for `uuidv4` and the salt of `bcrypt`.
    fn random(&self, bytes: &mut [u8]);

    /// The access to files, if functions that touch them may be used.
    fn files(&self) -> Option<&dyn Files> {
        None
    }
}

/// Access to files relative to where the job file was read.
pub trait Files {
    /// The content of a file; the error says why not (`no file exists at x`).
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// Whether a regular file is there; an error if something else is.
    fn exists(&self, path: &str) -> Result<bool, String>;

    /// All files below a directory as paths relative to it, with `/`; empty if it does not exist.
    fn walk(&self, path: &str) -> Result<Vec<String>, String>;

    /// The absolute form of a path.
    fn absolute(&self, path: &str) -> Result<String, String>;

    /// The home directory of the user.
    fn home(&self) -> Option<String>;
}

/// A host that offers nothing but zeros for randomness: for validation and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

/// Names that an expression may use, innermost first.
#[derive(Clone, Debug, Default)]
pub struct Scope(Option<Rc<Binding>>);

#[derive(Debug)]
struct Binding {
    name: Arc<str>,
    value: Value,
    outer: Scope,
}

impl Scope {
    /// This scope with one name more.
    pub fn with(&self, name: impl Into<Arc<str>>, value: Value) -> Self {
        Self(Some(Rc::new(Binding { name: name.into(), value, outer: self.clone() })))
    }

    /// What a name stands for.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let mut at = self;
        while let Some(binding) = &at.0 {
            if &*binding.name == name {
                return Some(&binding.value);
            }
            at = &binding.outer;
        }
        None
    }
}

/// A name nobody declared: text that is left for later, or a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// `attr.kernel.name` is the text `${attr.kernel.name}`, expanded when the task runs.
    Literal,
    /// No names may be used.
    Refused,
}

/// Evaluates expressions of one input and collects what is wrong with them.
pub struct Evaluator<'a> {
    host: &'a dyn Host,
    /// The messages so far.
    pub diagnostics: Diagnostics,
    steps: usize,
    unknown: Unknown,
    /// Variables and locals without a value because of a fault already reported, as `var.x`.
    unresolved: std::collections::BTreeSet<String>,
}

/// The fault is in the list already.
#[derive(Clone, Copy, Debug)]
pub struct Failed;

impl<'a> Evaluator<'a> {
    /// An evaluator with fresh limits.
    pub fn new(host: &'a dyn Host) -> Self {
        Self {
            host,
            diagnostics: Diagnostics::default(),
            steps: 0,
            unknown: Unknown::Literal,
            unresolved: Default::default(),
        }
    }

    /// What undeclared names mean from now on.
    pub fn set_unknown(&mut self, unknown: Unknown) {
        self.unknown = unknown;
    }

    /// Says that `var.<name>` or `local.<name>` has no value for a reason already reported, so that its uses are no
    /// faults of their own.
    pub fn unresolved(&mut self, root: &str, name: &str) {
        self.unresolved.insert(format!("{root}.{name}"));
    }

    /// Adds an error.
    pub fn fail<T>(
        &mut self,
        source: &Arc<Source>,
        span: Span,
        summary: &str,
        detail: impl Into<String>,
    ) -> Result<T, Failed> {
        self.diagnostics.push(Diagnostic::error(source, span, summary, detail));
        Err(Failed)
    }

    /// Counts a step; fails when there are too many.
    pub fn step(&mut self, source: &Arc<Source>, span: Span) -> Result<(), Failed> {
        self.charge(source, span, 1)
    }

    /// Counts several steps.
    pub fn charge(&mut self, source: &Arc<Source>, span: Span, steps: usize) -> Result<(), Failed> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps <= MAX_STEPS {
            return Ok(());
        }
        self.fail(
            source,
            span,
            "Too much to evaluate",
            format!("The expressions of one file may take at most {MAX_STEPS} steps."),
        )
    }

    /// Checks a value that was just made against the limits, and counts its size.
    pub fn grow(&mut self, source: &Arc<Source>, span: Span, value: &Value) -> Result<(), Failed> {
        if let Value::String(text) = value
            && text.len() > MAX_STRING_BYTES
        {
            let detail = format!("A text may have at most {MAX_STRING_BYTES} bytes.");
            return self.fail(source, span, "Result too large", detail);
        }
        match weigh(value) {
            Some(weight) => self.charge(source, span, weight / 8),
            None => self.fail(
                source,
                span,
                "Result too large",
                format!(
                    "A value may have at most {MAX_VALUE_WEIGHT} elements at all levels and nest {MAX_VALUE_DEPTH} \
                     levels."
                ),
            ),
        }
    }
}

/// The size of a value with everything in it; `None` beyond the limits.
pub(crate) fn weigh(value: &Value) -> Option<usize> {
    let mut weight = 0;
    add_weight(value, &mut weight, 0).then_some(weight)
}

fn add_weight(value: &Value, weight: &mut usize, depth: usize) -> bool {
    *weight += match value {
        Value::String(text) => 1 + text.len() / 64,
        Value::Number(number) => number.weight(),
        _ => 1,
    };
    if *weight > MAX_VALUE_WEIGHT || depth > MAX_VALUE_DEPTH {
        return false;
    }
    match (value.items(), value.members()) {
        (Some(items), _) => items.iter().all(|v| add_weight(v, weight, depth + 1)),
        (_, Some(members)) => members.values().all(|v| add_weight(v, weight, depth + 1)),
        _ => true,
    }
}
