//! Reads of jobs and of what belongs to them.

use crate::error::HttpError;
use crate::paging::{ListRules, page};
use crate::reads::{Read, Seen, in_namespace};
use crate::request::Request;
use herdsman_model::{Allocation, ClientStatus, Deployment, Job, wire};
use herdsman_state::{JobKey, Snapshot, Table, WatchKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `GET /v1/jobs`
pub const LIST: Read =
    Read { watch: |_| vec![WatchKey::Table(Table::Jobs), WatchKey::Table(Table::Summaries)], read: list };
/// `GET /v1/job/:id`
pub const ONE: Read = Read { watch: |r| vec![WatchKey::Job(key(r))], read: one };
/// `GET /v1/job/:id/summary`
pub const SUMMARY: Read = Read { watch: |r| vec![WatchKey::Summary(key(r))], read: summary };
/// `GET /v1/job/:id/versions`
pub const VERSIONS: Read = Read { watch: |r| vec![WatchKey::Job(key(r))], read: versions };
/// `GET /v1/job/:id/submission`
pub const SUBMISSION: Read = Read { watch: |r| vec![WatchKey::Job(key(r))], read: submission };
/// `GET /v1/job/:id/allocations`
pub const ALLOCATIONS: Read = Read { watch: |r| vec![WatchKey::JobAllocs(key(r))], read: allocations };
/// `GET /v1/job/:id/evaluations`
pub const EVALUATIONS: Read = Read { watch: |r| vec![WatchKey::JobEvals(key(r))], read: evaluations };
/// `GET /v1/job/:id/deployments`
pub const DEPLOYMENTS: Read = Read { watch: |r| vec![WatchKey::JobDeployments(key(r))], read: deployments };
/// `GET /v1/job/:id/deployment`
pub const DEPLOYMENT: Read = Read { watch: |r| vec![WatchKey::JobDeployments(key(r))], read: deployment };
/// `GET /v1/job/:id/scale`
pub const SCALE: Read = Read {
    watch: |r| vec![WatchKey::Job(key(r)), WatchKey::JobAllocs(key(r)), WatchKey::JobScaling(key(r))],
    read: scale,
};
/// `GET /v1/job/:id/services`
pub const SERVICES: Read = Read { watch: |_| vec![WatchKey::Table(Table::Services)], read: services };
/// `GET /v1/job/:id/actions`
pub const ACTIONS: Read = Read { watch: |r| vec![WatchKey::Job(key(r))], read: actions };
/// `GET|POST /v1/jobs/statuses`
pub const STATUSES: Read = Read {
    watch: |_| vec![WatchKey::Table(Table::Jobs), WatchKey::Table(Table::Allocs), WatchKey::Table(Table::Deployments)],
    read: statuses,
};

/// The job that the path names.
pub fn key(request: &Request) -> JobKey {
    JobKey::new(request.namespace(), request.part(0))
}

fn the_job<'a>(snapshot: &'a Snapshot, request: &Request) -> Option<&'a Arc<Job>> {
    snapshot.job(request.namespace(), request.part(0))
}

fn no_job(snapshot: &Snapshot) -> Seen {
    Seen::missing(snapshot.table_index(Table::Jobs), "job not found")
}

fn summary_view(snapshot: &Snapshot, namespace: &str, id: &str) -> Option<Value> {
    snapshot.job_summary(namespace, id).and_then(|s| serde_json::to_value(&**s).ok())
}

fn list(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let with_meta = request.params.truth("meta")?.unwrap_or(false);
    let prefix = request.params.text("prefix");
    let jobs = snapshot.jobs().filter(|j| in_namespace(request, &j.namespace) && j.id.starts_with(prefix));
    list_of(snapshot, request, jobs, with_meta)
}

