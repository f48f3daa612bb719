//! Finding things by the beginning of their id or name.

use crate::error::ServerError;
use crate::server::Server;
use herdsman_state::{Snapshot, id_range};
use std::collections::BTreeMap;

/// What one context answers at most.
pub const SEARCH_LIMIT: usize = 20;

/// The contexts that can be searched, in the order that error texts list them.
pub const SEARCH_CONTEXTS: [&str; 12] = [
    "allocs",
    "jobs",
    "nodes",
    "node_pools",
    "evals",
    "deployment",
    "plugins",
    "volumes",
    "scaling_policy",
    "vars",
    "namespaces",
    "host_volumes",
];

/// What was found, by context; contexts whose list was cut are named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchAnswer {
    pub matches: BTreeMap<&'static str, Vec<String>>,
    pub truncations: BTreeMap<&'static str, bool>,
    pub index: u64,
}

impl Server {
    /// Finds by prefix within a namespace. `context`: one of [`SEARCH_CONTEXTS`], or "all".
    ///
    /// # Errors
    /// 500 for an unknown context.
    pub fn search(&self, namespace: &str, context: &str, prefix: &str) -> Result<SearchAnswer, ServerError> {
        let wanted: Vec<&'static str> = match context {
            "all" | "" => SEARCH_CONTEXTS.to_vec(),
            one => {
                let known = SEARCH_CONTEXTS.iter().copied().find(|context| *context == one);
                let Some(known) = known else {
                    let list = SEARCH_CONTEXTS.join(" ");
                    let text = format!("context must be one of [{list}] or 'all' for all contexts; got \"{one}\"");
                    return Err(ServerError::refused(text));
                };
                vec![known]
            }
        };
        let snapshot = self.snapshot();
        let mut answer = SearchAnswer { index: snapshot.index(), ..SearchAnswer::default() };
        for context in wanted {
            let (matches, cut) = search_one(&snapshot, namespace, context, prefix);
            answer.matches.insert(context, matches);
            answer.truncations.insert(context, cut);
        }
        Ok(answer)
    }
}

/// The first matches of an iterator, and whether there are more.
fn first(mut found: impl Iterator<Item = String>) -> (Vec<String>, bool) {
    let matches: Vec<String> = found.by_ref().take(SEARCH_LIMIT).collect();
    (matches, found.next().is_some())
}

fn search_one(snapshot: &Snapshot, namespace: &str, context: &str, prefix: &str) -> (Vec<String>, bool) {
    // A text that begins no id finds nothing, and an empty one everything.
    let is_id = id_range(prefix).is_some();
    let visible = |of: &str| namespace == "*" || of == namespace;
    match context {
        "jobs" if namespace == "*" => {
            first(snapshot.jobs().filter(|job| job.id.starts_with(prefix)).map(|job| job.id.clone()))
        }
        "jobs" => first(snapshot.jobs_by_prefix(namespace, prefix).map(|job| job.id.clone())),
        "allocs" if is_id => {
            let found = snapshot.allocs_by_prefix(prefix).filter(|alloc| visible(&alloc.namespace));
            first(found.map(|alloc| alloc.id.to_string()))
        }
        "evals" if is_id => {
            let found = snapshot.evals_by_prefix(prefix).filter(|eval| visible(&eval.namespace));
            first(found.map(|eval| eval.id.to_string()))
        }
        "deployment" if is_id => {
            let found = snapshot.deployments_by_prefix(prefix).filter(|deployment| visible(&deployment.namespace));
            first(found.map(|deployment| deployment.id.to_string()))
        }
        "nodes" if is_id => first(snapshot.nodes_by_prefix(prefix).map(|node| node.id.to_string())),
        "node_pools" => {
            first(snapshot.node_pools().filter(|pool| pool.name.starts_with(prefix)).map(|pool| pool.name.clone()))
        }
        "namespaces" => {
            let found = snapshot.namespaces().filter(|namespace| namespace.name.starts_with(prefix));
            first(found.map(|namespace| namespace.name.clone()))
        }
        "scaling_policy" => {
            let found = snapshot.scaling_policies().filter(|row| visible(&row.namespace));
            first(found.filter(|row| row.policy.id.starts_with(prefix)).map(|row| row.policy.id.clone()))
        }
        _ => (Vec::new(), false),
    }
}
