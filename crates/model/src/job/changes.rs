//! What a change of a job means: whether it makes a new version, and whether running allocations must be replaced.

use crate::job::{Consul, Job, Task, TaskGroup};
use crate::resources::{NetworkResource, Port};
use crate::values::Map;

/// Whether `new` asks for something else than `old`, so that it becomes a new version. What the servers keep about a job
/// (version, status, indexes, times, stability) is left out of account.
pub fn spec_changed(old: &Job, new: &Job) -> bool {
    fn user_part(job: &Job) -> Job {
        let mut job = job.clone();
        job.stable = false;
        job.version = 0;
        job.version_tag = None;
        job.status = crate::job::JobStatus::default();
        job.status_description = String::new();
        job.submit_time = 0;
        job.create_index = 0;
        job.modify_index = 0;
        job.job_modify_index = 0;
        job.nomad_token_id = String::new();
        for group in job.task_groups.iter_mut() {
            let group = std::sync::Arc::make_mut(group);
            forget_policy_ids(group);
        }
        job
    }
    fn forget_policy_ids(group: &mut TaskGroup) {
        for policy in group.scaling.iter_mut() {
            policy.id = String::new();
            policy.create_index = 0;
            policy.modify_index = 0;
        }
        for task in group.tasks.iter_mut() {
            let task = std::sync::Arc::make_mut(task);
            for policy in task.scaling_policies.iter_mut() {
                policy.id = String::new();
                policy.create_index = 0;
                policy.modify_index = 0;
            }
        }
    }
    user_part(old) != user_part(new)
}

/// Whether allocations of this group must be replaced when the job changes from `old` to `new`; otherwise they are updated
/// in place. A group that either lacks counts as replaced. Source: `compat/scheduler.md` section 8, "Destructive fields".
pub fn destructive(old: &Job, new: &Job, group: &str) -> bool {
    let (Some(a), Some(b)) = (old.group(group), new.group(group)) else { return true };
    if std::sync::Arc::ptr_eq(a, b) && old.meta == new.meta {
        return false;
    }
    group_destructive(a, b)
        || a.tasks.iter().any(|task| match b.task(&task.name) {
            None => true,
            Some(other) => {
                combined_meta(old, a, task) != combined_meta(new, b, other)
                    || task_destructive(task, other)
                    || consul_of(a, task) != consul_of(b, other)
            }
        })
}

fn group_destructive(a: &TaskGroup, b: &TaskGroup) -> bool {
    a.tasks.len() != b.tasks.len()
        || a.ephemeral_disk != b.ephemeral_disk
        || networks_destructive(&a.networks, &b.networks)
        || connect_destructive(a, b)
        || a.volumes != b.volumes
        || a.consul != b.consul
        || a.restart_policy.render_templates != b.restart_policy.render_templates
}

fn connect_destructive(a: &TaskGroup, b: &TaskGroup) -> bool {
    let of = |g: &TaskGroup| -> Vec<(String, serde_json::Value, String)> {
        g.services
            .iter()
            .filter_map(|s| s.connect.as_ref().map(|c| (s.name.clone(), c.clone(), s.port_label.clone())))
            .collect()
    };
    of(a) != of(b)
}

fn networks_destructive(a: &[NetworkResource], b: &[NetworkResource]) -> bool {
    fn ports(network: &NetworkResource) -> Vec<(&str, i64, i64, &str, bool)> {
        let key = |p: &Port| (p.value, p.to, p.ignore_collision);
        let mut all: Vec<_> = network
            .reserved_ports
            .iter()
            .map(|p| (p, true))
            .chain(network.dynamic_ports.iter().map(|p| (p, false)))
            .map(|(p, fixed)| {
                // The host port of a dynamic port is granted, not asked for.
                let (value, to, _) = key(p);
                (p.label.as_str(), if fixed { value } else { 0 }, to, p.host_network.as_str(), fixed)
            })
            .collect();
        all.sort_unstable();
        all
    }
    a.len() != b.len()
        || a.iter().zip(b).any(|(a, b)| {
            a.mode != b.mode
                || a.mbits != b.mbits
                || a.hostname != b.hostname
                || a.dns != b.dns
                || a.cni != b.cni
                || ports(a) != ports(b)
        })
}

fn consul_of<'a>(group: &'a TaskGroup, task: &'a Task) -> (&'a str, &'a str, &'a str) {
    let of = |c: &'a Consul| (c.namespace.as_str(), c.cluster.as_str(), c.partition.as_str());
    task.consul.as_ref().or(group.consul.as_ref()).map(of).unwrap_or_default()
}

