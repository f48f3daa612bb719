//! The event stream: changes of the tables as typed events, the last ones kept for those who come late.
//!
//! Source of topics, types and payloads: `compat/wire-notes.md` section 9.

use crate::error::HttpError;
use herdsman_model::wire;
use herdsman_server::Batch;
use herdsman_state::{Change, Row};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, broadcast};

/// Indexes whose events are kept. Source: `server.event_buffer_size`.
pub const MAX_BUFFERED: usize = 100;

/// Topics that a stream may ask for, besides `*`.
const TOPICS: [&str; 7] = ["Deployment", "Evaluation", "Allocation", "Job", "Node", "NodePool", "Service"];

/// Topics of the peer that nothing here can make an event of yet; asking for them is no fault.
const QUIET_TOPICS: [&str; 10] = [
    "ACLPolicy",
    "ACLToken",
    "ACLRole",
    "ACLAuthMethod",
    "ACLBindingRule",
    "HostVolume",
    "CSIVolume",
    "CSIPlugin",
    "Operator",
    "Variable",
];

/// The changes that one command made.
#[derive(Debug)]
pub struct Group {
    /// Index of the command.
    pub index: u64,
    kind: u32,
    changes: Vec<Change>,
}

/// The last changes, in order.
#[derive(Debug, Default)]
pub struct EventBuffer {
    groups: Mutex<VecDeque<Arc<Group>>>,
    came: Notify,
    closed: std::sync::atomic::AtomicBool,
}

impl EventBuffer {
    /// A buffer that one task fills until the feed ends.
    pub fn start(mut feed: broadcast::Receiver<Arc<Batch>>) -> Arc<EventBuffer> {
        let buffer = Arc::new(EventBuffer::default());
        let filled = Arc::clone(&buffer);
        tokio::spawn(async move {
            loop {
                match feed.recv().await {
                    Ok(batch) => filled.take(&batch),
                    // What was missed is gone from the buffer too: readers see the gap in the indexes.
                    Err(broadcast::error::RecvError::Lagged(_)) => filled.groups().clear(),
                    Err(broadcast::error::RecvError::Closed) => break,
                }
            }
            filled.closed.store(true, std::sync::atomic::Ordering::Release);
            filled.came.notify_waiters();
        });
        buffer
    }

    fn groups(&self) -> MutexGuard<'_, VecDeque<Arc<Group>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, batch: &Batch) {
        let kinds: BTreeMap<u64, u32> = batch.commands.iter().copied().collect();
        let mut made: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
        for change in &batch.changes {
            made.entry(change.index).or_default().push(change.clone());
        }
        let mut groups = self.groups();
        for (index, changes) in made {
            let Some(&kind) = kinds.get(&index) else { continue };
            groups.push_back(Arc::new(Group { index, kind, changes }));
            if groups.len() > MAX_BUFFERED {
                groups.pop_front();
            }
        }
        drop(groups);
        self.came.notify_waiters();
    }

    /// The first group past an index.
    fn after(&self, index: u64) -> Option<Arc<Group>> {
        self.groups().iter().find(|g| g.index > index).cloned()
    }

    /// Waits for the first group past an index; none when there will be no more.
    pub async fn next(&self, index: u64) -> Option<Arc<Group>> {
        loop {
            let came = self.came.notified();
            let mut came = std::pin::pin!(came);
            came.as_mut().enable();
            if let Some(group) = self.after(index) {
                return Some(group);
            }
            if self.closed.load(std::sync::atomic::Ordering::Acquire) {
                return None;
            }
            came.await;
        }
    }
}

/// The index that a stream which asked for `index` begins after: 0 is the head of the buffer, others what is nearest.
pub fn begin(index: u64) -> u64 {
    index.saturating_sub(1)
}

/// What a stream asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Keys by topic; `*` stands for all of either.
    topics: BTreeMap<String, Vec<String>>,
    namespace: String,
}

impl Wanted {
    /// Reads `topic` parameters. None means everything.
    ///
    /// # Errors
    /// A parameter has more than one colon, or names a topic that does not exist.
    pub fn parse<'a>(topics: impl Iterator<Item = &'a str>, namespace: &str) -> Result<Wanted, HttpError> {
        let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for text in topics {
            let parts: Vec<&str> = text.split(':').collect();
            let (topic, key) = match parts.as_slice() {
                [topic] => (*topic, "*"),
                [topic, ""] => (*topic, "*"),
                [topic, key] => (*topic, *key),
                _ => {
                    return Err(HttpError::bad_request(format!(
                        "error parsing topics: Invalid key value pair for topic, topic: {text}"
                    )));
                }
            };
            if topic != "*" && !TOPICS.contains(&topic) && !QUIET_TOPICS.contains(&topic) {
                let known = [TOPICS.as_slice(), QUIET_TOPICS.as_slice()].concat().join(", ");
                return Err(HttpError::bad_request(format!("topic {topic:?} is none of {known} and *")));
            }
            wanted.entry(topic.to_string()).or_default().push(key.to_string());
        }
        if wanted.is_empty() {
            wanted.insert("*".to_string(), vec!["*".to_string()]);
        }
        Ok(Wanted { topics: wanted, namespace: namespace.to_string() })
    }

    fn takes(&self, event: &Event<'_>) -> bool {
        if !event.namespace.is_empty() && self.namespace != "*" && self.namespace != event.namespace {
            return false;
        }
        let matches = |keys: &Vec<String>| {
            keys.iter().any(|k| k == "*" || *k == event.key || event.filter_keys.iter().flatten().any(|f| f == k))
        };
        self.topics.get(event.topic).is_some_and(matches) || self.topics.get("*").is_some_and(matches)
    }
}

