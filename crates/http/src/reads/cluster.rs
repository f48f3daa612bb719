//! Reads of nodes, node pools, namespaces, services, scaling policies and the scheduler's configuration.

use crate::error::HttpError;
use crate::paging::{ListRules, page};
use crate::reads::{Read, Seen, check_prefix, in_namespace, read_id};
use crate::request::Request;
use herdsman_model::{Node, NodeId, wire};
use herdsman_state::{ALL_POOL, Snapshot, Table, WatchKey};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// `GET /v1/nodes`
pub const NODES: Read = Read { watch: |_| vec![WatchKey::Table(Table::Nodes)], read: nodes };
/// `GET /v1/node/:id`
pub const NODE: Read = Read { watch: watch_node, read: node };
/// `GET /v1/node/:id/allocations`
pub const NODE_ALLOCATIONS: Read = Read { watch: watch_node_allocs, read: node_allocations };
/// `GET /v1/node/pools`
pub const POOLS: Read = Read { watch: |_| vec![WatchKey::Table(Table::NodePools)], read: pools };
/// `GET /v1/node/pool/:name`
pub const POOL: Read = Read { watch: |r| vec![WatchKey::NodePool(r.part(0).to_string())], read: pool };
/// `GET /v1/node/pool/:name/nodes`
pub const POOL_NODES: Read = Read { watch: |_| vec![WatchKey::Table(Table::Nodes)], read: pool_nodes };
/// `GET /v1/node/pool/:name/jobs`
pub const POOL_JOBS: Read =
    Read { watch: |_| vec![WatchKey::Table(Table::Jobs), WatchKey::Table(Table::Summaries)], read: pool_jobs };
/// `GET /v1/namespaces`
pub const NAMESPACES: Read = Read { watch: |_| vec![WatchKey::Table(Table::Namespaces)], read: namespaces };
/// `GET /v1/namespace/:name`
pub const NAMESPACE: Read = Read { watch: |r| vec![WatchKey::Namespace(r.part(0).to_string())], read: namespace };
/// `GET /v1/services`
pub const SERVICES: Read = Read { watch: |_| vec![WatchKey::Table(Table::Services)], read: services };
/// `GET /v1/service/:name`
pub const SERVICE: Read =
    Read { watch: |r| vec![WatchKey::Service(r.namespace().to_string(), r.part(0).to_string())], read: service };
/// `GET /v1/scaling/policies`
pub const SCALING_POLICIES: Read = Read { watch: |_| vec![WatchKey::Table(Table::ScalingPolicies)], read: policies };
/// `GET /v1/scaling/policy/:id`
pub const SCALING_POLICY: Read = Read { watch: |r| vec![WatchKey::ScalingPolicy(r.part(0).to_string())], read: policy };
/// `GET /v1/operator/scheduler/configuration`
pub const SCHEDULER_CONFIG: Read = Read { watch: |_| vec![WatchKey::Table(Table::SchedulerConfig)], read: scheduler };

fn watch_node(request: &Request) -> Vec<WatchKey> {
    request.part(0).parse().map(WatchKey::Node).into_iter().collect()
}

fn watch_node_allocs(request: &Request) -> Vec<WatchKey> {
    request.part(0).parse().map(WatchKey::NodeAllocs).into_iter().collect()
}

fn stub_fields(request: &Request) -> Result<wire::NodeStubFields, HttpError> {
    Ok(wire::NodeStubFields {
        resources: request.params.truth("resources")?.unwrap_or(false),
        os: request.params.truth("os")?.unwrap_or(false),
    })
}

fn node_page(snapshot: &Snapshot, request: &Request, nodes: Vec<&Arc<Node>>, index: u64) -> Result<Seen, HttpError> {
    let fields = stub_fields(request)?;
    let object = |n: &&Arc<Node>| serde_json::to_value(wire::node(n)).unwrap_or_default();
    let found = page(request, ListRules { reverse: false }, nodes, |n| n.id.to_string(), object)?;
    let items: Vec<_> = found.items.iter().map(|n| wire::node_stub(n, fields)).collect();
    let mut seen = Seen::new(index.max(snapshot.table_index(Table::Nodes)), &items)?;
    seen.next_token = found.next_token;
    Ok(seen)
}

