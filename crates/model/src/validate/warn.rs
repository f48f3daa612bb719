//! What is worth knowing about a job that may run as it is.

use super::{Errors, Limits};
use crate::job::{Identity, Job, Task, TaskGroup};

/// All warnings of a job.
pub(super) fn job(job: &Job, limits: &Limits) -> Vec<String> {
    let mut out = Errors::default();
    for group in &job.task_groups {
        out.nest(&format!("Group {:?} has warnings", group.name), group_warnings(group));
    }
    let canaries = || job.task_groups.iter().filter_map(|g| g.update.as_ref()).filter(|u| u.canary > 0);
    out.check(canaries().any(|u| u.auto_promote) && !canaries().all(|u| u.auto_promote), || {
        "auto_promote must be true for all groups to enable automatic promotion".to_string()
    });
    out.check(job.periodic.as_ref().is_some_and(|p| !p.spec.is_empty()), || {
        "cron is deprecated and may be removed in a future release. Use crons instead".to_string()
    });
    for group in &job.task_groups {
        shutdown_delays(group, &mut out);
    }
    if !limits.memory_oversubscription {
        for (group, task) in job.task_groups.iter().flat_map(|g| g.tasks.iter().map(move |t| (g, t))) {
            out.check(task.resources.memory_max_mb != 0, || {
                format!(
                    "Memory oversubscription is not enabled; Task \"{}.{}\" memory_max value will be ignored. Update the Scheduler Configuration to allow oversubscription.",
                    group.name, task.name
                )
            });
        }
    }
    out.0
}

fn group_warnings(group: &TaskGroup) -> Errors {
    let mut out = Errors::default();
    if let Some(update) = &group.update {
        out.check(update.max_parallel > group.count && group.count > 1 && update.canary == 0, || {
            format!(
                "Update max parallel count is greater than task group count ({} > {}). A destructive change would result in the simultaneous replacement of all allocations.",
                update.max_parallel, group.count
            )
        });
    }
    out.check(group.networks.iter().any(|n| n.mbits > 0), || {
        "mbits has been deprecated as of Nomad 0.12.0. Please remove mbits from the network block".to_string()
    });
    for task in &group.tasks {
        out.nest(&format!("Task {:?} has warnings", task.name), task_warnings(task));
    }
    out
}

fn task_warnings(task: &Task) -> Errors {
    let mut out = Errors::default();
    out.check(task.resources.iops != 0, || {
        "IOPS has been deprecated as of Nomad 0.9.0. Please remove IOPS from resource block.".to_string()
    });
    out.check(!task.resources.networks.is_empty(), || {
        "task network resources have been deprecated as of Nomad 0.12.0. Please configure networking via group network block."
            .to_string()
    });
    for (index, template) in task.templates.iter().enumerate() {
        out.check(template.vault_grace != 0, || {
            format!(
                "Template[{index}] VaultGrace has been deprecated as of Nomad 0.11 and ignored since Vault 0.5. Please remove VaultGrace / vault_grace from template block."
            )
        });
    }
    for identity in &task.identities {
        out.bundle(identity_warnings(identity));
    }
    out
}

fn identity_warnings(identity: &Identity) -> Errors {
    let mut out = Errors::default();
    let name = &identity.name;
    out.check(identity.audience.is_empty(), || format!("Identity[{name}] identities without an audience are insecure"));
    out.check(identity.audience.len() > 1, || {
        format!(
            "Identity[{name}] while multiple audiences is allowed, it is more secure to use 1 audience per identity"
        )
    });
    out.check(identity.ttl == 0, || format!("Identity[{name}] identities without an expiration are insecure"));
    out.check(identity.env && identity.change_mode != "restart", || {
        format!(
            "Identity[{name}] using env=true without change_mode=\"restart\" may result in task not getting updated identity"
        )
    });
    out
}

/// A service that goes away at once loses requests on their way.
fn shutdown_delays(group: &TaskGroup, out: &mut Errors) {
    let delayed = |task: &Task| task.shutdown_delay > 0;
    for service in group.services.iter().filter(|s| !s.task_name.is_empty()) {
        out.check(group.task(&service.task_name).is_some_and(|t| !delayed(t)), || {
            format!(
                "group {:?} references task {:?} in a service definition, but the task has no shutdown_delay set",
                group.name, service.task_name
            )
        });
    }
    for task in group.tasks.iter().filter(|t| !t.services.is_empty() && !delayed(t)) {
        out.add(format!(
            "task {:?} in group {:?} defines services, but has no shutdown_delay set",
            task.name, group.name
        ));
    }
    // A proxy beside the tasks has a shutdown delay of its own.
    let proxied = group
        .services
        .iter()
        .filter_map(|s| s.connect.as_ref())
        .any(|c| ["SidecarService", "Gateway"].iter().any(|k| c.get(k).is_some_and(|v| !v.is_null())));
    let own = group.services.iter().any(|s| s.task_name.is_empty());
    let none = group.shutdown_delay.unwrap_or(0) == 0 && !group.tasks.iter().any(|t| delayed(t));
    out.check(own && none && !proxied, || {
        format!(
            "group {:?} defines services, but neither the group nor any of its tasks have shutdown_delay set",
            group.name
        )
    });
}