/// A page of these jobs as lists show them, each with its summary.
///
/// # Errors
/// The parameters of the page cannot be understood.
pub fn list_of<'a>(
    snapshot: &Snapshot,
    request: &Request,
    jobs: impl Iterator<Item = &'a Arc<Job>>,
    with_meta: bool,
) -> Result<Seen, HttpError> {
    let stub = |job: &Arc<Job>| -> Result<Value, HttpError> {
        let mut value = serde_json::to_value(wire::job_stub(job, None, with_meta))
            .map_err(|e| HttpError::internal(e.to_string()))?;
        if let Value::Object(fields) = &mut value {
            let summary = summary_view(snapshot, &job.namespace, &job.id);
            fields.insert("JobSummary".to_string(), summary.unwrap_or(Value::Null));
        }
        Ok(value)
    };
    let found = page(
        request,
        ListRules { reverse: true },
        jobs,
        |j| format!("{}.{}", j.namespace, j.id),
        |j| serde_json::to_value(&***j).unwrap_or_default(),
    )?;
    let items = found.items.iter().map(|j| stub(j)).collect::<Result<Vec<_>, _>>()?;
    let mut seen = Seen::new(snapshot.tables_index(&[Table::Jobs, Table::Summaries]), &items)?;
    seen.next_token = found.next_token;
    Ok(seen)
}

fn one(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    match the_job(snapshot, request) {
        Some(job) => Seen::new(job.modify_index, &**job),
        None => Ok(no_job(snapshot)),
    }
}

fn summary(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    match snapshot.job_summary(request.namespace(), request.part(0)) {
        Some(summary) => Seen::new(summary.modify_index, &**summary),
        None => Ok(Seen::missing(snapshot.table_index(Table::Summaries), "job not found")),
    }
}

fn versions(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let Some(versions) = snapshot.job_versions(request.namespace(), request.part(0)) else {
        return Ok(Seen::missing(snapshot.table_index(Table::Versions), "job versions not found"));
    };
    let mut newest_first: Vec<&Arc<Job>> = versions.iter().collect();
    newest_first.sort_by_key(|j| std::cmp::Reverse(j.version));
    let index = newest_first.iter().map(|j| j.modify_index).max().unwrap_or(0);
    let diffs = if request.params.truth("diffs")?.unwrap_or(false) {
        Some(version_diffs(&newest_first, request)?)
    } else {
        None
    };
    let body = json!({
        "Versions": newest_first.iter().map(|j| serde_json::to_value(&***j).unwrap_or_default()).collect::<Vec<_>>(),
        "Diffs": diffs,
        "Index": index,
        "KnownLeader": true,
        "LastContact": 0,
        "NextToken": "",
    });
    Seen::new(index, &body)
}

/// Each version against its predecessor, or all against the one that is named.
fn version_diffs(newest_first: &[&Arc<Job>], request: &Request) -> Result<Vec<Value>, HttpError> {
    let named = match (request.params.number("diff_version")?, request.params.text("diff_tag")) {
        (Some(version), _) => {
            let found = newest_first.iter().find(|j| i64::try_from(j.version) == Ok(version));
            Some(*found.ok_or_else(|| HttpError::not_found(format!("version {version} not found")))?)
        }
        (None, "") => None,
        (None, tag) => {
            let found = newest_first.iter().find(|j| j.version_tag.as_ref().is_some_and(|t| t.name == tag));
            Some(*found.ok_or_else(|| HttpError::not_found(format!("tag {tag:?} not found")))?)
        }
    };
    let pairs: Vec<(&Arc<Job>, &Arc<Job>)> = match named {
        Some(base) => newest_first.iter().filter(|j| j.version != base.version).map(|j| (base, *j)).collect(),
        None => newest_first.windows(2).filter_map(|w| Some((*w.get(1)?, *w.first()?))).collect(),
    };
    pairs
        .into_iter()
        .map(|(old, new)| {
            serde_json::to_value(herdsman_model::diff::diff(Some(old), Some(new), true))
                .map_err(|e| HttpError::internal(e.to_string()))
        })
        .collect()
}

fn submission(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let Ok(version) = request.params.text("version").parse::<u64>() else {
        return Err(HttpError::bad_request("Unable to parse job submission version parameter"));
    };
    match snapshot.job_submission(request.namespace(), request.part(0), version) {
        Some(submission) => Seen::new(submission.job_modify_index, &**submission),
        None => Ok(Seen::missing(snapshot.table_index(Table::Submissions), "job source not found")),
    }
}

/// Whether allocations and evaluations of an earlier job of the same id count too.
fn all(request: &Request) -> Result<bool, HttpError> {
    Ok(request.params.truth("all")?.unwrap_or(false))
}

