//! The table of every block and argument of a job file. Reading, suggestions, documentation and tests derive from it.

mod connect;
mod group;
mod job;
mod service;
mod task;

pub use job::JOB;

/// A block: its arguments, labels and blocks, and the fields of the JSON object it becomes.
#[derive(Debug)]
pub struct Spec {
    /// The name of the object in the API.
    pub name: &'static str,
    /// What it holds.
    pub keys: &'static [Key],
}

/// One argument, label or block of a block, or a field that only the API sets.
#[derive(Debug)]
pub struct Key {
    /// Its name in a job file; empty for a field that a job file cannot set.
    pub hcl: &'static str,
    /// The field it sets; empty if it is worked into others.
    pub json: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The field's content when nothing is written.
    pub zero: Zero,
    /// Whether `null` means the same as leaving it out.
    pub nullable: bool,
    /// Whether it must be written.
    pub required: bool,
    /// Whether the peer does not know it.
    pub ours: bool,
    /// What it is for.
    pub doc: &'static str,
}

/// What a key is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The block's label.
    Label,
    /// Text.
    Text,
    /// Boolean.
    Bool,
    /// Whole number from, to.
    Int(i64, i64),
    /// Whole number of which the peer keeps the lowest eight bits.
    Int8Wrapping,
    /// Nanoseconds, or a text such as `1h30m`.
    Duration,
    /// List of texts.
    Texts,
    /// List of whole numbers.
    Ints,
    /// A block, or several.
    Block(&'static Spec, Many),
    /// Names to texts, written as the form allows.
    TextMap(Form),
    /// Names to lists of texts, as a block.
    TextsMap,
    /// Any content, passed on as it is.
    Free(Form),
    /// Set by the API only.
    Fixed,
}

/// How often a block may stand, and what it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Many {
    /// Once: an object.
    One,
    /// Any number: a list.
    List,
    /// Any number: an object by label.
    Map,
}

/// How a map may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `x = { … }`
    Argument,
    /// `x { … }`
    Block,
    /// Either.
    Either,
}

/// The content of a field that nobody set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// `null`
    Null,
    /// This text.
    Text(&'static str),
    /// This number.
    Int(i64),
    /// This boolean.
    Bool(bool),
    /// `[]`
    EmptyList,
    /// The field is left out.
    Omit,
}

impl Key {
    const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// `null` leaves the default in place.
    const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// How the kind reads in documentation.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Label => "label",
            Kind::Text => "string",
            Kind::Bool => "bool",
            Kind::Int(..) | Kind::Int8Wrapping => "number",
            Kind::Duration => "duration",
            Kind::Texts => "list(string)",
            Kind::Ints => "list(number)",
            Kind::Block(_, Many::One) => "block",
            Kind::Block(..) => "block*",
            Kind::TextMap(Form::Argument) => "map(string)",
            Kind::TextMap(Form::Block) => "block of strings",
            Kind::TextMap(Form::Either) => "map(string) or block",
            Kind::TextsMap => "block of list(string)",
            Kind::Free(Form::Block) => "free block",
            Kind::Free(_) => "free block or map",
            Kind::Fixed => "-",
        }
    }
}

const fn key(hcl: &'static str, json: &'static str, kind: Kind, zero: Zero, doc: &'static str) -> Key {
    let nullable = matches!(zero, Zero::Null | Zero::Omit);
    Key { hcl, json, kind, zero, nullable, required: false, ours: false, doc }
}

/// A text that is `""` when not set.
const fn text(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Text, Zero::Text(""), doc)
}

/// A text that is null when not set.
const fn text_or_null(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Text, Zero::Null, doc)
}

const fn boolean(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Bool, Zero::Bool(false), doc)
}

const fn bool_or_null(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Bool, Zero::Null, doc)
}

const fn int(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Int(i64::MIN, i64::MAX), Zero::Int(0), doc)
}

const fn int_or_null(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Int(i64::MIN, i64::MAX), Zero::Null, doc)
}

const fn duration(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Duration, Zero::Int(0), doc)
}

const fn duration_or_null(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Duration, Zero::Null, doc)
}

const fn texts(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Texts, Zero::Null, doc)
}

const fn label(json: &'static str, doc: &'static str) -> Key {
    key("", json, Kind::Label, Zero::Text(""), doc)
}

const fn one(hcl: &'static str, json: &'static str, spec: &'static Spec, doc: &'static str) -> Key {
    key(hcl, json, Kind::Block(spec, Many::One), Zero::Null, doc)
}

const fn many(hcl: &'static str, json: &'static str, spec: &'static Spec, doc: &'static str) -> Key {
    key(hcl, json, Kind::Block(spec, Many::List), Zero::Null, doc)
}

const fn map(hcl: &'static str, json: &'static str, form: Form, doc: &'static str) -> Key {
    key(hcl, json, Kind::TextMap(form), Zero::Null, doc)
}

const fn free(hcl: &'static str, json: &'static str, form: Form, doc: &'static str) -> Key {
    key(hcl, json, Kind::Free(form), Zero::Null, doc)
}

/// A field that only the API sets.
const fn fixed(json: &'static str, zero: Zero) -> Key {
    key("", json, Kind::Fixed, zero, "set by the server")
}

/// An argument of ours that the peer does not know; absent from the JSON when not written.
const fn ours(hcl: &'static str, json: &'static str, kind: Kind, doc: &'static str) -> Key {
    let mut key = key(hcl, json, kind, Zero::Omit, doc);
    key.ours = true;
    key
}

/// A row of [`describe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Blocks from the job down, joined with dots: `job.group.task`.
    pub path: String,
    /// The name in a job file; `<label>` for a label.
    pub key: &'static str,
    /// What may be written.
    pub type_name: &'static str,
    /// The field of the API; empty if it is worked into others.
    pub json: &'static str,
    /// Whether it must be written.
    pub required: bool,
    /// Whether the peer does not know it.
    pub ours: bool,
    /// What it is for.
    pub doc: &'static str,
}

/// The whole table as rows, blocks before what is in them.
pub fn describe() -> Vec<Described> {
    let mut rows = Vec::new();
    rows_of("job", &JOB, &mut rows);
    rows
}

fn rows_of(path: &str, spec: &'static Spec, rows: &mut Vec<Described>) {
    for key in spec.keys {
        if key.hcl.is_empty() && !matches!(key.kind, Kind::Label) {
            continue;
        }
        rows.push(Described {
            path: path.to_owned(),
            key: if key.hcl.is_empty() { "<label>" } else { key.hcl },
            type_name: key.type_name(),
            json: key.json,
            required: key.required,
            ours: key.ours,
            doc: key.doc,
        });
    }
    for key in spec.keys {
        if let Kind::Block(inner, _) = key.kind {
            rows_of(&format!("{path}.{}", key.hcl), inner, rows);
        }
    }
}
