//! Search over ids by prefix, and over names by any part. Source: wire-notes section 10, `goldens/api/424-search-all.json`.

use super::body;
use crate::answer::Answer;
use crate::error::HttpError;
use crate::pipeline::Call;
use crate::reads::in_namespace;
use crate::request::Request;
use herdsman_model::Job;
use herdsman_state::{Snapshot, Table};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Hits per context of a fuzzy search. Source: `server.search.limit_results`.
const MAX_FUZZY_HITS: usize = 100;

/// The shortest text of a fuzzy search. Source: `server.search.min_term_length`.
const MIN_FUZZY: usize = 2;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Wanted {
    prefix: String,
    text: String,
    context: String,
}

/// `PUT /v1/search`
///
/// # Errors
/// The context does not exist, or there is no leader.
pub async fn prefix(call: Call) -> Result<Answer, HttpError> {
    let wanted: Wanted = body(&call, &["Prefix", "Context"])?;
    let server = call.api.leader().await?;
    let found = server.search(call.request.namespace(), &wanted.context, &wanted.prefix)?;
    let (mut matches, mut truncations) = (Map::new(), Map::new());
    for (context, hits) in &found.matches {
        matches.insert((*context).to_string(), if hits.is_empty() { Value::Null } else { json!(hits) });
    }
    for (context, cut) in &found.truncations {
        truncations.insert((*context).to_string(), Value::Bool(*cut));
    }
    let contexts: Vec<&str> = found.matches.keys().copied().collect();
    answer(&call, &server.snapshot(), &contexts, matches, truncations)
}

fn answer(
    call: &Call,
    snapshot: &Snapshot,
    contexts: &[&str],
    matches: Map<String, Value>,
    truncations: Map<String, Value>,
) -> Result<Answer, HttpError> {
    let tables: Vec<Table> = contexts.iter().filter_map(|c| table_of(c)).collect();
    let index = snapshot.tables_index(&tables);
    let known = call.api.knows_leader();
    let body = super::with_meta(json!({"Matches": matches, "Truncations": truncations}), index, known);
    Ok(Answer::json(&body)?.read_at(index, known))
}

fn table_of(context: &str) -> Option<Table> {
    Some(match context {
        "allocs" => Table::Allocs,
        "jobs" => Table::Jobs,
        "nodes" => Table::Nodes,
        "node_pools" => Table::NodePools,
        "evals" => Table::Evals,
        "deployment" => Table::Deployments,
        "scaling_policy" => Table::ScalingPolicies,
        "namespaces" => Table::Namespaces,
        _ => return None,
    })
}

/// A hit of a fuzzy search: the name, and where it stands.
type Hit = (String, Vec<String>);

/// `PUT /v1/search/fuzzy`
///
/// # Errors
/// The context does not exist, the text is too short, or there is no leader.
pub async fn fuzzy(call: Call) -> Result<Answer, HttpError> {
    let wanted: Wanted = body(&call, &["Text", "Context"])?;
    let length = wanted.text.chars().count();
    if length < MIN_FUZZY {
        return Err(HttpError::internal(format!(
            "fuzzy search query must be at least {MIN_FUZZY} characters, got {length}"
        )));
    }
    let server = call.api.leader().await?;
    let text = wanted.text.to_lowercase();
    // What has no name is found by the beginning of its id; this also refuses a context that does not exist.
    let by_id = server.search(call.request.namespace(), &wanted.context, &text)?;
    let snapshot = server.snapshot();
    let mut hits: BTreeMap<&'static str, Vec<Hit>> = BTreeMap::new();
    for (&context, ids) in &by_id.matches {
        if matches!(context, "evals" | "deployment" | "scaling_policy" | "volumes" | "host_volumes") {
            hits.insert(context, ids.iter().map(|id| (id.clone(), Vec::new())).collect());
        }
        fuzzy_hits(&snapshot, &call.request, context, &text, &mut hits);
    }
    let contexts: Vec<&'static str> = by_id.matches.keys().copied().collect();
    let (mut matches, mut truncations) = (Map::new(), Map::new());
    for &context in &contexts {
        truncations.insert(context.to_string(), Value::Bool(false));
    }
    for (context, mut found) in hits {
        found.sort();
        found.dedup();
        truncations.insert(context.to_string(), Value::Bool(found.len() > MAX_FUZZY_HITS));
        found.truncate(MAX_FUZZY_HITS);
        let shown: Vec<Value> = found
            .into_iter()
            .map(|(id, scope)| if scope.is_empty() { json!({"ID": id}) } else { json!({"ID": id, "Scope": scope}) })
            .collect();
        matches.insert(context.to_string(), Value::Array(shown));
    }
    answer(&call, &snapshot, &contexts, matches, truncations)
}