/// One event before its payload is written.
struct Event<'a> {
    topic: &'static str,
    key: String,
    namespace: String,
    filter_keys: Option<Vec<String>>,
    row: &'a Row,
    deleted: bool,
}

impl Group {
    /// The line of the stream for this group, newline included; none when nothing in it is wanted.
    pub fn line(&self, wanted: &Wanted) -> Option<Vec<u8>> {
        let events: Vec<Value> = self
            .changes
            .iter()
            .filter_map(event)
            .filter(|e| wanted.takes(e))
            .filter_map(|e| {
                let kind = event_type(self.kind, &e)?;
                Some(json!({
                    "Topic": e.topic, "Type": kind, "Key": e.key, "Namespace": e.namespace,
                    "FilterKeys": e.filter_keys, "Index": self.index, "Payload": payload(&e),
                }))
            })
            .collect();
        if events.is_empty() {
            return None;
        }
        let mut line = serde_json::to_vec(&json!({"Index": self.index, "Events": events})).ok()?;
        line.push(b'\n');
        Some(line)
    }
}

fn text(id: Option<impl ToString>) -> String {
    id.map(|i| i.to_string()).unwrap_or_default()
}

/// The event of a change; none for rows that no topic shows.
fn event(change: &Change) -> Option<Event<'_>> {
    let row = change.row()?;
    let (topic, key, namespace, filter_keys) = match row {
        Row::Job(job) => ("Job", job.id.clone(), job.namespace.clone(), None),
        Row::Alloc(a) => (
            "Allocation",
            a.id.to_string(),
            a.namespace.to_string(),
            Some(vec![a.job_id.to_string(), text(a.deployment_id)]),
        ),
        Row::Eval(e) => (
            "Evaluation",
            e.id.to_string(),
            e.namespace.to_string(),
            Some(vec![e.job_id.to_string(), text(e.deployment_id)]),
        ),
        Row::Deployment(d) => {
            ("Deployment", d.id.to_string(), d.namespace.to_string(), Some(vec![d.job_id.to_string()]))
        }
        Row::Node(n) => ("Node", n.id.to_string(), String::new(), None),
        Row::NodePool(p) => ("NodePool", p.name.clone(), String::new(), None),
        Row::Service(s) => {
            ("Service", s.id.clone(), s.namespace.to_string(), Some(vec![s.job_id.to_string(), s.service_name.clone()]))
        }
        Row::Submission(_)
        | Row::Summary(_)
        | Row::Namespace(_)
        | Row::ScalingPolicy(_)
        | Row::ScalingEvents(_)
        | Row::SchedulerConfig(_)
        | Row::PeriodicLaunch(_) => return None,
    };
    Some(Event { topic, key, namespace, filter_keys, row, deleted: change.after.is_none() })
}

/// Stored kinds of commands ([`herdsman_state::Body::kind`]) that events are named after.
mod command {
    pub const REGISTER_JOB: u32 = 1;
    pub const DEREGISTER_JOB: u32 = 2;
    pub const UPSERT_EVALS: u32 = 3;
    pub const APPLY_PLAN: u32 = 4;
    pub const UPDATE_ALLOCS: u32 = 5;
    pub const ALLOC_TRANSITIONS: u32 = 6;
    pub const UPSERT_NODE: u32 = 7;
    pub const NODE_STATUS: u32 = 8;
    pub const NODE_ELIGIBILITY: u32 = 9;
    pub const NODE_DRAIN: u32 = 10;
    pub const NODE_EVENTS: u32 = 11;
    pub const DELETE_NODES: u32 = 12;
    pub const DEPLOYMENT_STATUS: u32 = 13;
    pub const PROMOTE_DEPLOYMENT: u32 = 14;
    pub const ALLOC_HEALTH: u32 = 15;
    pub const JOB_STABILITY: u32 = 16;
    pub const SCALE_JOB: u32 = 17;
    pub const JOB_VERSION_TAG: u32 = 18;
    pub const LAUNCH_PERIODIC: u32 = 20;
    pub const DISPATCH_JOB: u32 = 21;
    pub const GC: u32 = 27;
}