fn nodes(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let prefix = request.params.text("prefix");
    check_prefix("node", prefix)?;
    let found = if prefix.is_empty() { snapshot.nodes().collect() } else { snapshot.nodes_by_prefix(prefix).collect() };
    node_page(snapshot, request, found, 0)
}

fn node(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let id: NodeId = read_id("node", request.part(0))?;
    match snapshot.node(&id) {
        Some(found) => Seen::new(found.modify_index, &wire::node(found)),
        None => Ok(Seen::missing(snapshot.table_index(Table::Nodes), "node not found")),
    }
}

fn node_allocations(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    // A text that is no id has no allocations, as an unknown node has none.
    let id: Option<NodeId> = request.part(0).parse().ok();
    let allocs: Vec<_> = id.iter().flat_map(|id| snapshot.allocs_by_node(id)).collect();
    let index = allocs.iter().map(|a| a.modify_index).max().unwrap_or(1);
    let gone = Arc::new(herdsman_model::Job::default());
    let views: Vec<_> = allocs.iter().map(|a| wire::alloc(a, snapshot.alloc_job(a).unwrap_or(&gone))).collect();
    Seen::new(index, &views)
}

fn pools(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let prefix = request.params.text("prefix");
    let all = snapshot.node_pools().filter(|p| p.name.starts_with(prefix));
    let object = |p: &&Arc<herdsman_state::NodePool>| serde_json::to_value(&***p).unwrap_or_default();
    let found = page(request, ListRules { reverse: true }, all, |p| p.name.clone(), object)?;
    let items: Vec<_> = found.items.iter().map(|p| &***p).collect();
    let mut seen = Seen::new(snapshot.table_index(Table::NodePools).max(1), &items)?;
    seen.next_token = found.next_token;
    Ok(seen)
}

fn pool(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    match snapshot.node_pool(request.part(0)) {
        Some(found) => Seen::new(found.modify_index, &**found),
        None => Ok(Seen::missing(snapshot.table_index(Table::NodePools), "node pool not found")),
    }
}

fn known_pool(snapshot: &Snapshot, request: &Request) -> Option<Seen> {
    let missing = || Seen::missing(snapshot.table_index(Table::NodePools), "node pool not found");
    snapshot.node_pool(request.part(0)).is_none().then(missing)
}

fn pool_nodes(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    if request.params.get("prefix").is_some_and(|p| !p.is_empty()) {
        return Err(HttpError::bad_request("prefix is not supported on this route"));
    }
    if let Some(missing) = known_pool(snapshot, request) {
        return Ok(missing);
    }
    let name = request.part(0);
    let found = snapshot.nodes().filter(|n| name == ALL_POOL || n.node_pool == name).collect();
    node_page(snapshot, request, found, 0)
}

fn pool_jobs(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    if let Some(missing) = known_pool(snapshot, request) {
        return Ok(missing);
    }
    let name = request.part(0);
    let with_meta = request.params.truth("meta")?.unwrap_or(false);
    let jobs =
        snapshot.jobs().filter(|j| in_namespace(request, &j.namespace) && (name == ALL_POOL || j.node_pool == name));
    crate::reads::jobs::list_of(snapshot, request, jobs, with_meta)
}

/// A namespace as the API shows it: claims of identities cannot be configured here.
fn namespace_view(namespace: &herdsman_state::Namespace) -> Value {
    let mut view = serde_json::to_value(namespace).unwrap_or_default();
    if let Value::Object(fields) = &mut view {
        fields.insert("OptionalExtraClaims".to_string(), Value::Null);
        fields.insert("RequiredExtraClaims".to_string(), Value::Null);
    }
    view
}

fn namespaces(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let prefix = request.params.text("prefix");
    let all: Vec<Value> =
        snapshot.namespaces().filter(|n| n.name.starts_with(prefix)).map(|n| namespace_view(n)).collect();
    Seen::new(snapshot.table_index(Table::Namespaces).max(1), &all)
}

fn namespace(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    match snapshot.namespace(request.part(0)) {
        Some(found) => Seen::new(found.modify_index, &namespace_view(found)),
        None => Ok(Seen::missing(snapshot.table_index(Table::Namespaces), "Namespace not found")),
    }
}

