//! What a body holds, seen through what is expected in it: the same for both syntaxes, with `dynamic` blocks expanded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diag::{Source, Span, nearest};
use crate::eval::convert;
use crate::eval::{Evaluator, Failed, Scope, Value};
use crate::hcl::{self, Attribute, Block, Body, BodyKind, Expr, ExprKind, Ident, Json, JsonKind, Property};

/// A block type that may stand in a body.
#[derive(Clone, Debug)]
pub struct BlockShape<'s> {
    /// Its type.
    pub name: &'s str,
    /// What its labels are called.
    pub labels: &'s [&'s str],
}

/// What may stand in a body.
#[derive(Clone, Debug, Default)]
pub struct Shape<'s> {
    /// Names of arguments.
    pub attributes: Vec<&'s str>,
    /// Types of blocks.
    pub blocks: Vec<BlockShape<'s>>,
    /// Whether `dynamic` blocks are expanded.
    pub dynamic: bool,
}

/// An argument found.
#[derive(Clone, Debug)]
pub struct Argument<'b> {
    /// Its name.
    pub name: Ident,
    /// Its value.
    pub expr: Cow<'b, Expr>,
    /// The whole of it.
    pub span: Span,
}

/// A block found.
#[derive(Clone, Debug)]
pub struct BlockItem<'b> {
    /// Its type.
    pub kind: Ident,
    /// Its labels.
    pub labels: Vec<Ident>,
    /// Its content.
    pub body: Cow<'b, Body>,
    /// Type and labels.
    pub header: Span,
    /// The names its expressions may use.
    pub scope: Scope,
}

/// What a body holds.
#[derive(Clone, Debug, Default)]
pub struct Content<'b> {
    /// Its arguments.
    pub arguments: Vec<Argument<'b>>,
    /// Its blocks.
    pub blocks: Vec<BlockItem<'b>>,
}

/// Reads bodies of one file.
pub struct Reader<'r, 'h> {
    /// The file.
    pub source: &'r Arc<Source>,
    /// Evaluates the `dynamic` blocks, and keeps the messages.
    pub evaluator: &'r mut Evaluator<'h>,
}

impl Reader<'_, '_> {
    fn fail<T>(&mut self, span: Span, summary: &str, detail: impl Into<String>) -> Result<T, Failed> {
        self.evaluator.fail(self.source, span, summary, detail)
    }

    /// Sorts a body into what is expected; the rest is an error each.
    pub fn content<'b>(&mut self, body: &'b Body, shape: &Shape<'_>, scope: &Scope) -> Content<'b> {
        let mut content = Content::default();
        match &body.kind {
            BodyKind::Native { attributes, blocks } => {
                for attribute in attributes {
                    self.native_argument(attribute, shape, &mut content);
                }
                for block in blocks {
                    // The message is recorded; other blocks are still read.
                    let _ = self.native_block(block, shape, scope, &mut content);
                }
            }
            BodyKind::Json(properties) => {
                for property in properties.iter() {
                    let _ = self.json_property(property, shape, scope, &mut content);
                }
            }
        }
        content
    }