fn allocations(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let key = key(request);
    let kind = the_job(snapshot, request).map(|j| (j.kind, j.create_index));
    let all = all(request)?;
    let allocs: Vec<&Arc<Allocation>> = snapshot
        .allocs_by_job(&key)
        .filter(|a| all || kind.is_none_or(|(_, created)| a.job_create_index == created))
        .collect();
    let index = allocs.iter().map(|a| a.modify_index).max().unwrap_or_else(|| snapshot.table_index(Table::Allocs));
    let stubs: Vec<_> = allocs
        .iter()
        .map(|a| {
            let job_type = snapshot.alloc_job(a).map(|j| j.kind).or(kind.map(|(k, _)| k)).unwrap_or_default();
            wire::alloc_stub(a, job_type, wire::StubFields::default())
        })
        .collect();
    Seen::new(index, &stubs)
}

fn evaluations(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let mut evals: Vec<_> = snapshot.evals_by_job(&key(request)).collect();
    evals.sort_by_key(|e| (e.create_index, e.id));
    let index = evals.iter().map(|e| e.modify_index).max().unwrap_or_else(|| snapshot.table_index(Table::Evals));
    Seen::new(index, &evals.iter().map(|e| wire::eval(e)).collect::<Vec<_>>())
}

fn own_deployments<'a>(snapshot: &'a Snapshot, request: &Request, all: bool) -> Vec<&'a Arc<Deployment>> {
    let created = the_job(snapshot, request).map(|j| j.create_index);
    snapshot
        .deployments_by_job(&key(request))
        .filter(|d| all || created.is_none_or(|c| d.job_create_index == c))
        .collect()
}

fn deployments(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let found = own_deployments(snapshot, request, all(request)?);
    let index = found.iter().map(|d| d.modify_index).max().unwrap_or_else(|| snapshot.table_index(Table::Deployments));
    Seen::new(index, &found.iter().map(|d| wire::deployment(d)).collect::<Vec<_>>())
}

fn deployment(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let latest = own_deployments(snapshot, request, false).into_iter().max_by_key(|d| d.create_index);
    let index = latest.map_or_else(|| snapshot.table_index(Table::Deployments), |d| d.modify_index);
    Seen::new(index, &latest.map(|d| wire::deployment(d)))
}

fn scale(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let Some(job) = the_job(snapshot, request) else { return Ok(no_job(snapshot)) };
    let key = key(request);
    let events = snapshot.scaling_events(&key);
    let allocs: Vec<_> = snapshot.allocs_by_job(&key).filter(|a| !a.terminal()).collect();
    let mut groups = BTreeMap::new();
    for group in &job.task_groups {
        let own: Vec<_> = allocs.iter().filter(|a| *a.task_group == group.name).collect();
        let count = |holds: &dyn Fn(&Allocation) -> bool| own.iter().filter(|a| holds(a)).count();
        groups.insert(
            group.name.as_str(),
            json!({
                "Desired": group.count,
                "Placed": own.len(),
                "Running": count(&|a| a.client_status == ClientStatus::Running),
                "Healthy": count(&|a| a.healthy() == Some(true)),
                "Unhealthy": count(&|a| a.healthy() == Some(false)),
                "Events": events.and_then(|e| e.groups.get(&group.name)),
            }),
        );
    }
    let index = allocs
        .iter()
        .map(|a| a.modify_index)
        .chain([job.modify_index, events.map_or(0, |e| e.modify_index)])
        .max()
        .unwrap_or(job.modify_index);
    let body = json!({
        "JobID": job.id,
        "Namespace": job.namespace,
        "JobCreateIndex": job.create_index,
        "JobModifyIndex": job.modify_index,
        "JobStopped": job.stop,
        "TaskGroups": groups,
    });
    Seen::new(index, &body)
}

/// A registration of the native provider as the API shows it.
pub fn service_view(s: &herdsman_proto::ServiceRegistration) -> Value {
    json!({
        "ID": s.id, "ServiceName": s.service_name, "Namespace": &*s.namespace, "NodeID": s.node_id,
        "Datacenter": s.datacenter, "JobID": &*s.job_id, "AllocID": s.alloc_id, "Tags": s.tags,
        "Address": s.address, "Port": s.port, "CreateIndex": s.create_index, "ModifyIndex": s.modify_index,
    })
}

fn services(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    if the_job(snapshot, request).is_none() {
        return Ok(no_job(snapshot));
    }
    let found: Vec<Value> = snapshot.services_by_job(&key(request)).map(|s| service_view(s)).collect();
    Seen::new(snapshot.table_index(Table::Services), &found)
}

