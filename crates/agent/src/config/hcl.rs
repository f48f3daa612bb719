//! HCL configuration text to a tree of values. Strings are literal; blocks nest by their labels; a block given twice is
//! laid over itself.

use crate::config::tree::merge;
use herdsman_jobspec::diag::{Diagnostic, Diagnostics, Source, Span};
use herdsman_jobspec::hcl::{self, Block, Body, BodyKind, Expr, ExprKind, File, Ident, ObjectKey, Options, Unary};
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Configuration text as a tree, and where each key and block of it stands.
#[derive(Debug)]
pub struct Read {
    pub value: Value,
    pub lines: Lines,
}

/// Lines, counted from 1, by the dotted path of the key or block. Of several places the last is kept.
pub type Lines = BTreeMap<String, usize>;

/// Reads configuration text in HCL.
///
/// # Errors
/// The text is no HCL, or asks for something configuration does not have; the explanation shows the place.
pub fn read(name: &str, text: &str) -> Result<Read, String> {
    let source = Source::new(name, text);
    let file: File = hcl::parse_native(&source, Options { lenient: true }).map_err(|d| d.render())?;
    let mut reader = Reader { source: &source, diagnostics: Diagnostics::default(), lines: Lines::new() };
    let tree = reader.body("", &file.body);
    if reader.diagnostics.has_errors() {
        return Err(reader.diagnostics.render());
    }
    Ok(Read { value: Value::Object(tree), lines: reader.lines })
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    diagnostics: Diagnostics,
    lines: Lines,
}

impl Reader<'_> {
    fn body(&mut self, prefix: &str, body: &Body) -> Map<String, Value> {
        let mut tree = Map::new();
        // Configuration text is native; a JSON file is read as JSON before it gets here.
        let BodyKind::Native { attributes, blocks } = &body.kind else { return tree };
        for attribute in attributes {
            let value = self.value(&attribute.expr);
            self.place(prefix, &attribute.name);
            merge(&mut tree, Map::from_iter([(attribute.name.name.to_string(), value)]));
        }
        for block in blocks {
            let nested = self.block(prefix, block);
            merge(&mut tree, nested);
        }
        tree
    }

    /// Notes where a key or block stands; gives its path.
    fn place(&mut self, prefix: &str, name: &Ident) -> String {
        let path = if prefix.is_empty() { name.name.to_string() } else { format!("{prefix}.{}", name.name) };
        self.lines.insert(path.clone(), self.source.position(name.span.start).line);
        path
    }

    fn block(&mut self, prefix: &str, block: &Block) -> Map<String, Value> {
        let path = self.place(prefix, &block.kind);
        let path = block.labels.iter().fold(path, |path, label| self.place(&path, label));
        let inner = Value::Object(self.body(&path, &block.body));
        let labelled = block
            .labels
            .iter()
            .rev()
            .fold(inner, |inner, label| Value::Object(Map::from_iter([(label.name.to_string(), inner)])));
        Map::from_iter([(block.kind.name.to_string(), labelled)])
    }

    fn value(&mut self, expr: &Expr) -> Value {
        match &*expr.kind {
            ExprKind::Null => Value::Null,
            ExprKind::Bool(b) => Value::Bool(*b),
            ExprKind::Number(n) => self.number(n.to_i64(), n.to_f64(), expr.span),
            ExprKind::String(text) => Value::String(text.to_string()),
            ExprKind::Paren(inner) | ExprKind::Wrapped(inner) => self.value(inner),
            ExprKind::Tuple(items) => Value::Array(items.iter().map(|i| self.value(i)).collect()),
            ExprKind::Object(members) => {
                let mut fields = Map::new();
                for (key, value) in members {
                    let name = match key {
                        ObjectKey::Name(name) => name.name.to_string(),
                        ObjectKey::Expr(expr) => match self.value(expr) {
                            Value::String(text) => text,
                            other => other.to_string(),
                        },
                    };
                    let value = self.value(value);
                    fields.insert(name, value);
                }
                Value::Object(fields)
            }
            ExprKind::Unary(Unary::Minus, inner) => match self.value(inner) {
                Value::Number(n) => {
                    self.number(n.as_i64().and_then(i64::checked_neg), -n.as_f64().unwrap_or(0.0), expr.span)
                }
                _ => self.refuse(expr.span),
            },
            _ => self.refuse(expr.span),
        }
    }

    fn number(&mut self, whole: Option<i64>, float: f64, span: Span) -> Value {
        match whole.map(Number::from).or_else(|| Number::from_f64(float)) {
            Some(number) => Value::Number(number),
            None => self.refuse(span),
        }
    }

    fn refuse(&mut self, span: Span) -> Value {
        self.diagnostics.push(Diagnostic::error(
            self.source,
            span,
            "Only plain values",
            "Configuration takes text, numbers, true, false, lists and maps; expressions and names belong into job files.",
        ));
        Value::Null
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_labels_and_quoted_values() {
        let text = r#"
            region = "eu"
            ports { http = "9876" }
            client {
              enabled = true
              servers = ["127.0.0.1"]
              host_volume "data" { path = "/srv" }
              meta { "a.b" = "${x}" }
              options = { "driver.raw_exec.enable" = "1" }
            }
            plugin "raw_exec" { config { enabled = true } }
            client { node_class = "x" }
        "#;
        assert_eq!(
            read("a.hcl", text).unwrap().value,
            json!({
                "region": "eu",
                "ports": {"http": "9876"},
                "client": {
                    "enabled": true, "servers": ["127.0.0.1"], "host_volume": {"data": {"path": "/srv"}},
                    "meta": {"a.b": "${x}"}, "options": {"driver.raw_exec.enable": "1"}, "node_class": "x",
                },
                "plugin": {"raw_exec": {"config": {"enabled": true}}},
            })
        );
    }

    #[test]
    fn several_items_may_stand_on_one_line() {
        let text = "server { enabled = true\n bootstrap_expect = 1 }\nports { http = 1, rpc = 2 }\n";
        assert_eq!(
            read("a.hcl", text).unwrap().value,
            json!({"server": {"enabled": true, "bootstrap_expect": 1}, "ports": {"http": 1, "rpc": 2}})
        );
    }

    #[test]
    fn lines_are_known_by_path() {
        let lines =
            read("a.hcl", "region = \"x\"\nclient {\n  host_volume \"a\" {\n    path = \"/\"\n  }\n}\n").unwrap().lines;
        let expected = [
            ("client", 2),
            ("client.host_volume", 3),
            ("client.host_volume.a", 3),
            ("client.host_volume.a.path", 4),
            ("region", 1),
        ];
        assert_eq!(lines.into_iter().collect::<Vec<_>>(), expected.map(|(p, l)| (p.to_string(), l)));
    }

    #[test]
    fn faults_show_their_place() {
        assert!(read("a.hcl", "region = foo()").unwrap_err().contains("a.hcl"));
        assert!(read("a.hcl", "client {").unwrap_err().contains("a.hcl"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,80}") {
            let _ = read("x", &text);
        }
    }
}
