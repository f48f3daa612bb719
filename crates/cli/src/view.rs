//! Reading answers of the API by key; what is absent reads as empty.

use serde_json::Value;

static NOTHING: Value = Value::Null;

/// Access to the fields of an answer.
pub trait View {
    /// A field; null when absent.
    fn at(&self, key: &str) -> &Value;
    /// A text field; empty when absent.
    fn text(&self, key: &str) -> &str;
    /// A whole number; 0 when absent.
    fn int(&self, key: &str) -> i64;
    /// A number; 0 when absent.
    fn float(&self, key: &str) -> f64;
    /// A truth value; false when absent.
    fn on(&self, key: &str) -> bool;
    /// The members of a list; none when absent.
    fn list(&self, key: &str) -> &[Value];
    /// The members of an object, in order of their names; none when absent.
    fn entries(&self, key: &str) -> Vec<(&String, &Value)>;
    /// The value as people read it: texts bare, null empty, anything else as JSON.
    fn plain(&self) -> String;
}

impl View for Value {
    fn at(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&NOTHING)
    }

    fn text(&self, key: &str) -> &str {
        self.at(key).as_str().unwrap_or_default()
    }

    fn int(&self, key: &str) -> i64 {
        match self.at(key) {
            Value::Number(n) => n.as_i64().unwrap_or_else(|| if n.is_u64() { i64::MAX } else { whole(n.as_f64()) }),
            _ => 0,
        }
    }

    fn float(&self, key: &str) -> f64 {
        self.at(key).as_f64().unwrap_or(0.0)
    }

    fn on(&self, key: &str) -> bool {
        self.at(key).as_bool().unwrap_or(false)
    }

    fn list(&self, key: &str) -> &[Value] {
        self.at(key).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn entries(&self, key: &str) -> Vec<(&String, &Value)> {
        entries_of(self.at(key))
    }

    fn plain(&self) -> String {
        match self {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

#[allow(clippy::cast_possible_truncation)]
fn whole(number: Option<f64>) -> i64 {
    // The cast of a float saturates.
    number.unwrap_or(0.0) as i64
}

/// The members of an answer that is a list.
pub fn members(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The members of an answer that is an object, in order of their names.
pub fn entries_of(value: &Value) -> Vec<(&String, &Value)> {
    let mut all: Vec<_> = value.as_object().map(|o| o.iter().collect()).unwrap_or_default();
    all.sort_by_key(|(name, _)| *name);
    all
}

/// `<none>` for an empty text.
pub fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

/// Texts of a list, joined.
pub fn join(list: &[Value], by: &str) -> String {
    list.iter().map(View::plain).collect::<Vec<_>>().join(by)
}

/// JSON with four spaces of indentation, as the peer prints it.
pub fn pretty(value: &Value) -> String {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    match serde::Serialize::serialize(value, &mut serializer) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        // A JSON value is always writable to memory; its compact form is the same data.
        Err(_) => value.to_string(),
    }
}