fn fuzzy_hits(
    snapshot: &Snapshot,
    request: &Request,
    context: &str,
    text: &str,
    hits: &mut BTreeMap<&'static str, Vec<Hit>>,
) {
    let holds = |name: &str| name.to_lowercase().contains(text);
    let mut add = |into: &'static str, id: String, scope: Vec<String>| hits.entry(into).or_default().push((id, scope));
    match context {
        "jobs" => {
            for job in snapshot.jobs().filter(|j| in_namespace(request, &j.namespace)) {
                if holds(&job.name) {
                    add("jobs", job.name.clone(), vec![job.namespace.clone(), job.id.clone()]);
                }
                inside_job(job, &holds, &mut add);
            }
        }
        "nodes" => {
            for node in snapshot.nodes() {
                if holds(&node.name) {
                    add("nodes", node.name.to_string(), vec![node.id.to_string()]);
                }
                if holds(&node.node_class) {
                    add("classes", node.node_class.clone(), vec![node.id.to_string()]);
                }
            }
        }
        "allocs" => {
            for alloc in snapshot.allocs().filter(|a| in_namespace(request, &a.namespace)) {
                if holds(&alloc.name) {
                    add("allocs", alloc.name.to_string(), vec![alloc.namespace.to_string(), alloc.id.to_string()]);
                }
            }
        }
        "namespaces" => {
            snapshot
                .namespaces()
                .filter(|n| holds(&n.name))
                .for_each(|n| add("namespaces", n.name.clone(), Vec::new()));
        }
        "node_pools" => {
            snapshot
                .node_pools()
                .filter(|p| holds(&p.name))
                .for_each(|p| add("node_pools", p.name.clone(), Vec::new()));
        }
        // Other things have no names.
        _ => {}
    }
}

/// Groups, tasks, services, images and commands of a job.
fn inside_job(job: &Job, holds: &dyn Fn(&str) -> bool, add: &mut dyn FnMut(&'static str, String, Vec<String>)) {
    let base = vec![job.namespace.clone(), job.id.clone()];
    let scope = |parts: &[&str]| [base.clone(), parts.iter().map(|p| (*p).to_string()).collect()].concat();
    for group in &job.task_groups {
        if holds(&group.name) {
            add("groups", group.name.clone(), base.clone());
        }
        for service in group.services.iter().filter(|s| holds(&s.name)) {
            add("services", service.name.clone(), scope(&[&group.name]));
        }
        for task in &group.tasks {
            if holds(&task.name) {
                add("tasks", task.name.clone(), scope(&[&group.name]));
            }
            for service in task.services.iter().filter(|s| holds(&s.name)) {
                add("services", service.name.clone(), scope(&[&group.name, &task.name]));
            }
            let configured = |key: &str| task.config.get(key).and_then(Value::as_str).filter(|v| holds(v));
            if let Some(image) = configured("image") {
                add("images", image.to_string(), scope(&[&group.name, &task.name]));
            }
            if let Some(command) = configured("command") {
                add("commands", command.to_string(), scope(&[&group.name, &task.name]));
            }
        }
    }
}
