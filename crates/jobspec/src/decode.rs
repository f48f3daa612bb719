//! From bodies to the job, by the table in [`crate::schema`].

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::content::{Argument, BlockItem, BlockShape, Content, Reader, Shape};
use crate::diag::{Diagnostic, Source, Span};
use crate::duration::parse_duration;
use crate::eval::convert::{self, convert};
use crate::eval::{Evaluator, Failed, Scope, Type, Value};
use crate::hcl::{Body, BodyKind, Expr};
use crate::schema::{Form, Key, Kind, Many, Spec};
use crate::tree::{Fields, Node, NodeKind, block_of, slot, zero_fields};
use crate::{Extension, assemble};

const UNSUITABLE: &str = "Unsuitable value type";
/// What a field of an object counts against the limit of steps.
pub(crate) const STEPS_PER_FIELD: usize = 4;

/// How a map that is the value of an argument is passed on in free content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maps {
    /// As a list of one map, as if it were a block that was written once.
    Listed,
    /// As it is.
    Plain,
}

/// Reads the blocks of one file.
pub(crate) struct Decoder<'r, 'h> {
    pub source: &'r Arc<Source>,
    pub evaluator: &'r mut Evaluator<'h>,
    /// Keys that were written and that the peer does not know.
    pub extensions: Vec<Extension>,
    /// Block types from the job down to where we are.
    pub path: Vec<&'static str>,
}

/// The label names of a block type, for messages.
fn labels_of(spec: &Spec, hcl: &str) -> &'static [&'static str] {
    match (spec.keys.iter().any(|k| matches!(k.kind, Kind::Label)), hcl) {
        (false, _) => &[],
        (true, "reserved_ports") => &[""],
        (true, _) => &["name"],
    }
}

impl Decoder<'_, '_> {
    pub fn fail<T>(&mut self, span: Span, summary: &str, detail: impl Into<String>) -> Result<T, Failed> {
        self.evaluator.fail(self.source, span, summary, detail)
    }

    /// `file:line,column-column`
    fn place(&self, span: Span) -> String {
        let (from, to) = (self.source.position(span.start), self.source.position(span.end));
        let end = if from.line == to.line { to.column.to_string() } else { format!("{},{}", to.line, to.column) };
        format!("{}:{},{}-{end}", self.source.name(), from.line, from.column)
    }

    /// One block as an object with every field.
    pub fn object(&mut self, spec: &'static Spec, block: &BlockItem<'_>) -> Node {
        let mut fields = zero_fields(spec);
        // Dynamic blocks can make many objects out of few lines.
        let cost = STEPS_PER_FIELD * (spec.keys.len() + 1);
        if self.evaluator.charge(self.source, block.header, cost).is_err() {
            return Node::object(fields, block.header);
        }
        let content = self.read(spec, &block.body, &block.scope);
        if let Some(key) = spec.keys.iter().find(|k| matches!(k.kind, Kind::Label))
            && let Some(label) = block.labels.first()
        {
            fields.insert(slot(key), Node::leaf(Json::from(&*label.name), label.span));
        }
        for key in spec.keys.iter().filter(|k| !k.hcl.is_empty()) {
            // A fault is recorded; the other keys are still read.
            if let Ok(Some(node)) = self.key(key, &content, &block.scope) {
                self.note(key, node.span.unwrap_or(block.header));
                fields.insert(slot(key), node);
            }
        }
        self.require(spec, &content, &block.body);
        assemble::finish(self, spec, &mut fields);
        fields.retain(|name, _| !name.starts_with('#'));
        Node::object(fields, block.header)
    }

    /// Like [`Self::object`], for the job: what is worked into other fields is kept for the caller.
    pub fn raw_fields(&mut self, spec: &'static Spec, block: &BlockItem<'_>) -> Fields {
        let content = self.read(spec, &block.body, &block.scope);
        let mut fields = zero_fields(spec);
        for key in spec.keys.iter().filter(|k| !k.hcl.is_empty()) {
            if let Ok(Some(node)) = self.key(key, &content, &block.scope) {
                self.note(key, node.span.unwrap_or(block.header));
                fields.insert(slot(key), node);
            }
        }
        self.require(spec, &content, &block.body);
        fields
    }

