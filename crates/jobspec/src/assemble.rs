//! What the table alone does not say: short forms, ports, identities, inheritance, the job as a whole.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::content::BlockItem;
use crate::decode::{Decoder, STEPS_PER_FIELD};
use crate::eval::Failed;
use crate::schema::{JOB, Kind, Spec};
use crate::tree::{Fields, Node, NodeKind, zero_fields};

/// Works the keys without a field of their own into the fields of one object.
pub(crate) fn finish(decoder: &mut Decoder<'_, '_>, spec: &Spec, fields: &mut Fields) {
    match spec.name {
        "Constraint" | "Affinity" => constraint(fields),
        "NetworkResource" => ports(fields),
        "Task" => {
            identities(fields);
            scaling(decoder, fields);
        }
        "TaskGroup" => inherit(decoder, fields, true),
        _ => {}
    }
}

/// `version = "…"` stands for operator and value.
fn constraint(fields: &mut Fields) {
    for name in ["version", "semver", "regexp", "set_contains", "set_contains_all", "set_contains_any"] {
        if let Some(node) = fields.remove(&format!("#{name}")) {
            operand(fields, name, &node);
            fields.insert("RTarget".to_owned(), node);
        }
    }
    if let Some(node) = fields.remove("#distinct_hosts") {
        let on = matches!(node.kind, NodeKind::Leaf(Json::Bool(true)));
        operand(fields, "distinct_hosts", &node);
        let text = Json::from(if on { "true" } else { "false" });
        fields.insert("RTarget".to_owned(), Node { kind: NodeKind::Leaf(text), span: node.span });
    }
    for (name, opposite) in [("is_set", "is_not_set"), ("is_not_set", "is_set")] {
        if let Some(node) = fields.remove(&format!("#{name}")) {
            let on = matches!(node.kind, NodeKind::Leaf(Json::Bool(true)));
            operand(fields, if on { name } else { opposite }, &node);
        }
    }
    if let Some(node) = fields.remove("#distinct_property") {
        operand(fields, "distinct_property", &node);
        fields.insert("LTarget".to_owned(), node);
    }
}

fn operand(fields: &mut Fields, name: &str, node: &Node) {
    let leaf = Node { kind: NodeKind::Leaf(Json::from(name)), span: node.span };
    fields.insert("Operand".to_owned(), leaf);
}

/// A port with a static number is reserved, the others are dynamic.
fn ports(fields: &mut Fields) {
    let null = || Node::unset(Json::Null);
    let ports = fields.remove("DynamicPorts").unwrap_or_else(null);
    let span = ports.span;
    let (mut reserved, mut dynamic) = (Vec::new(), Vec::new());
    let old = fields.remove("ReservedPorts").unwrap_or_else(null);
    let old_span = old.span;
    reserved.extend(old.into_items());
    for mut port in ports.into_items() {
        let number = port.fields_mut().and_then(|f| f.get("Value")).and_then(Node::as_i64).unwrap_or(0);
        if number > 0 { reserved.push(port) } else { dynamic.push(port) }
    }
    let list = |items: Vec<Node>, span| if items.is_empty() { null() } else { Node::list(items, span) };
    fields.insert("DynamicPorts".to_owned(), list(dynamic, span));
    fields.insert("ReservedPorts".to_owned(), list(reserved, span.or(old_span)));
}

/// The first identity without a name, or named default, is the task's own.
fn identities(fields: &mut Fields) {
    let Some(node) = fields.remove("Identities") else { return };
    if node.is_null() {
        fields.insert("Identities".to_owned(), node);
        return;
    }
    let span = node.span;
    let mut rest = Vec::new();
    let mut own = None;
    for mut item in node.into_items() {
        let name = item.fields_mut().and_then(|f| f.get("Name")).and_then(Node::as_str).unwrap_or("");
        if own.is_none() && matches!(name, "" | "default") { own = Some(item) } else { rest.push(item) }
    }
    if let Some(own) = own {
        fields.insert("Identity".to_owned(), own);
    }
    fields.insert("Identities".to_owned(), Node::list(rest, span));
}

