//! Reads of allocations, evaluations and deployments.

use crate::error::HttpError;
use crate::paging::{ListRules, page};
use crate::reads::{Read, Seen, check_prefix, filled, in_namespace, read_id};
use crate::request::Request;
use herdsman_model::{AllocId, DeploymentId, EvalId, wire};
use herdsman_state::{Snapshot, Table, WatchKey};
use serde_json::{Value, json};
use std::sync::Arc;

/// `GET /v1/allocations`
pub const ALLOCATIONS: Read = Read { watch: |_| vec![WatchKey::Table(Table::Allocs)], read: allocations };
/// `GET /v1/allocation/:id`
pub const ALLOCATION: Read = Read { watch: |r| watch_id(r, WatchKey::Alloc), read: allocation };
/// `GET /v1/allocation/:id/services`
pub const ALLOCATION_SERVICES: Read = Read { watch: |_| vec![WatchKey::Table(Table::Services)], read: alloc_services };
/// `GET /v1/evaluations`
pub const EVALUATIONS: Read = Read { watch: |_| vec![WatchKey::Table(Table::Evals)], read: evaluations };
/// `GET /v1/evaluations/count`
pub const EVALUATIONS_COUNT: Read = Read { watch: |_| vec![WatchKey::Table(Table::Evals)], read: evaluations_count };
/// `GET /v1/evaluation/:id`
pub const EVALUATION: Read = Read { watch: |r| watch_id(r, WatchKey::Eval), read: evaluation };
/// `GET /v1/evaluation/:id/allocations`
pub const EVALUATION_ALLOCATIONS: Read = Read { watch: |r| watch_id(r, WatchKey::EvalAllocs), read: eval_allocations };
/// `GET /v1/deployments`
pub const DEPLOYMENTS: Read = Read { watch: |_| vec![WatchKey::Table(Table::Deployments)], read: deployments };
/// `GET /v1/deployment/:id`
pub const DEPLOYMENT: Read = Read { watch: |r| watch_id(r, WatchKey::Deployment), read: deployment };
/// `GET /v1/deployment/allocations/:id`
pub const DEPLOYMENT_ALLOCATIONS: Read =
    Read { watch: |r| watch_id(r, WatchKey::DeploymentAllocs), read: deployment_allocations };

/// Waits for the thing whose id the path gives; a malformed id waits for nothing.
fn watch_id<T: std::str::FromStr>(request: &Request, key: fn(T) -> WatchKey) -> Vec<WatchKey> {
    request.part(0).parse().map(key).into_iter().collect()
}

fn stubs(
    snapshot: &Snapshot,
    allocs: &[&Arc<herdsman_model::Allocation>],
    fields: wire::StubFields,
) -> Result<Vec<Value>, HttpError> {
    allocs
        .iter()
        .map(|a| {
            let kind = snapshot.alloc_job(a).map(|j| j.kind).unwrap_or_default();
            serde_json::to_value(wire::alloc_stub(a, kind, fields)).map_err(|e| HttpError::internal(e.to_string()))
        })
        .collect()
}

fn full(snapshot: &Snapshot, alloc: &herdsman_model::Allocation) -> Value {
    let gone = herdsman_model::Job::default();
    let job = snapshot.alloc_job(alloc).map_or(&gone, |j| &**j);
    serde_json::to_value(wire::alloc(alloc, job)).unwrap_or_default()
}

/// Fields that the whole form of an allocation leaves out when empty, which filters may name all the same.
fn filter_alloc(snapshot: &Snapshot, alloc: &herdsman_model::Allocation) -> Value {
    filled(
        full(snapshot, alloc),
        &[
            "DesiredDescription",
            "ClientDescription",
            "FollowupEvalID",
            "PreviousAllocation",
            "NextAllocation",
            "DeploymentID",
            "PreemptedByAllocation",
        ],
    )
}