    fn read<'b>(&mut self, spec: &'static Spec, body: &'b Body, scope: &Scope) -> Content<'b> {
        let mut shape = Shape { dynamic: true, ..Shape::default() };
        for key in spec.keys.iter().filter(|k| !k.hcl.is_empty()) {
            let (attribute, block) = match key.kind {
                Kind::Block(..) | Kind::TextsMap => (false, true),
                Kind::TextMap(form) | Kind::Free(form) => (form != Form::Block, form != Form::Argument),
                _ => (true, false),
            };
            if attribute {
                shape.attributes.push(key.hcl);
            }
            if block {
                let labels = block_of(key.kind).map_or(&[] as &[&str], |(spec, _)| labels_of(spec, key.hcl));
                shape.blocks.push(BlockShape { name: key.hcl, labels });
            }
        }
        Reader { source: self.source, evaluator: self.evaluator }.content(body, &shape, scope)
    }

    fn note(&mut self, key: &Key, span: Span) {
        if key.ours {
            let path = format!("{}.{}", self.path.join("."), key.hcl);
            self.extensions.push(Extension { path, span });
        }
    }

    fn require(&mut self, spec: &'static Spec, content: &Content<'_>, body: &Body) {
        for key in spec.keys.iter().filter(|k| k.required) {
            if !content.arguments.iter().any(|a| &*a.name.name == key.hcl) {
                let detail = format!("The argument \"{}\" is required, but no definition was found.", key.hcl);
                let _: Result<(), Failed> = self.fail(body.missing.head(), "Missing required argument", detail);
            }
        }
    }

    /// The value of one key, if it was written.
    fn key(&mut self, key: &'static Key, content: &Content<'_>, scope: &Scope) -> Result<Option<Node>, Failed> {
        let argument = content.arguments.iter().find(|a| &*a.name.name == key.hcl);
        let blocks: Vec<&BlockItem<'_>> = content.blocks.iter().filter(|b| &*b.kind.name == key.hcl).collect();
        if let (Some(argument), Some(block)) = (argument, blocks.first()) {
            let other = self.place(argument.span);
            let detail =
                format!("{0} may not be defined more than once. Another definition is defined at {other}.", key.hcl);
            return self.fail(block.header, &format!("Duplicate {} block", key.hcl), detail);
        }
        if let Some(argument) = argument {
            return self.argument(key, argument, scope);
        }
        if blocks.is_empty() {
            return Ok(None);
        }
        if !matches!(key.kind, Kind::Block(_, Many::List | Many::Map)) {
            self.only_one(key.hcl, &blocks)?;
        }
        self.path.push(key.hcl);
        let node = self.blocks(key, &blocks);
        self.path.pop();
        node.map(Some)
    }

    fn only_one(&mut self, name: &str, blocks: &[&BlockItem<'_>]) -> Result<(), Failed> {
        let [first, second, ..] = blocks else { return Ok(()) };
        let other = self.place(first.header);
        let detail = format!("Only one {name} block is allowed. Another was defined at {other}.");
        self.fail(second.header, &format!("Duplicate {name} block"), detail)
    }

    fn blocks(&mut self, key: &'static Key, blocks: &[&BlockItem<'_>]) -> Result<Node, Failed> {
        let Some(first) = blocks.first() else { return Err(Failed) };
        match key.kind {
            Kind::Block(spec, Many::One) => Ok(self.object(spec, first)),
            Kind::Block(spec, Many::List) => {
                let items = blocks.iter().map(|b| self.object(spec, b)).collect();
                Ok(Node::list(items, Some(first.header)))
            }
            Kind::Block(spec, Many::Map) => {
                let mut fields = Fields::new();
                for block in blocks {
                    let label = block.labels.first().map_or("", |l| &l.name).to_owned();
                    let node = self.object(spec, block);
                    if fields.insert(label.clone(), node).is_some() {
                        let detail = format!("There is already a {} block named {label:?}.", key.hcl);
                        return self.fail(block.header, &format!("Duplicate {} block", key.hcl), detail);
                    }
                }
                Ok(Node::object(fields, first.header))
            }
            Kind::TextMap(_) => self.text_block(first),
            Kind::TextsMap => self.texts_block(first),
            _ => self.free_body(&first.body, &first.scope, first.header, Maps::Listed),
        }
    }

    fn evaluate(&mut self, expr: &Expr, scope: &Scope) -> Result<Value, Failed> {
        self.evaluator.evaluate(self.source, expr, scope)
    }

    fn unsuitable<T>(&mut self, expr: &Expr, why: &str) -> Result<T, Failed> {
        self.fail(expr.focus(), UNSUITABLE, format!("Unsuitable value: {why}"))
    }