/// The label of a task's scaling block says what is scaled.
fn scaling(decoder: &mut Decoder<'_, '_>, fields: &mut Fields) {
    let Some(list) = fields.get_mut("ScalingPolicies") else { return };
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for policy in list.items_mut() {
        let header = policy.span.unwrap_or_default();
        let Some(kind) = policy.fields_mut().and_then(|f| f.get_mut("Type")) else { continue };
        let span = kind.span.unwrap_or(header);
        let label = kind.as_str().unwrap_or("").to_owned();
        let name = match label.as_str() {
            "cpu" => "vertical_cpu",
            "mem" => "vertical_mem",
            _ => {
                let detail = "scaling policy name must be \"cpu\" or \"mem\"";
                let _: Result<(), Failed> = decoder.fail(span, "Invalid scaling policy name", detail);
                continue;
            }
        };
        if !seen.insert(label.clone()) {
            let detail = format!("scaling policy {label:?} is defined more than once");
            let _: Result<(), Failed> = decoder.fail(span, "Duplicate scaling policy name", detail);
        }
        kind.kind = NodeKind::Leaf(Json::from(name));
    }
}

/// Gives tasks the vault block and the secrets of what surrounds them.
fn inherit(decoder: &mut Decoder<'_, '_>, fields: &mut Fields, own_tasks: bool) {
    let vault = fields.get("#vault").cloned();
    let secrets = fields.get("#secret").cloned().map(Node::into_items).unwrap_or_default();
    if vault.is_none() && secrets.is_empty() {
        return;
    }
    let mut give = |tasks: &mut [Node]| {
        for task in tasks {
            let span = task.span.unwrap_or_default();
            let cost = STEPS_PER_FIELD * (10 + 6 * secrets.len());
            if decoder.evaluator.charge(decoder.source, span, cost).is_err() {
                return;
            }
            let Some(task) = task.fields_mut() else { continue };
            if let Some(vault) = &vault
                && task.get("Vault").is_none_or(Node::is_null)
            {
                task.insert("Vault".to_owned(), vault.clone());
            }
            add_secrets(task, &secrets);
        }
    };
    if own_tasks {
        if let Some(tasks) = fields.get_mut("Tasks") {
            give(tasks.items_mut());
        }
        return;
    }
    if let Some(groups) = fields.get_mut("TaskGroups") {
        for group in groups.items_mut() {
            if let Some(tasks) = group.fields_mut().and_then(|f| f.get_mut("Tasks")) {
                give(tasks.items_mut());
            }
        }
    }
}

/// Appends secrets whose names the task does not have itself.
fn add_secrets(task: &mut Fields, secrets: &[Node]) {
    if secrets.is_empty() {
        return;
    }
    let name = |node: &Node| match &node.kind {
        NodeKind::Object(fields) => fields.get("Name").and_then(Node::as_str).unwrap_or("").to_owned(),
        _ => String::new(),
    };
    let node = task.remove("Secrets").unwrap_or_else(|| Node::unset(Json::Null));
    let span = node.span;
    let mut own = node.into_items();
    let mut names: BTreeSet<String> = own.iter().map(name).collect();
    for secret in secrets {
        if names.insert(name(secret)) {
            own.push(secret.clone());
        }
    }
    task.insert("Secrets".to_owned(), Node::list(own, span));
}

/// The job block as the submitted job.
pub(crate) fn job(decoder: &mut Decoder<'_, '_>, block: &BlockItem<'_>) -> Node {
    let mut fields = decoder.raw_fields(&JOB, block);
    if let Some(label) = block.labels.first() {
        for name in ["ID", "Name"] {
            if fields.get(name).is_none_or(Node::is_null) {
                fields.insert(name.to_owned(), Node::leaf(Json::from(&*label.name), label.span));
            }
        }
    }
    if let Some(tasks) = fields.remove("#task") {
        let groups = fields.remove("TaskGroups").map(Node::into_items).unwrap_or_default();
        let span = tasks.span;
        let mut all: Vec<Node> = tasks.into_items().into_iter().map(group_of).collect();
        all.extend(groups);
        fields.insert("TaskGroups".to_owned(), Node::list(all, span));
    }
    inherit(decoder, &mut fields, false);
    fields.retain(|name, _| !name.starts_with('#'));
    Node::object(fields, block.header)
}

/// A task that stands directly in the job is a group of its own, under its name.
fn group_of(mut task: Node) -> Node {
    let mut fields = JOB
        .keys
        .iter()
        .find_map(|key| match key.kind {
            Kind::Block(spec, _) if spec.name == "TaskGroup" => Some(zero_fields(spec)),
            _ => None,
        })
        .unwrap_or_default();
    let span = task.span;
    if let Some(name) = task.fields_mut().and_then(|f| f.get("Name")) {
        fields.insert("Name".to_owned(), name.clone());
    }
    fields.insert("Tasks".to_owned(), Node::list(vec![task], span));
    Node { kind: NodeKind::Object(fields), span }
}