fn allocations(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let prefix = request.params.text("prefix");
    check_prefix("alloc", prefix)?;
    let fields = wire::StubFields {
        resources: request.params.truth("resources")?.unwrap_or(false),
        task_states: request.params.truth("task_states")?.unwrap_or(true),
    };
    let mut allocs: Vec<_> =
        if prefix.is_empty() { snapshot.allocs().collect() } else { snapshot.allocs_by_prefix(prefix).collect() };
    allocs.retain(|a| in_namespace(request, &a.namespace));
    if prefix.is_empty() {
        allocs.sort_by_key(|a| (a.create_index, a.id));
    }
    let token = |a: &&Arc<herdsman_model::Allocation>| {
        if prefix.is_empty() { format!("{}.{}", a.create_index, a.id) } else { a.id.to_string() }
    };
    let found = page(request, ListRules { reverse: true }, allocs, token, |a| filter_alloc(snapshot, a))?;
    let mut seen = Seen::new(snapshot.table_index(Table::Allocs), &stubs(snapshot, &found.items, fields)?)?;
    seen.next_token = found.next_token;
    Ok(seen)
}

fn allocation(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let id: AllocId = read_id("alloc", request.part(0))?;
    match snapshot.alloc(&id) {
        Some(alloc) => Seen::new(alloc.modify_index, &full(snapshot, alloc)),
        None => Ok(Seen::missing(snapshot.table_index(Table::Allocs), "alloc not found")),
    }
}

fn alloc_services(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let id: AllocId = read_id("alloc", request.part(0))?;
    let found: Vec<Value> = snapshot.services_by_alloc(id).map(|s| crate::reads::jobs::service_view(s)).collect();
    Seen::new(snapshot.table_index(Table::Services), &found)
}

/// Texts of an evaluation that its whole form leaves out when empty, which filters may name all the same.
pub const EVAL_TEXTS: [&str; 7] =
    ["NodeID", "DeploymentID", "StatusDescription", "NextEval", "PreviousEval", "BlockedEval", "QuotaLimitReached"];

fn filter_eval(eval: &herdsman_model::Evaluation) -> Value {
    filled(serde_json::to_value(wire::eval(eval)).unwrap_or_default(), &EVAL_TEXTS)
}

fn chosen_evals<'a>(
    snapshot: &'a Snapshot,
    request: &Request,
) -> Result<Vec<&'a Arc<herdsman_model::Evaluation>>, HttpError> {
    let prefix = request.params.text("prefix");
    check_prefix("eval", prefix)?;
    let (status, job) = (request.params.text("status"), request.params.text("job"));
    let narrowed = !status.is_empty() || !job.is_empty();
    if narrowed && !request.params.text("filter").is_empty() {
        return Err(HttpError::bad_request("filter must not be used together with status or job"));
    }
    let known = ["pending", "blocked", "complete", "failed", "canceled"];
    if !status.is_empty() && !known.contains(&status) {
        return Err(HttpError::bad_request(format!("status {status:?} is none of {}", known.join(", "))));
    }
    let mut evals: Vec<_> =
        if prefix.is_empty() { snapshot.evals().collect() } else { snapshot.evals_by_prefix(prefix).collect() };
    evals.retain(|e| {
        in_namespace(request, &e.namespace)
            && (status.is_empty() || e.status.as_str() == status)
            && (job.is_empty() || &*e.job_id == job)
    });
    if prefix.is_empty() {
        evals.sort_by_key(|e| (e.create_index, e.id));
    }
    Ok(evals)
}

fn evaluations(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let evals = chosen_evals(snapshot, request)?;
    let with_prefix = !request.params.text("prefix").is_empty();
    let token = |e: &&Arc<herdsman_model::Evaluation>| {
        if with_prefix { e.id.to_string() } else { format!("{}.{}", e.create_index, e.id) }
    };
    let found = page(request, ListRules { reverse: true }, evals, token, |e| filter_eval(e))?;
    let mut seen =
        Seen::new(snapshot.table_index(Table::Evals), &found.items.iter().map(|e| wire::eval(e)).collect::<Vec<_>>())?;
    seen.next_token = found.next_token;
    Ok(seen)
}