/// Meta of job, group and task, the innermost winning.
fn combined_meta<'a>(
    job: &'a Job,
    group: &'a TaskGroup,
    task: &'a Task,
) -> std::collections::BTreeMap<&'a str, &'a str> {
    let pairs = |m: &'a Map<String>| m.iter().map(|(k, v)| (k.as_str(), v.as_str()));
    pairs(&job.meta).chain(pairs(&group.meta)).chain(pairs(&task.meta)).collect()
}

/// Whether what a task's process sees differs, its meta aside.
pub(crate) fn task_destructive(a: &Task, b: &Task) -> bool {
    a.driver != b.driver
        || a.user != b.user
        || a.config != b.config
        || a.env != b.env
        || a.artifacts != b.artifacts
        || a.vault != b.vault
        || a.secrets != b.secrets
        || a.templates != b.templates
        || a.csi_plugin_config != b.csi_plugin_config
        || a.volume_mounts != b.volume_mounts
        || a.identity != b.identity
        || a.identities != b.identities
        || a.lifecycle != b.lifecycle
        || a.log_config.disabled != b.log_config.disabled
        || resources_destructive(a, b)
}

fn resources_destructive(a: &Task, b: &Task) -> bool {
    let (a, b) = (&a.resources, &b.resources);
    a.cpu != b.cpu
        || a.cores != b.cores
        || a.memory_mb != b.memory_mb
        || a.memory_max_mb != b.memory_max_mb
        || a.secrets_mb != b.secrets_mb
        || a.devices != b.devices
        || a.numa != b.numa
        || networks_destructive(&a.networks, &b.networks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn job() -> Job {
        let task = Task { name: "t".into(), driver: "raw_exec".into(), ..Task::default() };
        let group =
            TaskGroup { name: "g".into(), count: 1, tasks: vec![Arc::new(task)].into(), ..TaskGroup::default() };
        Job { id: "j".into(), task_groups: vec![Arc::new(group)].into(), ..Job::default() }
    }

    fn change(edit: impl FnOnce(&mut Job, &mut TaskGroup, &mut Task)) -> (bool, bool) {
        let old = job();
        let mut new = job();
        let mut group = (*new.task_groups[0]).clone();
        let mut task = (*group.tasks[0]).clone();
        edit(&mut new, &mut group, &mut task);
        group.tasks = vec![Arc::new(task)].into();
        new.task_groups = vec![Arc::new(group)].into();
        (spec_changed(&old, &new), destructive(&old, &new, "g"))
    }

    #[test]
    fn what_a_process_sees_replaces_it_and_policies_do_not() {
        assert_eq!(change(|_, _, _| {}), (false, false));
        assert_eq!(change(|j, _, _| j.version = 4), (false, false));
        assert_eq!(change(|_, g, _| g.count = 3), (true, false));
        assert_eq!(change(|_, _, t| t.kill_timeout = 3), (true, false));
        assert_eq!(change(|_, _, t| t.log_config.max_files = 3), (true, false));
        assert_eq!(change(|j, _, _| j.priority = 3), (true, false));
        assert_eq!(change(|_, _, t| t.log_config.disabled = true), (true, true));
        assert_eq!(change(|_, _, t| t.user = "u".into()), (true, true));
        assert_eq!(change(|j, _, _| _ = j.meta.insert("a".into(), "b".into())), (true, true));
        assert_eq!(change(|_, g, _| g.ephemeral_disk.size_mb = 5), (true, true));
        assert_eq!(change(|_, _, t| t.resources.cpu = 5), (true, true));
        assert_eq!(
            change(|_, g, _| g.networks = vec![NetworkResource { mode: "bridge".into(), ..Default::default() }].into()),
            (true, true)
        );
    }

    #[test]
    fn meta_moved_between_levels_changes_nothing_for_the_task() {
        let mut old = job();
        old.meta.insert("a".into(), "b".into());
        let mut new = job();
        let mut group = (*new.task_groups[0]).clone();
        group.meta.insert("a".into(), "b".into());
        new.task_groups = vec![Arc::new(group)].into();
        assert!(!destructive(&old, &new, "g"));
    }

    #[test]
    fn a_missing_group_counts_as_replaced() {
        assert!(destructive(&job(), &job(), "other"));
    }
}
