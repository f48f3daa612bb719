//! Services of an allocation and the checks that go with them.

use super::hooks::environment;
use super::runner::Runner;
use crate::checks::{self, CheckPlan};
use crate::env::TaskEnv;
use crate::services::{NATIVE, Place};
use herdsman_drivers::FsIsolation;
use herdsman_model::{Name, Service, Task};
use tokio::task::JoinSet;

/// Who owns services: a task, or the group.
type Owner = Option<Name>;

impl Runner {
    /// Registers the services of a task, or of the group, and starts their checks.
    pub(super) fn register(&mut self, owner: Owner) {
        let services: Vec<Service> = match &owner {
            Some(task) => self.group.task(task).map(|task| task.services.0.clone()).unwrap_or_default(),
            None => self.group.services.0.clone(),
        };
        if services.iter().all(|service| service.provider != NATIVE) {
            return;
        }
        let env = self.service_env(owner.as_deref());
        let node = self.shared.node();
        let place = Place {
            alloc: &self.alloc,
            job: &self.job,
            node: &node,
            task: owner.as_deref(),
            deployment: Some(&self.deployment),
            network: owner.as_ref().and_then(|task| self.networks.get(task)),
        };
        let mut registrations = Vec::new();
        let mut plans = Vec::new();
        for service in services.iter().filter(|service| service.provider == NATIVE) {
            match place.registration(service, &env) {
                Ok(registration) => {
                    plans.extend(check_plans(&place, service, &env, owner.as_ref()));
                    registrations.push(registration);
                }
                Err(error) => tracing::warn!(alloc = %self.alloc.id, service = %service.name, %error, "not registered"),
            }
        }
        let ids = registrations.iter().map(|r| r.id.clone()).collect();
        let mut tasks = JoinSet::new();
        for plan in plans {
            let (board, world) = (self.info.checks.clone(), self.shared.world.clone());
            tasks.spawn(checks::run(plan, world, board, self.check_news.clone()));
        }
        self.shared.services.register(registrations);
        // A check that ran before ends when it is dropped.
        self.registered.insert(owner, (ids, tasks));
    }

    /// Takes the services of a task, or of the group, off, and ends their checks.
    pub(super) fn deregister(&mut self, owner: &Owner) {
        if let Some((ids, checks)) = self.registered.remove(owner) {
            self.shared.services.deregister(ids);
            drop(checks);
        }
    }

    /// Everything off.
    pub(super) fn deregister_all(&mut self) {
        let owners: Vec<_> = self.registered.keys().cloned().collect();
        for owner in owners {
            self.deregister(&owner);
        }
    }

    /// The environment that names, tags and addresses of services are filled from.
    fn service_env(&self, task: Option<&str>) -> TaskEnv {
        let no_task = Task::default();
        let found = task.and_then(|task| self.group.task(task));
        let task = found.map_or(&no_task, |task| &**task);
        environment(&self.source(task), FsIsolation::None)
    }
}

/// The checks of a service that the node runs.
fn check_plans(place: &Place, service: &Service, env: &TaskEnv, owner: Option<&Name>) -> Vec<CheckPlan> {
    let name = env.fill(&service.name);
    let plans = service.checks.iter().filter_map(|check| {
        let label = if check.port_label.is_empty() { &service.port_label } else { &check.port_label };
        let (address, port) = place.address(service, &env.fill(label), env).ok()?;
        let mut check = check.clone();
        check.path = env.fill(&check.path);
        if check.name.is_empty() {
            check.name = format!("service: {name:?} check");
        }
        let task =
            owner.cloned().or_else(|| (!check.task_name.is_empty()).then(|| Name::from(check.task_name.as_str())));
        let owner = owner.map_or("group", |task| task);
        Some(CheckPlan {
            id: checks::check_id(&place.alloc.id.to_string(), owner, &name, &check),
            group: place.alloc.name.clone(),
            service: name.clone(),
            check,
            address,
            port,
            task,
        })
    });
    plans.collect()
}
