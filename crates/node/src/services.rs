//! Services of the native provider: what is registered on this node, and changes on their way to the servers.

use crate::env::TaskEnv;
use herdsman_drivers::DriverNetwork;
use herdsman_model::{AllocatedPort, Allocation, DeploymentStatus, Job, Node, Service};
use herdsman_proto::ServiceRegistration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The provider whose services are ours.
pub const NATIVE: &str = "nomad";

#[derive(Default)]
struct Inner {
    registered: BTreeMap<String, ServiceRegistration>,
    added: BTreeSet<String>,
    removed: BTreeSet<String>,
}

/// What is registered on this node.
#[derive(Default)]
pub struct Registry {
    inner: Mutex<Inner>,
    wake: Notify,
}

/// Changes to send.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    pub register: Vec<ServiceRegistration>,
    pub deregister: Vec<String>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A holder never leaves it half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn register(&self, registrations: Vec<ServiceRegistration>) {
        if registrations.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for registration in registrations {
            let id = registration.id.clone();
            inner.removed.remove(&id);
            if inner.registered.get(&id) != Some(&registration) {
                inner.added.insert(id.clone());
                inner.registered.insert(id, registration);
            }
        }
        drop(inner);
        self.wake.notify_one();
    }

    pub fn deregister(&self, ids: impl IntoIterator<Item = String>) {
        let mut inner = self.lock();
        for id in ids {
            inner.added.remove(&id);
            if inner.registered.remove(&id).is_some() {
                inner.removed.insert(id);
            }
        }
        drop(inner);
        self.wake.notify_one();
    }

    /// A session began: the servers may know nothing, so everything is to be said again.
    pub fn resend_all(&self) {
        let mut inner = self.lock();
        inner.added = inner.registered.keys().cloned().collect();
        drop(inner);
        self.wake.notify_one();
    }

    /// Waits until there are changes.
    pub async fn ready(&self) {
        loop {
            let notified = self.wake.notified();
            {
                let inner = self.lock();
                if !inner.added.is_empty() || !inner.removed.is_empty() {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Takes the changes.
    pub fn take(&self) -> Changes {
        let mut inner = self.lock();
        let added = std::mem::take(&mut inner.added);
        let register = added.iter().filter_map(|id| inner.registered.get(id).cloned()).collect();
        let deregister = std::mem::take(&mut inner.removed).into_iter().collect();
        Changes { register, deregister }
    }

    /// Changes did not arrive.
    pub fn give_back(&self, changes: Changes) {
        let mut inner = self.lock();
        for registration in changes.register {
            if inner.registered.contains_key(&registration.id) {
                inner.added.insert(registration.id);
            }
        }
        for id in changes.deregister {
            if !inner.registered.contains_key(&id) {
                inner.removed.insert(id);
            }
        }
    }
}

/// Where services of an allocation belong.
pub struct Place<'a> {
    pub alloc: &'a Allocation,
    pub job: &'a Job,
    pub node: &'a Node,
    /// The task, or none for services of the group.
    pub task: Option<&'a str>,
    pub deployment: Option<&'a DeploymentStatus>,
    /// The task's own address, where its driver gave it one.
    pub network: Option<&'a DriverNetwork>,
}

impl Place<'_> {
    /// The id of a registration.
    pub fn service_id(&self, name: &str, port_label: &str) -> String {
        let owner = match self.task {
            Some(task) => task.to_string(),
            None => format!("group-{}", self.alloc.task_group),
        };
        format!("_nomad-task-{}-{owner}-{name}-{port_label}", self.alloc.id)
    }

    /// The registration of a service, or why its address is not known.
    pub fn registration(&self, service: &Service, env: &TaskEnv) -> Result<ServiceRegistration, String> {
        let name = env.fill(&service.name);
        let label = env.fill(&service.port_label);
        let (address, port) = self.address(service, &label, env)?;
        let canary = self.deployment.is_some_and(|status| status.canary);
        let tags = if canary && !service.canary_tags.is_empty() { &service.canary_tags } else { &service.tags };
        Ok(ServiceRegistration {
            id: self.service_id(&name, &label),
            service_name: name,
            namespace: self.alloc.namespace.clone(),
            node_id: self.node.id,
            datacenter: self.node.datacenter.clone(),
            job_id: self.job.id.as_str().into(),
            alloc_id: self.alloc.id,
            tags: tags.iter().map(|tag| env.fill(tag)).collect(),
            address,
            port,
            create_index: 0,
            modify_index: 0,
        })
    }

    /// Address and port that a label stands for: the host's side of a port, or a number on the node's address.
    pub fn address(&self, service: &Service, label: &str, env: &TaskEnv) -> Result<(String, i64), String> {
        let (mut address, port) = match self.network {
            Some(network)
                if service.address_mode == "driver" || service.address_mode != "host" && network.auto_advertise =>
            {
                let inside = |port: &AllocatedPort| if port.to > 0 { port.to } else { port.value };
                let mapped = network.port_map.get(label).map(|port| i64::from(*port));
                let port = mapped
                    .or_else(|| self.port(label).map(inside))
                    .or_else(|| label.parse::<u16>().ok().map(i64::from));
                (network.ip.clone(), port.unwrap_or(0))
            }
            _ => self.resolve(label)?,
        };
        let own = env.fill(&service.address);
        if !own.is_empty() {
            address = own;
        }
        Ok((address, port))
    }

    /// The group's port of this label.
    fn port(&self, label: &str) -> Option<&AllocatedPort> {
        self.alloc.resources.shared.ports.iter().find(|port| port.label == label && !label.is_empty())
    }

    fn resolve(&self, label: &str) -> Result<(String, i64), String> {
        let resources = &self.alloc.resources;
        if let Some(port) = self.port(label) {
            return Ok((port.host_ip.clone(), port.value));
        }
        let granted = self.task.and_then(|task| resources.tasks.get(task));
        for network in granted.iter().flat_map(|granted| granted.networks.iter()) {
            let mut ports = network.reserved_ports.iter().chain(network.dynamic_ports.iter());
            if let Some(port) = ports.find(|port| port.label == label && !label.is_empty()) {
                return Ok((network.ip.clone(), port.value));
            }
        }
        let ip = self.node.attributes.get("unique.network.ip-address").cloned().unwrap_or_else(|| "127.0.0.1".into());
        if label.is_empty() {
            return Ok((ip, 0));
        }
        match label.parse::<u16>() {
            Ok(port) => Ok((ip, i64::from(port))),
            Err(_) => Err(format!("port {label:?} is neither a port of the group nor a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(id: &str, port: i64) -> ServiceRegistration {
        ServiceRegistration { id: id.into(), port, ..ServiceRegistration::default() }
    }

    #[test]
    fn changes_are_said_once_and_again_after_a_new_session() {
        let registry = Registry::default();
        registry.register(vec![registration("a", 1), registration("b", 2)]);
        let first = registry.take();
        assert_eq!(first.register.len(), 2);
        registry.register(vec![registration("a", 1)]);
        assert_eq!(registry.take(), Changes::default(), "the same again is no change");
        registry.deregister(["a".to_string()]);
        registry.resend_all();
        let again = registry.take();
        assert_eq!((again.register, again.deregister), (vec![registration("b", 2)], vec!["a".to_string()]));
    }

    #[test]
    fn lost_changes_come_back_unless_they_are_out_of_date() {
        let registry = Registry::default();
        registry.register(vec![registration("a", 1)]);
        let lost = registry.take();
        registry.deregister(["a".to_string()]);
        registry.give_back(lost);
        let next = registry.take();
        assert_eq!((next.register.len(), next.deregister), (0, vec!["a".to_string()]));
    }
}