    fn argument(&mut self, key: &Key, argument: &Argument<'_>, scope: &Scope) -> Result<Option<Node>, Failed> {
        let expr: &Expr = &argument.expr;
        let value = self.evaluate(expr, scope)?;
        if matches!(key.kind, Kind::Duration) {
            let nanos = self.duration(expr, &value)?;
            return Ok(Some(Node::leaf(Json::from(nanos), argument.span)));
        }
        if value.is_null() {
            return if key.nullable { Ok(None) } else { self.unsuitable(expr, "null value is not allowed") };
        }
        let json = match key.kind {
            Kind::Text => Json::from(&*self.converted(expr, convert::to_string(&value))?),
            Kind::Bool => Json::from(self.converted(expr, convert::to_bool(&value))?),
            Kind::Int(low, high) => Json::from(self.int(expr, &value, low, high)?),
            Kind::Int8Wrapping => Json::from(self.wrapped(expr, &value)?),
            Kind::Texts => {
                let list = self.converted(expr, convert(&value, &Type::List(Box::new(Type::String))))?;
                let items = list.items().cloned().unwrap_or_default();
                let texts: Result<Vec<Json>, Failed> = items.iter().map(|v| self.element(expr, v)).collect();
                Json::Array(texts?)
            }
            Kind::Ints => {
                let list = self.converted(expr, convert(&value, &Type::List(Box::new(Type::Number))))?;
                let items = list.items().cloned().unwrap_or_default();
                let ints: Result<Vec<Json>, Failed> =
                    items.iter().map(|v| self.int(expr, v, 0, 65_535).map(Json::from)).collect();
                Json::Array(ints?)
            }
            Kind::TextMap(_) => return self.text_map(argument, expr, &value).map(Some),
            _ => {
                let Some(members) = value.members() else {
                    return self.unsuitable(expr, &format!("map required, but have {}", value.kind_name()));
                };
                let mut object = serde_json::Map::new();
                for (name, member) in members.iter() {
                    object.insert(name.clone(), self.free_value(expr, member)?);
                }
                Json::Object(object)
            }
        };
        Ok(Some(Node::leaf(json, argument.span)))
    }

    fn converted<T>(&mut self, expr: &Expr, result: Result<T, String>) -> Result<T, Failed> {
        result.or_else(|why| self.unsuitable(expr, &why))
    }

    fn element(&mut self, expr: &Expr, value: &Value) -> Result<Json, Failed> {
        match value {
            Value::String(text) => Ok(Json::from(&**text)),
            _ => self.unsuitable(expr, "null value is not allowed"),
        }
    }

    fn int(&mut self, expr: &Expr, value: &Value, low: i64, high: i64) -> Result<i64, Failed> {
        let number = self.converted(expr, convert::to_number(value))?;
        match number.to_i64().filter(|n| (low..=high).contains(n)) {
            Some(n) => Ok(n),
            None => self.unsuitable(expr, &format!("value must be a whole number, between {low} and {high}")),
        }
    }

    /// The peer keeps the lowest eight bits.
    fn wrapped(&mut self, expr: &Expr, value: &Value) -> Result<i8, Failed> {
        let given = self.int(expr, value, i64::MIN, i64::MAX)?;
        let kept = given as i8;
        if i64::from(kept) != given {
            let detail = format!("{given} does not fit into -128 to 127; {kept} is what remains of it.");
            self.evaluator.diagnostics.push(Diagnostic::warning(
                self.source,
                expr.focus(),
                "Number out of range",
                detail,
            ));
        }
        Ok(kept)
    }

    fn duration(&mut self, expr: &Expr, value: &Value) -> Result<i64, Failed> {
        match value {
            Value::Null => self.fail(expr.focus(), "Unsuitable value", "Unsuitable duration value: nil"),
            Value::String(text) => match parse_duration(text) {
                Ok(nanos) => Ok(nanos),
                Err(why) => self.fail(expr.focus(), UNSUITABLE, format!("Unsuitable duration value: {why}")),
            },
            Value::Number(_) => self.int(expr, value, i64::MIN, i64::MAX),
            other => {
                let why = format!(
                    "expected a string such as \"30s\" or a number of nanoseconds, but found {}",
                    other.kind_name()
                );
                self.unsuitable(expr, &why)
            }
        }
    }

    fn text_map(&mut self, argument: &Argument<'_>, expr: &Expr, value: &Value) -> Result<Node, Failed> {
        let map = self.converted(expr, convert(value, &Type::Map(Box::new(Type::String))))?;
        let members = map.members().cloned().unwrap_or_default();
        let mut fields = Fields::new();
        for (name, member) in members.iter() {
            let json = self.element(expr, member)?;
            fields.insert(name.clone(), Node::leaf(json, argument.span));
        }
        Ok(Node::object(fields, argument.span))
    }

    fn arguments<'b>(&mut self, block: &'b BlockItem<'_>) -> Vec<Argument<'b>> {
        Reader { source: self.source, evaluator: self.evaluator }.any_arguments(&block.body)
    }