fn actions(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let Some(job) = the_job(snapshot, request) else {
        return Err(HttpError::internal(format!("Unknown job \"{}\"", request.part(0))));
    };
    let mut found = Vec::new();
    for group in &job.task_groups {
        for task in &group.tasks {
            for action in &task.actions {
                found.push(json!({
                    "Name": action.name, "Command": action.command, "Args": action.args,
                    "TaskName": task.name, "TaskGroupName": group.name,
                }));
            }
        }
    }
    Seen::new(0, &found)
}

/// The jobs a status request names; all when its body names none.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct StatusesWanted {
    jobs: Option<Vec<WantedJob>>,
    include_children: bool,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct WantedJob {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Namespace")]
    namespace: String,
}

fn statuses(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let wanted: StatusesWanted = if request.body.is_empty() { StatusesWanted::default() } else { request.json()? };
    let children = wanted.include_children || request.params.truth("include_children")?.unwrap_or(false);
    let named = wanted.jobs.filter(|j| !j.is_empty());
    let is_wanted = |job: &Job| match &named {
        Some(list) => list.iter().any(|w| w.id == job.id && (w.namespace.is_empty() || w.namespace == job.namespace)),
        None => in_namespace(request, &job.namespace) && (children || job.parent_id.is_empty()),
    };
    let mut jobs: Vec<&Arc<Job>> = snapshot.jobs().filter(|j| is_wanted(j)).collect();
    // Newest first. Source: wire-notes section 4.
    jobs.sort_by_key(|j| (std::cmp::Reverse(j.modify_index), j.id.clone()));
    let found = page(
        request,
        ListRules { reverse: true },
        jobs,
        |j| j.modify_index.to_string(),
        |j| serde_json::to_value(&***j).unwrap_or_default(),
    )?;
    let mut index = 0;
    let items: Vec<Value> = found.items.iter().map(|j| status_of(snapshot, j, &mut index)).collect();
    let floor = if named.is_some() { 0 } else { snapshot.table_index(Table::Jobs) };
    let mut seen = Seen::new(index.max(floor), &items)?;
    seen.next_token = found.next_token;
    Ok(seen)
}

fn status_of(snapshot: &Snapshot, job: &Arc<Job>, index: &mut u64) -> Value {
    let key = JobKey::of(job);
    *index = (*index).max(job.modify_index);
    let mut allocs = Vec::new();
    for alloc in snapshot.allocs_by_job(&key).filter(|a| a.job_create_index == job.create_index) {
        *index = (*index).max(alloc.modify_index);
        allocs.push(json!({
            "ID": alloc.id, "Group": &*alloc.task_group, "ClientStatus": alloc.client_status,
            "NodeID": alloc.node_id, "JobVersion": alloc.job_version, "HasPausedTask": false,
            "FollowupEvalID": alloc.follow_up_eval.map(|e| e.to_string()).unwrap_or_default(),
            "DeploymentStatus": alloc.deployment_status.as_ref().map(|d| json!({"Canary": d.canary, "Healthy": d.healthy})),
        }));
    }
    let latest = snapshot.latest_deployment(&key).map(|d| {
        *index = (*index).max(d.modify_index);
        json!({
            "ID": d.id, "IsActive": d.is_active(), "JobVersion": d.job_version, "Status": d.status.as_str(),
            "StatusDescription": d.status_description, "AllAutoPromote": d.has_auto_promote(),
            "RequiresPromotion": d.requires_promotion(),
        })
    });
    let children: Vec<&'static str> = snapshot.job_children(&key).map(|c| c.status.as_str()).collect();
    json!({
        "ID": job.id, "Name": job.name, "Namespace": job.namespace, "Type": job.kind, "Status": job.status,
        "NodePool": job.node_pool, "Datacenters": job.datacenters, "Priority": job.priority, "Version": job.version,
        "SubmitTime": job.submit_time, "ModifyIndex": job.modify_index, "ParentID": job.parent_id, "Stop": job.stop,
        "IsPack": job.meta.contains_key("pack.name"),
        "GroupCountSum": job.task_groups.iter().map(|g| g.count).sum::<i64>(),
        "Allocs": if allocs.is_empty() { Value::Null } else { Value::Array(allocs) },
        "LatestDeployment": latest,
        "ChildStatuses": if children.is_empty() { Value::Null } else { json!(children) },
    })
}
