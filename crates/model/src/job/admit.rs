//! What the servers add to a job when it is registered: defaults that need the cluster's settings, names filled in,
//! constraints that follow from what the job uses.

use crate::job::{Constraint, Identity, Job, Service, Task, TaskGroup, UpdateStrategy};
use crate::resources::NetworkResource;
use crate::values::Map;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The name of the identity that every task has.
pub const DEFAULT_IDENTITY: &str = "default";
/// The audience of the default identity.
pub const DEFAULT_AUDIENCE: &str = "nomadproject.io";
/// The namespace and node pool of jobs that name none.
pub const DEFAULT_NAME: &str = "default";

/// Brings a canonical job into its registered form. `new_id` gives identifiers for scaling policies that have none.
///
/// Doing it twice adds nothing more, so that a registered job can be registered again.
pub fn admit(job: &mut Job, new_id: &mut dyn FnMut() -> String) {
    if job.datacenters.is_empty() {
        job.datacenters.push("*".to_string());
    }
    or_default(&mut job.namespace, DEFAULT_NAME);
    or_default(&mut job.node_pool, DEFAULT_NAME);
    if let Some(parameterized) = &mut job.parameterized_job {
        or_default(&mut parameterized.payload, "optional");
    }
    // Groups have it all by now; the job keeps what the rolling update of old reads.
    job.update = UpdateStrategy {
        stagger: job.update.stagger,
        max_parallel: job.update.max_parallel,
        ..UpdateStrategy::default()
    };
    let mut groups = std::mem::take(&mut job.task_groups);
    let providers: BTreeSet<String> =
        groups.iter().flat_map(|g| g.tasks.iter()).flat_map(|t| t.secrets.iter()).map(|s| s.provider.clone()).collect();
    for group in groups.iter_mut() {
        let group = Arc::make_mut(group);
        admit_group(job, group, new_id);
        let implied = implied_group_constraints(group, &providers);
        add_constraints(&mut group.constraints, implied);
    }
    job.task_groups = groups;
}

fn or_default(text: &mut String, default: &str) {
    if text.is_empty() {
        text.push_str(default);
    }
}

fn admit_group(job: &Job, group: &mut TaskGroup, new_id: &mut dyn FnMut() -> String) {
    group.networks.iter_mut().for_each(admit_network);
    // The block `disconnect` is what acts; the peer drops the settings it replaced.
    group.max_client_disconnect = None;
    group.stop_after_client_disconnect = None;
    group.prevent_reschedule_on_lost = false;
    if let Some(scaling) = &mut group.scaling {
        if scaling.id.is_empty() {
            scaling.id = new_id();
        }
        scaling.target = target(job, &group.name, None);
    }
    let base = format!("{}-{}", job.name, group.name);
    let names = Names { job: &job.name, group: &group.name, task: None, base: &base };
    let consul = group.consul.as_ref().map(|c| c.namespace.clone()).unwrap_or_default();
    let group_name = group.name.clone();
    for service in group.services.iter_mut() {
        admit_service(job, service, &names, &consul);
    }
    for task in group.tasks.iter_mut() {
        admit_task(job, &group_name, &consul, Arc::make_mut(task), new_id);
    }
}

fn target(job: &Job, group: &str, task: Option<&str>) -> Map<String> {
    let mut target: Map<String> =
        [("Namespace", job.namespace.clone()), ("Job", job.id.clone()), ("Group", group.to_string())]
            .into_iter()
            .collect();
    if let Some(task) = task {
        target.insert("Task".to_string(), task.to_string());
    }
    target
}

fn admit_network(network: &mut NetworkResource) {
    network.device.clear();
    for port in network.reserved_ports.iter_mut().chain(network.dynamic_ports.iter_mut()) {
        or_default(&mut port.host_network, DEFAULT_NAME);
    }
}

fn admit_task(job: &Job, group: &str, group_consul: &str, task: &mut Task, new_id: &mut dyn FnMut() -> String) {
    default_identity(task);
    task.resources.networks.iter_mut().for_each(admit_network);
    for policy in task.scaling_policies.iter_mut() {
        if policy.id.is_empty() {
            policy.id = new_id();
        }
        policy.target = target(job, group, Some(&task.name));
    }
    let base = format!("{}-{}-{}", job.name, group, task.name);
    let name = task.name.clone();
    let names = Names { job: &job.name, group, task: Some(&name), base: &base };
    let consul = task.consul.as_ref().map_or(group_consul, |c| c.namespace.as_str()).to_string();
    for service in task.services.iter_mut() {
        or_default(&mut service.task_name, &name);
        admit_service(job, service, &names, &consul);
    }
    let implied = implied_task_constraints(task);
    add_constraints(&mut task.constraints, implied);
}

/// Every task has one default identity; one that the job names among the others takes its place.
fn default_identity(task: &mut Task) {
    let (defaults, others): (Vec<Identity>, Vec<Identity>) =
        std::mem::take(&mut task.identities).into_iter().partition(|i| i.name.is_empty() || i.name == DEFAULT_IDENTITY);
    task.identities = others.into();
    let mut identity = defaults.into_iter().next_back().or(task.identity.take()).unwrap_or_default();
    identity.name = DEFAULT_IDENTITY.to_string();
    identity.audience = vec![DEFAULT_AUDIENCE.to_string()].into();
    task.identity = Some(identity);
}

/// What a service name may refer to.
struct Names<'a> {
    job: &'a str,
    group: &'a str,
    task: Option<&'a str>,
    base: &'a str,
}

impl Names<'_> {
    fn fill(&self, text: &str) -> String {
        let filled = text.replace("${JOB}", self.job).replace("${TASKGROUP}", self.group).replace("${BASE}", self.base);
        match self.task {
            Some(task) => filled.replace("${TASK}", task),
            None => filled,
        }
    }
}

