//! The job while it is put together: JSON that remembers where each part was written.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::diag::Span;
use crate::schema::{Kind, Many, Spec, Zero};

/// A part of the job.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub kind: NodeKind,
    /// Where it was written, if it was.
    pub span: Option<Span>,
}

#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    Leaf(Json),
    List(Vec<Node>),
    Object(Fields),
}

/// Members of an object. Names that begin with `#` are keys without a field of their own; they are worked in and
/// removed before the end.
pub(crate) type Fields = BTreeMap<String, Node>;

impl Node {
    pub fn leaf(value: Json, span: Span) -> Self {
        Self { kind: NodeKind::Leaf(value), span: Some(span) }
    }

    pub fn unset(value: Json) -> Self {
        Self { kind: NodeKind::Leaf(value), span: None }
    }

    pub fn list(items: Vec<Node>, span: Option<Span>) -> Self {
        Self { kind: NodeKind::List(items), span }
    }

    pub fn object(fields: Fields, span: Span) -> Self {
        Self { kind: NodeKind::Object(fields), span: Some(span) }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.kind, NodeKind::Leaf(Json::Null))
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Leaf(Json::String(text)) => Some(text),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match &self.kind {
            NodeKind::Leaf(value) => value.as_i64(),
            _ => None,
        }
    }

    pub fn fields_mut(&mut self) -> Option<&mut Fields> {
        match &mut self.kind {
            NodeKind::Object(fields) => Some(fields),
            _ => None,
        }
    }

    /// The items of a list; none for null.
    pub fn items_mut(&mut self) -> &mut [Node] {
        match &mut self.kind {
            NodeKind::List(items) => items,
            _ => &mut [],
        }
    }

    pub fn into_items(self) -> Vec<Node> {
        match self.kind {
            NodeKind::List(items) => items,
            _ => Vec::new(),
        }
    }

    /// The JSON, and the place of every part by its JSON pointer.
    pub fn finish(self, pointer: &mut String, spans: &mut BTreeMap<String, Span>) -> Json {
        if let Some(span) = self.span {
            spans.insert(pointer.clone(), span);
        }
        let len = pointer.len();
        match self.kind {
            NodeKind::Leaf(value) => value,
            NodeKind::List(items) => Json::Array(
                items
                    .into_iter()
                    .enumerate()
                    .map(|(i, item)| {
                        pointer.push_str(&format!("/{i}"));
                        let value = item.finish(pointer, spans);
                        pointer.truncate(len);
                        value
                    })
                    .collect(),
            ),
            NodeKind::Object(fields) => Json::Object(
                fields
                    .into_iter()
                    .map(|(name, node)| {
                        pointer.push('/');
                        pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                        let value = node.finish(pointer, spans);
                        pointer.truncate(len);
                        (name, value)
                    })
                    .collect(),
            ),
        }
    }
}

/// Every field of an object as it is when nothing is written.
pub(crate) fn zero_fields(spec: &Spec) -> Fields {
    let mut fields = Fields::new();
    for key in spec.keys.iter().filter(|k| !k.json.is_empty()) {
        let value = match key.zero {
            Zero::Null => Json::Null,
            Zero::Text(text) => Json::from(text),
            Zero::Int(n) => Json::from(n),
            Zero::Bool(b) => Json::from(b),
            Zero::EmptyList => Json::Array(Vec::new()),
            Zero::Omit => continue,
        };
        fields.insert(key.json.to_owned(), Node::unset(value));
    }
    fields
}

/// The name under which a key is kept in [`Fields`].
pub(crate) fn slot(key: &crate::schema::Key) -> String {
    if key.json.is_empty() { format!("#{}", key.hcl) } else { key.json.to_owned() }
}

/// The inner table and form of a block key.
pub(crate) fn block_of(kind: Kind) -> Option<(&'static Spec, Many)> {
    match kind {
        Kind::Block(spec, many) => Some((spec, many)),
        _ => None,
    }
}