    fn native_argument<'b>(&mut self, attribute: &'b Attribute, shape: &Shape<'_>, content: &mut Content<'b>) {
        let name = &*attribute.name.name;
        if shape.attributes.contains(&name) {
            content.arguments.push(Argument {
                name: attribute.name.clone(),
                expr: Cow::Borrowed(&attribute.expr),
                span: attribute.span,
            });
            return;
        }
        let mut detail = format!("An argument named \"{name}\" is not expected here.");
        if shape.blocks.iter().any(|b| b.name == name) {
            detail.push_str(&format!(" Did you mean to define a block of type \"{name}\"?"));
        } else if let Some(near) = nearest(name, shape.attributes.iter().copied()) {
            detail.push_str(&format!(" Did you mean \"{near}\"?"));
        } else if let Some(near) = nearest(name, shape.blocks.iter().map(|b| b.name)) {
            detail.push_str(&format!(" Did you mean to define a block of type \"{near}\"?"));
        }
        let _: Result<(), Failed> = self.fail(attribute.name.span, "Unsupported argument", detail);
    }

    fn unexpected_block(&mut self, span: Span, name: &str, shape: &Shape<'_>) -> Failed {
        let mut detail = format!("Blocks of type \"{name}\" are not expected here.");
        if shape.attributes.contains(&name) {
            detail.push_str(&format!(
                " Did you mean to define argument \"{name}\"? If so, use the equals sign to assign it a value."
            ));
        } else if let Some(near) = nearest(name, shape.blocks.iter().map(|b| b.name)) {
            detail.push_str(&format!(" Did you mean \"{near}\"?"));
        } else if let Some(near) = nearest(name, shape.attributes.iter().copied()) {
            detail.push_str(&format!(" Did you mean to define argument \"{near}\"?"));
        }
        let _: Result<(), Failed> = self.fail(span, "Unsupported block type", detail);
        Failed
    }

    fn native_block<'b>(
        &mut self,
        block: &'b Block,
        shape: &Shape<'_>,
        scope: &Scope,
        content: &mut Content<'b>,
    ) -> Result<(), Failed> {
        let name = &*block.kind.name;
        let Some(expected) = shape.blocks.iter().find(|b| b.name == name) else {
            if shape.dynamic && name == "dynamic" {
                return self.native_dynamic(block, shape, scope, content);
            }
            return Err(self.unexpected_block(block.kind.span, name, shape));
        };
        self.check_labels(block, expected)?;
        content.blocks.push(BlockItem {
            kind: block.kind.clone(),
            labels: block.labels.clone(),
            body: Cow::Borrowed(&block.body),
            header: block.header,
            scope: scope.clone(),
        });
        Ok(())
    }

    fn check_labels(&mut self, block: &Block, expected: &BlockShape<'_>) -> Result<(), Failed> {
        let name = expected.name;
        let wanted = expected.labels.len();
        if let Some(missing) = expected.labels.get(block.labels.len()) {
            let detail = format!("All {name} blocks must have {wanted} labels ({}).", expected.labels.join(", "));
            return self.fail(block.open, &format!("Missing {missing} for {name}"), detail);
        }
        let Some(extra) = block.labels.get(wanted) else { return Ok(()) };
        let detail = if wanted == 0 {
            format!("No labels are expected for {name} blocks.")
        } else {
            format!("Only {wanted} labels ({}) are expected for {name} blocks.", expected.labels.join(", "))
        };
        self.fail(extra.span, &format!("Extraneous label for {name}"), detail)
    }

    fn native_dynamic<'b>(
        &mut self,
        block: &'b Block,
        shape: &Shape<'_>,
        scope: &Scope,
        content: &mut Content<'b>,
    ) -> Result<(), Failed> {
        let expected = BlockShape { name: "dynamic", labels: &["type"] };
        self.check_labels(block, &expected)?;
        let Some(label) = block.labels.first() else { return Err(Failed) };
        self.dynamic(label, Cow::Borrowed(&block.body), block.header, shape, scope, content)
    }

    /// One block for each element of a collection.
    fn dynamic<'b>(
        &mut self,
        label: &Ident,
        body: Cow<'b, Body>,
        header: Span,
        shape: &Shape<'_>,
        scope: &Scope,
        content: &mut Content<'b>,
    ) -> Result<(), Failed> {
        let name = &*label.name;
        let Some(expected) = shape.blocks.iter().find(|b| b.name == name) else {
            return Err(self.unexpected_block(label.span, name, shape));
        };
        let labels_wanted = expected.labels.len();
        let parts = self.dynamic_parts(body, labels_wanted > 0, scope)?;
        let iterator = parts.iterator.unwrap_or_else(|| Arc::clone(&label.name));
        let values = self.for_each(&parts.for_each, scope)?;
        let mut result = Ok(());
        for (key, value) in values {
            self.evaluator.step(self.source, parts.for_each.span)?;
            let element = BTreeMap::from([("key".to_owned(), key), ("value".to_owned(), value)]);
            let inner = scope.with(Arc::clone(&iterator), Value::object(element));
            let labels = match &parts.labels {
                Some(labels) => self.dynamic_labels(labels, labels_wanted, &inner),
                None => Ok(Vec::new()),
            };
            match labels {
                Ok(labels) => content.blocks.push(BlockItem {
                    kind: label.clone(),
                    labels,
                    body: parts.content.clone(),
                    header,
                    scope: inner,
                }),
                Err(failed) => result = Err(failed),
            }
        }
        result
    }

    fn dynamic_parts<'b>(&mut self, body: Cow<'b, Body>, labelled: bool, scope: &Scope) -> Result<Dynamic<'b>, Failed> {
        let mut attributes = vec!["for_each", "iterator"];
        if labelled {
            attributes.push("labels");
        }
        let shape = Shape { attributes, blocks: vec![BlockShape { name: "content", labels: &[] }], dynamic: false };
        let missing = body.missing;
        let content = match body {
            Cow::Borrowed(body) => self.content(body, &shape, scope),
            Cow::Owned(body) => self.content(&body, &shape, scope).into_owned(),
        };
        let mut found = content.arguments;
        let mut take = |name: &str| {
            found.iter().position(|a| &*a.name.name == name).map(|at| found.swap_remove(at).expr.into_owned())
        };
        let (for_each, iterator, labels) = (take("for_each"), take("iterator"), take("labels"));
        for (present, name) in [(labels.is_some() || !labelled, "labels"), (for_each.is_some(), "for_each")] {
            if !present {
                let detail = format!("The argument \"{name}\" is required, but no definition was found.");
                return self.fail(missing.head(), "Missing required argument", detail);
            }
        }
        let mut blocks = content.blocks.into_iter();
        let (Some(for_each), Some(block)) = (for_each, blocks.next()) else {
            return self.fail(
                missing.head(),
                "Missing dynamic content block",
                "A dynamic block must have a nested block of type \"content\" to describe the body of each generated \
                 block.",
            );
        };
        if let Some(second) = blocks.next() {
            return self.fail(second.header, "Extraneous dynamic content block", "Only one content block is allowed.");
        }
        let iterator = match iterator.as_ref().map(|e| (&*e.kind, e.span)) {
            None => None,
            Some((ExprKind::Name(name) | ExprKind::String(name), _)) => Some(Arc::clone(name)),
            Some((_, span)) => {
                return self.fail(span, "Invalid dynamic iterator name", "The iterator must be a bare name.");
            }
        };
        Ok(Dynamic { for_each, iterator, labels, content: block.body })
    }

    fn for_each(&mut self, expr: &Expr, scope: &Scope) -> Result<Vec<(Value, Value)>, Failed> {
        const SUMMARY: &str = "Invalid dynamic for_each value";
        let value = self.evaluator.evaluate(self.source, expr, scope)?;
        if value.is_null() {
            return self.fail(expr.span, SUMMARY, "Cannot use a null value in for_each.");
        }
        match crate::eval::pairs_of(&value) {
            Some(pairs) => Ok(pairs),
            None => {
                let detail = format!(
                    "Cannot use a {} value in for_each. An iterable collection is required.",
                    value.kind_name()
                );
                self.fail(expr.span, SUMMARY, detail)
            }
        }
    }

    fn dynamic_labels(&mut self, expr: &Expr, wanted: usize, scope: &Scope) -> Result<Vec<Ident>, Failed> {
        const SUMMARY: &str = "Invalid dynamic block label";
        let value = self.evaluator.evaluate(self.source, expr, scope)?;
        let Some(items) = value.items().filter(|items| items.len() == wanted) else {
            return self.fail(expr.span, SUMMARY, format!("A list of {wanted} label(s) is required."));
        };
        let mut labels = Vec::new();
        for item in items.iter() {
            match convert::to_string(item) {
                Ok(name) => labels.push(Ident { name, span: expr.span }),
                Err(why) => return self.fail(expr.span, SUMMARY, format!("A label must be a string: {why}.")),
            }
        }
        Ok(labels)
    }

    fn json_property<'b>(
        &mut self,
        property: &Property,
        shape: &Shape<'_>,
        scope: &Scope,
        content: &mut Content<'b>,
    ) -> Result<(), Failed> {
        let name = &*property.name.name;
        let span = property.name.span.to(property.value.span);
        if shape.attributes.contains(&name) && !is_blocks(shape, property) {
            if content.arguments.iter().any(|a| &*a.name.name == name) {
                let detail = format!("The argument \"{name}\" was already set. Each argument may be set only once.");
                return self.fail(property.name.span, "Attribute redefined", detail);
            }
            let expr = self.json_expr(&property.value)?;
            content.arguments.push(Argument { name: property.name.clone(), expr: Cow::Owned(expr), span });
            return Ok(());
        }
        if let Some(expected) = shape.blocks.iter().find(|b| b.name == name) {
            let mut labels = Vec::new();
            let wanted = expected.labels.len();
            return self.json_blocks(&property.name, &property.value, &mut labels, wanted, &mut |labels, body| {
                content.blocks.push(BlockItem {
                    kind: property.name.clone(),
                    labels,
                    body: Cow::Owned(body),
                    header: property.name.span,
                    scope: scope.clone(),
                });
            });
        }
        if shape.dynamic && name == "dynamic" {
            return self.json_dynamic(property, shape, scope, content);
        }
        if name == "//" {
            return Ok(());
        }
        let mut detail = format!("No argument or block type is named \"{name}\".");
        let known = shape.attributes.iter().copied().chain(shape.blocks.iter().map(|b| b.name));
        if let Some(near) = nearest(name, known) {
            detail.push_str(&format!(" Did you mean \"{near}\"?"));
        }
        self.fail(property.name.span, "Extraneous JSON object property", detail)
    }

    fn json_dynamic<'b>(
        &mut self,
        property: &Property,
        shape: &Shape<'_>,
        scope: &Scope,
        content: &mut Content<'b>,
    ) -> Result<(), Failed> {
        let mut found = Vec::new();
        let mut labels = Vec::new();
        self.json_blocks(&property.name, &property.value, &mut labels, 1, &mut |labels, body| {
            found.push((labels, body));
        })?;
        for (labels, body) in found {
            if let Some(label) = labels.first() {
                self.dynamic(label, Cow::Owned(body), property.name.span, shape, scope, content)?;
            }
        }
        Ok(())
    }

    /// Walks through the objects that are labels, down to the bodies.
    fn json_blocks(
        &mut self,
        kind: &Ident,
        value: &Json,
        labels: &mut Vec<Ident>,
        wanted: usize,
        found: &mut dyn FnMut(Vec<Ident>, Body),
    ) -> Result<(), Failed> {
        match &value.kind {
            JsonKind::Null => Ok(()),
            JsonKind::Array(items) => {
                for item in items {
                    self.json_blocks(kind, item, labels, wanted, found)?;
                }
                Ok(())
            }
            JsonKind::Object(properties) if wanted == 0 => {
                let body = Body { kind: BodyKind::Json(Arc::clone(properties)), missing: value.span.head() };
                found(labels.clone(), body);
                Ok(())
            }
            JsonKind::Object(properties) => {
                for property in properties.iter() {
                    labels.push(property.name.clone());
                    let result = self.json_blocks(kind, &property.value, labels, wanted - 1, found);
                    labels.pop();
                    result?;
                }
                Ok(())
            }
            _ => {
                let what = if wanted > 0 { "its labels" } else { "the contents of the block" };
                let detail = format!("A JSON object is required, to represent {what} of type \"{}\".", kind.name);
                self.fail(value.span, "Incorrect JSON value type", detail)
            }
        }
    }

    /// The expression a JSON value stands for.
    pub fn json_expr(&mut self, value: &Json) -> Result<Expr, Failed> {
        hcl::json_expression(self.source, value).map_err(|messages| {
            self.evaluator.diagnostics.append(messages);
            Failed
        })
    }

    /// The arguments of a body that may hold any argument, but no blocks.
    pub fn any_arguments<'b>(&mut self, body: &'b Body) -> Vec<Argument<'b>> {
        match &body.kind {
            BodyKind::Native { attributes, blocks } => {
                for block in blocks {
                    let detail = format!(
                        "Blocks are not allowed here; write \"{0} = {{ … }}\" if {0} is meant to be a map.",
                        block.kind.name
                    );
                    let summary = format!("Unexpected \"{}\" block", block.kind.name);
                    let _: Result<(), Failed> = self.fail(block.kind.span, &summary, detail);
                }
                attributes
                    .iter()
                    .map(|a| Argument { name: a.name.clone(), expr: Cow::Borrowed(&a.expr), span: a.span })
                    .collect()
            }
            BodyKind::Json(properties) => {
                // Of a repeated name the last one counts.
                let last: BTreeMap<&str, usize> =
                    properties.iter().enumerate().map(|(i, p)| (&*p.name.name, i)).collect();
                let mut out: Vec<Argument<'b>> = Vec::new();
                for (i, property) in properties.iter().enumerate() {
                    if &*property.name.name == "//" || last.get(&*property.name.name) != Some(&i) {
                        continue;
                    }
                    if let Ok(expr) = self.json_expr(&property.value) {
                        let span = property.name.span.to(property.value.span);
                        out.push(Argument { name: property.name.clone(), expr: Cow::Owned(expr), span });
                    }
                }
                out
            }
        }
    }
}

/// Whether a JSON property that may be an argument or a block is a list of blocks.
fn is_blocks(shape: &Shape<'_>, property: &Property) -> bool {
    let list = matches!(&property.value.kind, JsonKind::Array(items)
        if !items.is_empty() && items.iter().all(|i| matches!(i.kind, JsonKind::Object(_))));
    list && shape.blocks.iter().any(|b| b.name == &*property.name.name)
}

/// The parts of a `dynamic` block.
struct Dynamic<'b> {
    for_each: Expr,
    iterator: Option<Arc<str>>,
    labels: Option<Expr>,
    content: Cow<'b, Body>,
}

impl Content<'_> {
    fn into_owned(self) -> Content<'static> {
        let argument = |a: Argument<'_>| Argument { name: a.name, expr: Cow::Owned(a.expr.into_owned()), span: a.span };
        let block = |b: BlockItem<'_>| BlockItem {
            kind: b.kind,
            labels: b.labels,
            body: Cow::Owned(b.body.into_owned()),
            header: b.header,
            scope: b.scope,
        };
        Content {
            arguments: self.arguments.into_iter().map(argument).collect(),
            blocks: self.blocks.into_iter().map(block).collect(),
        }
    }
}