fn admit_service(job: &Job, service: &mut Service, names: &Names<'_>, consul_namespace: &str) {
    service.name = names.fill(&service.name);
    service.namespace = match (service.provider.as_str(), consul_namespace, job.consul_namespace.as_str()) {
        ("nomad", ..) => job.namespace.clone(),
        (_, "", "") => DEFAULT_NAME.to_string(),
        (_, "", namespace) | (_, namespace, _) => namespace.to_string(),
    };
    for check in service.checks.iter_mut() {
        if check.name.is_empty() {
            check.name = format!("service: \"{}\" check", service.name);
        }
        or_default(&mut check.task_name, &service.task_name);
    }
    if let Some(identity) = &mut service.identity {
        let group_owner = format!("group-{}", names.group);
        let owner = if service.task_name.is_empty() { &group_owner } else { &service.task_name };
        identity.name = format!("consul-service_{owner}-{}-{}", service.name, service.port_label);
        identity.service_name = service.name.clone();
    }
}

fn add_constraints(to: &mut Vec<Constraint>, implied: Vec<Constraint>) {
    for constraint in implied {
        if !to.contains(&constraint) {
            to.push(constraint);
        }
    }
}

fn semver(attribute: &str, version: &str) -> Constraint {
    constraint(attribute, "semver", version)
}

fn constraint(attribute: &str, operand: &str, value: &str) -> Constraint {
    Constraint { l_target: format!("${{attr.{attribute}}}"), operand: operand.to_string(), r_target: value.to_string() }
}

/// The attribute of a cluster's version: clusters other than the default have their name in it.
fn cluster_attribute(product: &str, cluster: &str) -> String {
    match cluster {
        "" | DEFAULT_NAME => format!("{product}.version"),
        cluster => format!("{product}.{cluster}.version"),
    }
}

fn consul_versions<'a>(services: impl Iterator<Item = &'a Service>) -> Vec<Constraint> {
    let clusters: BTreeSet<&str> = services.filter(|s| s.provider == "consul").map(|s| s.cluster.as_str()).collect();
    clusters.into_iter().map(|c| semver(&cluster_attribute("consul", c), ">= 1.8.0")).collect()
}

fn implied_task_constraints(task: &Task) -> Vec<Constraint> {
    let mut out = consul_versions(task.services.iter());
    if let Some(consul) = task.consul.as_ref().filter(|c| !c.partition.is_empty()) {
        out.push(constraint("consul.partition", "=", &consul.partition));
    }
    out
}

/// What the nodes of a group must have because of what the group uses. Source: `compat/jobspec.tsv`, implicit constraints.
fn implied_group_constraints(group: &TaskGroup, secret_providers: &BTreeSet<String>) -> Vec<Constraint> {
    let mut out = Vec::new();
    let tasks = || group.tasks.iter();
    for vault in tasks().filter_map(|t| t.vault.as_ref()) {
        let version = if matches!(vault.cluster.as_str(), "" | DEFAULT_NAME) { ">= 0.6.1" } else { ">= 1.11.0" };
        out.push(semver(&cluster_attribute("vault", &vault.cluster), version));
    }
    let signals: BTreeSet<&str> = tasks().flat_map(|t| used_signals(t)).collect();
    if !signals.is_empty() {
        let list: Vec<&str> = signals.into_iter().collect();
        out.push(constraint("os.signals", "set_contains", &list.join(",")));
    }
    let services = || group.services.iter().chain(group.tasks.iter().flat_map(|t| t.services.iter()));
    if services().any(|s| s.provider == "nomad") {
        out.push(constraint("nomad.service_discovery", "=", "true"));
        if services().any(|s| s.provider == "nomad" && !s.checks.is_empty()) {
            out.push(semver("nomad.version", ">= 1.4.0"));
        }
    }
    out.extend(consul_versions(group.services.iter()));
    if let Some(consul) = group.consul.as_ref().filter(|c| !c.partition.is_empty()) {
        out.push(constraint("consul.partition", "=", &consul.partition));
    }
    if group.networks.iter().any(|n| n.mode == "bridge") {
        for plugin in ["bridge", "firewall", "host-local", "loopback", "portmap"] {
            out.push(semver(&format!("plugins.cni.version.{plugin}"), ">= 0.4.0"));
        }
    }
    let transparent = |s: &Service| {
        s.connect
            .as_ref()
            .and_then(|c| c.pointer("/SidecarService/Proxy/TransparentProxy"))
            .is_some_and(|t| !t.is_null())
    };
    if group.services.iter().any(transparent) {
        out.push(semver("plugins.cni.version.consul-cni", ">= 1.4.2"));
        out.push(semver("nomad.version", ">= 1.8.0-dev"));
    }
    if tasks().any(|t| !t.identities.is_empty()) || services().any(|s| s.identity.is_some()) {
        out.push(semver("nomad.version", ">= 1.7.0-a"));
    }
    for provider in secret_providers {
        out.push(constraint(&format!("plugins.secrets.{provider}.version"), "is_set", ""));
    }
    out
}

/// The signals that a task must be able to get: to end it, and when templates or Vault tokens change.
fn used_signals(task: &Task) -> impl Iterator<Item = &str> {
    let templates = task.templates.iter().filter(|t| t.change_mode == "signal").map(|t| t.change_signal.as_str());
    let vault = task.vault.iter().filter(|v| v.change_mode == "signal").map(|v| v.change_signal.as_str());
    std::iter::once(task.kill_signal.as_str()).chain(templates).chain(vault).filter(|s| !s.is_empty())
}