    fn text_block(&mut self, block: &BlockItem<'_>) -> Result<Node, Failed> {
        let mut fields = Fields::new();
        for argument in self.arguments(block) {
            let Ok(value) = self.evaluate(&argument.expr, &block.scope) else { continue };
            let text = match value {
                Value::Null => Err("null value is not allowed".to_owned()),
                value => convert::to_string(&value),
            };
            if let Ok(text) = self.converted(&argument.expr, text) {
                fields.insert(argument.name.name.to_string(), Node::leaf(Json::from(&*text), argument.span));
            }
        }
        Ok(Node::object(fields, block.header))
    }

    fn texts_block(&mut self, block: &BlockItem<'_>) -> Result<Node, Failed> {
        let mut fields = Fields::new();
        for argument in self.arguments(block) {
            let Ok(value) = self.evaluate(&argument.expr, &block.scope) else { continue };
            let list = convert(&value, &Type::List(Box::new(Type::String)));
            let Ok(list) = self.converted(&argument.expr, list) else { continue };
            let items = list.items().cloned().unwrap_or_default();
            let texts: Result<Vec<Json>, Failed> = items.iter().map(|v| self.element(&argument.expr, v)).collect();
            if let Ok(texts) = texts {
                fields.insert(argument.name.name.to_string(), Node::leaf(Json::Array(texts), argument.span));
            }
        }
        Ok(Node::object(fields, block.header))
    }

    /// Content that is passed on as it is: blocks become lists of objects, by type and labels.
    pub fn free_body(&mut self, body: &Body, scope: &Scope, span: Span, maps: Maps) -> Result<Node, Failed> {
        let mut fields = Fields::new();
        let arguments = match &body.kind {
            BodyKind::Native { attributes, .. } => attributes
                .iter()
                .map(|a| Argument { name: a.name.clone(), expr: std::borrow::Cow::Borrowed(&a.expr), span: a.span })
                .collect(),
            BodyKind::Json(_) => Reader { source: self.source, evaluator: self.evaluator }.any_arguments(body),
        };
        for argument in arguments {
            let Ok(value) = self.evaluate(&argument.expr, scope) else { continue };
            if value.is_null() {
                continue;
            }
            let Ok(json) = self.free_value(&argument.expr, &value) else { continue };
            let listed = maps == Maps::Listed && value.members().is_some();
            let json = if listed { Json::Array(vec![json]) } else { json };
            fields.insert(argument.name.name.to_string(), Node::leaf(json, argument.span));
        }
        if let BodyKind::Native { blocks, .. } = &body.kind {
            let mut lists: BTreeMap<String, Vec<Node>> = BTreeMap::new();
            for block in blocks {
                if &*block.kind.name == "dynamic" && maps == Maps::Listed {
                    self.evaluator.diagnostics.push(Diagnostic::warning(
                        self.source,
                        block.header,
                        "Dynamic block is not expanded",
                        "In content that is passed on as it is, such as a task's config, \"dynamic\" is an ordinary \
                         block. Write a \"for\" expression instead.",
                    ));
                }
                let Ok(mut node) = self.free_body(&block.body, scope, block.header, maps) else { continue };
                for label in block.labels.iter().rev() {
                    let inner = Fields::from([(label.name.to_string(), Node::list(vec![node], Some(block.header)))]);
                    node = Node::object(inner, block.header);
                }
                lists.entry(block.kind.name.to_string()).or_default().push(node);
            }
            for (name, items) in lists {
                let first = items.first().and_then(|n| n.span);
                fields.insert(name, Node::list(items, first));
            }
        }
        Ok(Node { kind: NodeKind::Object(fields), span: Some(span) })
    }

    fn free_value(&mut self, expr: &Expr, value: &Value) -> Result<Json, Failed> {
        Ok(match value {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::from(*b),
            Value::String(text) => Json::from(&**text),
            Value::Number(number) => match number.to_i64() {
                Some(n) => Json::from(n),
                None => match serde_json::Number::from_f64(number.to_f64()) {
                    Some(n) => Json::Number(n),
                    None => return self.unsuitable(expr, "the number is too large"),
                },
            },
            other => match (other.items(), other.members()) {
                (Some(items), _) => {
                    let items: Result<Vec<Json>, Failed> = items.iter().map(|v| self.free_value(expr, v)).collect();
                    Json::Array(items?)
                }
                (_, Some(members)) => {
                    let mut object = serde_json::Map::new();
                    for (name, member) in members.iter() {
                        object.insert(name.clone(), self.free_value(expr, member)?);
                    }
                    Json::Object(object)
                }
                _ => Json::Null,
            },
        })
    }
}