fn services(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let mut spaces: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for one in snapshot.services().filter(|s| in_namespace(request, &s.namespace)) {
        let names = spaces.entry(one.namespace.to_string()).or_default();
        names.entry(one.service_name.clone()).or_default().extend(one.tags.iter().cloned());
    }
    let view: Vec<Value> = spaces
        .into_iter()
        .map(|(namespace, names)| {
            let list: Vec<Value> =
                names.into_iter().map(|(name, tags)| json!({"ServiceName": name, "Tags": tags})).collect();
            json!({"Namespace": namespace, "Services": list})
        })
        .collect();
    Seen::new(snapshot.table_index(Table::Services).max(1), &view)
}

fn service(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let all = snapshot.services_by_name(request.namespace(), request.part(0));
    let object = |s: &&Arc<herdsman_proto::ServiceRegistration>| crate::reads::jobs::service_view(s);
    let mut found = page(request, ListRules { reverse: false }, all, |s| s.id.clone(), object)?;
    if let Some(choice) = request.params.get("choose") {
        found.items = choose(found.items, choice)?;
    }
    let items: Vec<Value> = found.items.iter().map(object).collect();
    let mut seen = Seen::new(snapshot.table_index(Table::Services), &items)?;
    seen.next_token = found.next_token;
    Ok(seen)
}

/// `choose=<n>|<key>`: the n registrations that rendezvous hashing gives this key.
fn choose<'a>(
    mut items: Vec<&'a Arc<herdsman_proto::ServiceRegistration>>,
    choice: &str,
) -> Result<Vec<&'a Arc<herdsman_proto::ServiceRegistration>>, HttpError> {
    let bad = || HttpError::bad_request("failed to parse choose parameter: it takes the form <number>|<key>");
    let (count, key) = choice.split_once('|').ok_or_else(bad)?;
    let count: usize = count.parse().map_err(|_| bad())?;
    items.sort_by_key(|s| (std::cmp::Reverse(weight(key, &s.id)), s.id.clone()));
    items.truncate(count);
    Ok(items)
}

/// A stable 64-bit hash (FNV-1a) of key and id.
fn weight(key: &str, id: &str) -> u64 {
    key.bytes()
        .chain([0])
        .chain(id.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn policy_view(row: &herdsman_state::ScalingPolicyRow, whole: bool) -> Value {
    let policy = &row.policy;
    let mut view = json!({
        "ID": policy.id, "Type": policy.kind, "Target": policy.target, "Enabled": policy.enabled,
        "CreateIndex": policy.create_index, "ModifyIndex": policy.modify_index,
    });
    if whole && let Value::Object(fields) = &mut view {
        fields.insert("Min".to_string(), json!(policy.min));
        fields.insert("Max".to_string(), json!(policy.max));
        fields.insert("Policy".to_string(), json!(policy.policy));
    }
    view
}

fn policies(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    let (job, kind, prefix) = (request.params.text("job"), request.params.text("type"), request.params.text("prefix"));
    let view: Vec<Value> = snapshot
        .scaling_policies()
        .filter(|p| in_namespace(request, &p.namespace))
        .filter(|p| (job.is_empty() || p.job_id == job) && (kind.is_empty() || p.policy.kind.starts_with(kind)))
        .filter(|p| p.policy.id.starts_with(prefix))
        .map(|p| policy_view(p, false))
        .collect();
    Seen::new(snapshot.table_index(Table::ScalingPolicies).max(1), &view)
}

fn policy(snapshot: &Snapshot, request: &Request) -> Result<Seen, HttpError> {
    match snapshot.scaling_policy(request.part(0)) {
        Some(row) => Seen::new(row.policy.modify_index, &policy_view(row, true)),
        None => Ok(Seen::missing(snapshot.table_index(Table::ScalingPolicies), "policy not found")),
    }
}

fn scheduler(snapshot: &Snapshot, _: &Request) -> Result<Seen, HttpError> {
    let config = snapshot.scheduler_config();
    let body = json!({
        "SchedulerConfig": &**config,
        "Index": config.modify_index,
        "LastContact": 0,
        "KnownLeader": true,
        "NextToken": "",
    });
    Seen::new(config.modify_index, &body)
}