/// The type of an event: what was done, by the kind of the command; none for what the stream does not tell.
fn event_type(kind: u32, event: &Event<'_>) -> Option<&'static str> {
    Some(match (event.row, event.deleted, kind) {
        (Row::Service(_), false, _) => "ServiceRegistration",
        (Row::Service(_), true, _) => "ServiceDeregistration",
        (Row::NodePool(_), false, _) => "NodePoolUpserted",
        (Row::NodePool(_), true, _) => "NodePoolDeleted",
        // Of what is collected only jobs are told of.
        (Row::Job(_), true, command::GC) => "JobBatchDeregistered",
        (_, _, command::GC) => return None,
        (
            _,
            _,
            command::REGISTER_JOB
            | command::JOB_STABILITY
            | command::SCALE_JOB
            | command::JOB_VERSION_TAG
            | command::LAUNCH_PERIODIC
            | command::DISPATCH_JOB,
        ) => "JobRegistered",
        (_, _, command::DEREGISTER_JOB) => "JobDeregistered",
        (_, _, command::UPSERT_EVALS) => "EvaluationUpdated",
        (_, _, command::APPLY_PLAN) => "PlanResult",
        (_, _, command::UPDATE_ALLOCS) => "AllocationUpdated",
        (_, _, command::ALLOC_TRANSITIONS) => "AllocationUpdateDesiredStatus",
        (_, _, command::UPSERT_NODE) => "NodeRegistration",
        (_, _, command::NODE_STATUS | command::NODE_EVENTS) => "NodeStreamEvent",
        (_, _, command::NODE_ELIGIBILITY) => "NodeEligibility",
        (_, _, command::NODE_DRAIN) => "NodeDrain",
        (_, _, command::DELETE_NODES) => "NodeDeregistration",
        (_, _, command::DEPLOYMENT_STATUS) => "DeploymentStatusUpdate",
        (_, _, command::PROMOTE_DEPLOYMENT) => "DeploymentPromotion",
        (_, _, command::ALLOC_HEALTH) => "DeploymentAllocHealth",
        _ => return None,
    })
}

fn payload(event: &Event<'_>) -> Value {
    match event.row {
        Row::Job(job) if event.deleted => json!({"Job": **job, "Deleted": true}),
        Row::Job(job) => json!({"Job": **job}),
        Row::Alloc(alloc) => {
            let gone = herdsman_model::Job::default();
            let mut view = serde_json::to_value(wire::alloc(alloc, &gone)).unwrap_or_default();
            if let Value::Object(fields) = &mut view {
                fields.remove("Job");
            }
            json!({"Allocation": view})
        }
        Row::Eval(eval) => json!({"Evaluation": wire::eval(eval)}),
        Row::Deployment(deployment) => json!({"Deployment": wire::deployment(deployment)}),
        Row::Node(node) => json!({"Node": wire::node(node)}),
        Row::NodePool(pool) => json!({"NodePool": **pool}),
        Row::Service(service) => json!({"Service": crate::reads::jobs::service_view(service)}),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use herdsman_model::{Evaluation, Job};
    use herdsman_state::Table;

    fn batch(index: u64) -> Batch {
        let job = Job { id: "web".into(), namespace: "default".into(), ..Job::default() };
        let eval = Evaluation { job_id: "web".into(), namespace: "default".into(), ..Evaluation::default() };
        let made = |table, row| Change { table, before: None, after: Some(row), index };
        Batch {
            index,
            time: 0,
            changes: vec![made(Table::Jobs, Row::Job(Arc::new(job))), made(Table::Evals, Row::Eval(Arc::new(eval)))],
            commands: vec![(index, 1)],
        }
    }

    fn events(group: &Group, wanted: &Wanted) -> Vec<(String, String)> {
        let Some(line) = group.line(wanted) else { return Vec::new() };
        let value: Value = serde_json::from_slice(&line).unwrap();
        let of = |e: &Value, k: &str| e[k].as_str().unwrap().to_string();
        value["Events"].as_array().unwrap().iter().map(|e| (of(e, "Topic"), of(e, "Type"))).collect()
    }

    #[tokio::test]
    async fn late_readers_get_what_is_kept() {
        let (sender, receiver) = broadcast::channel(8);
        let buffer = EventBuffer::start(receiver);
        sender.send(Arc::new(batch(7))).unwrap();
        let group = buffer.next(begin(0)).await.unwrap();
        assert_eq!(group.index, 7);
        let everything = Wanted::parse([].into_iter(), "default").unwrap();
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(events(&group, &everything), [pair("Job", "JobRegistered"), pair("Evaluation", "JobRegistered")]);
        // An evaluation is found by its job's id too.
        let by_job = Wanted::parse(["Evaluation:web"].into_iter(), "default").unwrap();
        assert_eq!(events(&group, &by_job), [pair("Evaluation", "JobRegistered")]);
        let elsewhere = Wanted::parse(["Job"].into_iter(), "other").unwrap();
        assert!(events(&group, &elsewhere).is_empty());
        drop(sender);
        assert!(buffer.next(7).await.is_none());
    }

    #[test]
    fn topics_are_checked() {
        let error = Wanted::parse(["Evaluation:::*"].into_iter(), "default").unwrap_err();
        assert!(error.message.contains("Invalid key value pair"), "{error}");
        assert_eq!(Wanted::parse(["Banana"].into_iter(), "default").unwrap_err().code, 400);
    }
}
