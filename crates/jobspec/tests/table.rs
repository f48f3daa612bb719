//! The table of keys against the list of the peer's keys, and against what the reader does with each.

use std::collections::BTreeSet;

use herdsman_jobspec::schema::{JOB, Key, Kind, Many, Spec};
use herdsman_jobspec::{Inputs, NoHost, describe, parse};

use crate::goldens_dir;

/// Rows of the list that are no keys of a job file, or are written there in another way.
fn is_key(path: &str, key: &str) -> bool {
    path.starts_with("job") && !key.starts_with('(') && !matches!(key, "<label>" | "*" | "vault_token" | "consul_token")
}

#[test]
fn the_table_has_every_key_of_the_list() {
    let list = crate::read(&goldens_dir().join("../jobspec.tsv"));
    let ours: BTreeSet<(String, &str)> = describe().into_iter().map(|row| (row.path, row.key)).collect();
    let mut missing = Vec::new();
    let mut count = 0;
    for line in list.lines().skip(1) {
        let mut columns = line.split('\t');
        let (Some(path), Some(keys)) = (columns.next(), columns.next()) else { continue };
        for key in keys.split('|').filter(|key| is_key(path, key)) {
            count += 1;
            if !ours.iter().any(|(p, k)| p == path && *k == key) {
                missing.push(format!("{path} {key}"));
            }
        }
    }
    assert!(missing.is_empty(), "missing in the table:\n{}", missing.join("\n"));
    assert!(count > 500, "only {count} keys in the list");
}

/// A value of the right type, and what it becomes in JSON.
fn sample(key: &Key) -> Option<(&'static str, serde_json::Value)> {
    use serde_json::json;
    Some(match key.kind {
        Kind::Text if key.hcl == "type" && key.json == "Type" => ("\"batch\"", json!("batch")),
        Kind::Text => ("\"sample\"", json!("sample")),
        Kind::Bool => ("true", json!(true)),
        Kind::Int(..) | Kind::Int8Wrapping => ("7", json!(7)),
        Kind::Duration => ("\"7s\"", json!(7_000_000_000i64)),
        Kind::Texts => ("[\"sample\"]", json!(["sample"])),
        Kind::Ints => ("[7]", json!([7])),
        _ => return None,
    })
}

/// The job file that sets one key, given the blocks down to it.
fn file(blocks: &[(&'static str, &'static Spec)], line: &str) -> String {
    let mut text = String::from("job \"x\" {\n");
    for (name, spec) in blocks {
        let label = match (spec.keys.iter().any(|k| matches!(k.kind, Kind::Label)), *name) {
            (false, _) => "",
            (true, "scaling") => "\"cpu\"",
            (true, _) => "\"l\"",
        };
        text.push_str(&format!("{name} {label} {{\n"));
        for key in spec.keys.iter().filter(|k| k.required && !line.starts_with(k.hcl)) {
            if let Some((value, _)) = sample(key) {
                text.push_str(&format!("{} = {value}\n", key.hcl));
            }
        }
    }
    text.push_str(line);
    let inherited = matches!(blocks, [.., (name, _)] if matches!(*name, "vault" | "secret"));
    if inherited && blocks.iter().all(|b| b.0 != "task") {
        // What tasks inherit shows in a task.
        let around = if blocks.len() == 2 { "}\n}\n" } else { "}\n" };
        return text + "}\ntask \"l\" {}\n" + around;
    }
    text + &"}\n".repeat(blocks.len() + 1)
}

fn walk(spec: &'static Spec, blocks: &mut Vec<(&'static str, &'static Spec)>, seen: &mut usize) {
    for key in spec.keys.iter().filter(|k| !k.hcl.is_empty()) {
        if let Kind::Block(inner, _) = key.kind {
            blocks.push((key.hcl, inner));
            walk(inner, blocks, seen);
            blocks.pop();
            continue;
        }
        let Some((value, json)) = sample(key) else { continue };
        let text = file(blocks, &format!("{} = {value}\n", key.hcl));
        let path: Vec<&str> = blocks.iter().map(|b| b.0).collect();
        let path = format!("job.{}{}{}", path.join("."), if path.is_empty() { "" } else { "." }, key.hcl);
        let parsed = parse("x.hcl", &text, &Inputs::default(), &NoHost)
            .unwrap_or_else(|e| panic!("{path}: {}\n{text}", e.compact()));
        // The value is in the job, and its place is known, unless the key is worked into others.
        let found = parsed.spans.iter().any(|(pointer, span)| {
            parsed.job.pointer(pointer) == Some(&json)
                && parsed.source.text().get(span.start..span.end).is_some_and(|t| t.starts_with(key.hcl))
        });
        let worked_in = key.json.is_empty()
            && matches!(key.hcl, "set_contains_all" | "set_contains_any" | "is_set" | "is_not_set" | "distinct_hosts");
        assert!(found || worked_in, "{path} is not in the job\n{text}\n{:#}", parsed.job);
        assert_eq!(parsed.extensions.iter().any(|e| e.path == path), key.ours, "{path}");
        *seen += 1;
    }
}

#[test]
fn every_key_can_be_set_and_is_observed() {
    let mut seen = 0;
    walk(&JOB, &mut Vec::new(), &mut seen);
    assert!(seen > 400, "{seen}");
}

#[test]
fn labels_and_many_agree() {
    fn check(spec: &Spec) {
        for key in spec.keys {
            if let Kind::Block(inner, many) = key.kind {
                let labelled = inner.keys.iter().any(|k| matches!(k.kind, Kind::Label));
                assert!(many != Many::Map || labelled, "{}: a map needs labels", key.hcl);
                check(inner);
            }
        }
    }
    check(&JOB);
}