fn evaluations_count(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let evals = chosen_evals(snapshot, request)?;
    let found = page(request, ListRules { reverse: false }, evals, |e| e.id.to_string(), |e| filter_eval(e))?;
    let index = snapshot.table_index(Table::Evals);
    let body =
        json!({"Count": found.items.len(), "Index": index, "KnownLeader": true, "LastContact": 0, "NextToken": ""});
    Seen::new(index, &body)
}

fn evaluation(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let id: EvalId = read_id("failed to lookup eval: eval", request.part(0))?;
    let Some(eval) = snapshot.eval(&id) else {
        return Ok(Seen::missing(snapshot.table_index(Table::Evals), "eval not found"));
    };
    if request.params.truth("related")?.unwrap_or(false) {
        let related: Vec<_> = related_ids(snapshot, id).into_iter().filter_map(|i| snapshot.eval(&i)).collect();
        return Seen::new(eval.modify_index, &wire::eval_with_related(eval, related.iter().map(|e| &***e)));
    }
    Seen::new(eval.modify_index, &wire::eval(eval))
}

/// The most evaluations that are followed from one.
const MAX_RELATED: usize = 1000;

/// Evaluations that led to this one and followed from it, oldest first.
fn related_ids(snapshot: &Snapshot, start: EvalId) -> Vec<EvalId> {
    let mut found = std::collections::BTreeSet::from([start]);
    let mut next = vec![start];
    while let Some(id) = next.pop() {
        let Some(eval) = snapshot.eval(&id) else { continue };
        for other in [eval.next_eval, eval.previous_eval, eval.blocked_eval].into_iter().flatten() {
            if found.len() < MAX_RELATED && found.insert(other) {
                next.push(other);
            }
        }
    }
    found.remove(&start);
    let mut ids: Vec<EvalId> = found.into_iter().collect();
    ids.sort_by_key(|i| snapshot.eval(i).map_or(0, |e| e.create_index));
    ids
}

fn eval_allocations(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let id: EvalId = read_id("eval", request.part(0))?;
    let allocs: Vec<_> = snapshot.allocs_by_eval(id).collect();
    let index = allocs.iter().map(|a| a.modify_index).max().unwrap_or_else(|| snapshot.table_index(Table::Allocs));
    Seen::new(index, &stubs(snapshot, &allocs, wire::StubFields::default())?)
}

fn deployments(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let prefix = request.params.text("prefix");
    check_prefix("deployment", prefix)?;
    let mut found: Vec<_> = if prefix.is_empty() {
        snapshot.deployments().collect()
    } else {
        snapshot.deployments_by_prefix(prefix).collect()
    };
    found.retain(|d| in_namespace(request, &d.namespace));
    if prefix.is_empty() {
        found.sort_by_key(|d| (d.create_index, d.id));
    }
    let token = |d: &&Arc<herdsman_model::Deployment>| {
        if prefix.is_empty() { format!("{}.{}", d.create_index, d.id) } else { d.id.to_string() }
    };
    let object = |d: &&Arc<herdsman_model::Deployment>| serde_json::to_value(wire::deployment(d)).unwrap_or_default();
    let found = page(request, ListRules { reverse: true }, found, token, object)?;
    let items: Vec<_> = found.items.iter().map(|d| wire::deployment(d)).collect();
    let mut seen = Seen::new(snapshot.table_index(Table::Deployments), &items)?;
    seen.next_token = found.next_token;
    Ok(seen)
}

fn deployment(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let id: DeploymentId = read_id("deployment", request.part(0))?;
    match snapshot.deployment(&id) {
        Some(found) => Seen::new(found.modify_index, &wire::deployment(found)),
        None => Ok(Seen::missing(snapshot.table_index(Table::Deployments), "deployment not found")),
    }
}

fn deployment_allocations(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let id: DeploymentId = read_id("deployment", request.part(0))?;
    let allocs: Vec<_> = snapshot.allocs_by_deployment(id).collect();
    let index = allocs.iter().map(|a| a.modify_index).max().unwrap_or_else(|| snapshot.table_index(Table::Allocs));
    Seen::new(index, &stubs(snapshot, &allocs, wire::StubFields::default())?)
}
