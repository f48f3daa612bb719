//! Specifications of namespaces and node pools in HCL: plain values and blocks, as JSON.

use herdsman_jobspec::diag::{Diagnostic, Diagnostics, Source};
use herdsman_jobspec::eval::{Evaluator, Value as HclValue};
use herdsman_jobspec::hcl::{self, Block, Body, BodyKind, Options};
use herdsman_jobspec::{NoHost, Scope};
use serde_json::{Map, Value};
use std::sync::Arc;

/// How deep blocks may lie in each other.
const MAX_DEPTH: usize = 16;

/// A block with its labels, content as JSON.
pub struct SpecBlock {
    pub kind: String,
    pub labels: Vec<String>,
    pub content: Map<String, Value>,
}

/// A specification.
pub struct Spec {
    pub attributes: Map<String, Value>,
    pub blocks: Vec<SpecBlock>,
}

/// Reads a specification.
///
/// # Errors
/// What is wrong with the text, with its place.
pub fn read(name: &str, text: &str) -> Result<Spec, String> {
    let source = Source::new(name, text);
    let file = hcl::parse_native(&source, Options::default()).map_err(|d| d.render())?;
    let mut evaluator = Evaluator::new(&NoHost);
    let mut faults = Diagnostics::default();
    let mut reader = Reader { source: &source, evaluator: &mut evaluator, faults: &mut faults };
    let spec = reader.top(&file.body);
    let evaluated = std::mem::take(&mut evaluator.diagnostics);
    faults.append(evaluated);
    if faults.has_errors() { Err(faults.render()) } else { Ok(spec) }
}

struct Reader<'r, 'h> {
    source: &'r Arc<Source>,
    evaluator: &'r mut Evaluator<'h>,
    faults: &'r mut Diagnostics,
}

impl Reader<'_, '_> {
    fn top(&mut self, body: &Body) -> Spec {
        let mut spec = Spec { attributes: self.attributes(body), blocks: Vec::new() };
        let BodyKind::Native { blocks, .. } = &body.kind else { return spec };
        for block in blocks {
            let content = self.content(block, 0);
            let labels = block.labels.iter().map(|l| l.name.to_string()).collect();
            spec.blocks.push(SpecBlock { kind: block.kind.name.to_string(), labels, content });
        }
        spec
    }

    fn attributes(&mut self, body: &Body) -> Map<String, Value> {
        let mut all = Map::new();
        let BodyKind::Native { attributes, .. } = &body.kind else { return all };
        for attribute in attributes {
            if let Ok(value) = self.evaluator.evaluate(self.source, &attribute.expr, &Scope::default()) {
                all.insert(attribute.name.name.to_string(), plain(&value));
            }
        }
        all
    }

    fn content(&mut self, block: &Block, depth: usize) -> Map<String, Value> {
        let mut all = self.attributes(&block.body);
        let BodyKind::Native { blocks, .. } = &block.body.kind else { return all };
        for inner in blocks {
            if depth >= MAX_DEPTH {
                let text = format!("Blocks lie in each other at most {MAX_DEPTH} deep");
                self.faults.push(Diagnostic::error(self.source, inner.header, "Too deep", text));
                break;
            }
            let content = self.content(inner, depth + 1);
            all.insert(inner.kind.name.to_string(), Value::Object(content));
        }
        all
    }
}

fn plain(value: &HclValue) -> Value {
    if let Some(members) = value.members() {
        return Value::Object(members.iter().map(|(k, v)| (k.clone(), plain(v))).collect());
    }
    if let Some(items) = value.items() {
        return Value::Array(items.iter().map(plain).collect());
    }
    match value {
        HclValue::Bool(b) => Value::Bool(*b),
        HclValue::String(text) => Value::String(text.to_string()),
        HclValue::Number(number) => match number.to_i64() {
            Some(whole) => Value::from(whole),
            None => Value::from(number.to_f64()),
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_and_values_become_json() {
        let spec = read("x", "name = \"a\"\nnode_pool \"b\" {\n meta { k = \"v\" }\n n = [1, true]\n}\n").unwrap();
        assert_eq!(spec.attributes["name"], json!("a"));
        let block = spec.blocks.first().unwrap();
        assert_eq!((block.kind.as_str(), block.labels.as_slice()), ("node_pool", ["b".to_string()].as_slice()));
        assert_eq!(Value::Object(block.content.clone()), json!({"meta": {"k": "v"}, "n": [1, true]}));
        assert!(read("x.hcl", "a = ").err().unwrap().contains("x.hcl"));
    }
}
