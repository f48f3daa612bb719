//! Rules of task groups, their networks and volumes.

use super::{Errors, place, policy, service, task};
use crate::job::{Job, JobType, TaskGroup, VolumeRequest};
use crate::resources::{NetworkResource, Port};
use std::collections::BTreeMap;

/// Least disk of a group in megabytes.
const MIN_DISK_MB: i64 = 10;

/// A group; `hooks` are the unknown lifecycle hooks of its tasks, by position.
pub(super) fn group(job: &Job, group: &TaskGroup, hooks: &BTreeMap<usize, &str>) -> Errors {
    let mut errors = Errors::default();
    errors.check(group.name.is_empty(), || "Missing task group name".to_string());
    errors.check(group.name.contains('\0'), || "Task group name contains null character".to_string());
    errors.check(group.count < 0, || "Task group count can't be negative".to_string());
    // A gateway brings its task with it.
    let gateway = group
        .services
        .iter()
        .filter_map(|s| s.connect.as_ref())
        .any(|c| c.get("Gateway").is_some_and(|g| !g.is_null()));
    errors.check(group.tasks.is_empty() && !gateway, || "Missing tasks for task group".to_string());
    if let Some(duration) = group.max_run_duration {
        errors.check(!job.kind.is_batch(), || does_not_allow(job, "max_run_duration"));
        errors.check(duration <= 0, || "max_run_duration must be greater than zero".to_string());
    }
    place::constraints(&group.constraints, &mut errors, true);
    place::affinities(job.kind, &group.affinities, &mut errors);
    policy::restart(&group.restart_policy, &mut errors);
    place::spreads(job.kind, &group.spreads, &mut errors);
    group_policies(job, group, &mut errors);
    task_names(group, &mut errors);
    volumes(job, group, &mut errors);
    errors.nest("Task group network validation failed", networks(group));
    errors.nest("Task group service validation failed", service::group_services(group));
    errors.nest("Task group service check validation failed", service::group_check_tasks(group));
    if let Some(scaling) = &group.scaling {
        errors.nest("Task group scaling policy validation failed", policy::scaling(scaling, group.count));
    }
    for (index, t) in group.tasks.iter().enumerate() {
        let own = task::task(job, group, t, hooks.get(&index).copied());
        errors.nest(&format!("Task {} validation failed", t.name), own);
    }
    errors
}

fn does_not_allow(job: &Job, block: &str) -> String {
    format!("Job type {:?} does not allow {block}", job.kind.as_str())
}

fn group_policies(job: &Job, group: &TaskGroup, errors: &mut Errors) {
    match (&group.reschedule_policy, job.kind.is_system()) {
        (Some(_), true) => errors.add("System or sysbatch jobs should not have a reschedule policy"),
        (Some(reschedule), false) => policy::reschedule(reschedule, errors),
        (None, _) => {}
    }
    errors.check(group.ephemeral_disk.size_mb < MIN_DISK_MB, || {
        format!("minimum DiskMB value is {MIN_DISK_MB}; got {}", group.ephemeral_disk.size_mb)
    });
    if let Some(update) = &group.update {
        if job.kind.is_batch() {
            errors.add(does_not_allow(job, "update block"));
        } else {
            policy::update(update, errors);
        }
    }
    if let Some(migrate) = &group.migrate {
        if job.kind == JobType::Service {
            policy::migrate(migrate, errors);
        } else {
            errors.add(does_not_allow(job, "migrate block"));
        }
    }
    if let Some(disconnect) = &group.disconnect {
        errors.check(job.kind.is_system() && disconnect.stop_on_client_after.is_some(), || {
            "stop_on_client_after can only be set in batch and service jobs".to_string()
        });
        policy::disconnect(disconnect, errors);
    }
}

fn task_names(group: &TaskGroup, errors: &mut Errors) {
    for (index, task) in group.tasks.iter().enumerate() {
        errors.check(task.name.is_empty(), || format!("Task {} missing name", index + 1));
        if let Some(first) = group.tasks.iter().take(index).position(|t| t.name == task.name && !t.name.is_empty()) {
            errors.add(format!("Task {} redefines '{}' from task {}", index + 1, task.name, first + 1));
        }
    }
    errors.check(group.tasks.iter().filter(|t| t.leader).count() > 1, || {
        "Only one task may be marked as leader".to_string()
    });
}

/// Who uses a label or a static port.
type Users = BTreeMap<(String, i64), String>;

fn networks(group: &TaskGroup) -> Errors {
    let mut errors = Errors::default();
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    let mut statics: Users = BTreeMap::new();
    for network in &group.networks {
        ports(network, "taskgroup network", &mut labels, &mut statics, &mut errors);
        if let Some(cni) = &network.cni {
            for (key, value) in &cni.args {
                errors.check(key.contains(';'), || format!("invalid ';' character in CNI arg key {key:?}"));
                errors.check(value.contains(';'), || format!("invalid ';' character in CNI arg value {value:?}"));
            }
        }
    }
    for task in &group.tasks {
        for network in &task.resources.networks {
            ports(network, &task.name, &mut labels, &mut statics, &mut errors);
        }
    }
    errors
}

fn ports(
    network: &NetworkResource,
    owner: &str,
    labels: &mut BTreeMap<String, String>,
    statics: &mut Users,
    errors: &mut Errors,
) {
    let host_mode = matches!(network.mode.as_str(), "" | "host");
    let fixed = network.reserved_ports.iter().map(|p| (p, true));
    for (port, fixed) in fixed.chain(network.dynamic_ports.iter().map(|p| (p, false))) {
        let label = port.label.as_str();
        if let Some(other) = labels.get(label) {
            errors.add(format!("Port label {label} already in use by {other}"));
        } else {
            labels.insert(label.to_string(), owner.to_string());
        }
        if fixed {
            static_port(port, owner, statics, errors);
        }
        errors.check(port.to < -1, || format!("Port {label:?} cannot be mapped to negative value {}", port.to));
        errors.check(port.to > 65_535, || {
            format!("Port {label:?} cannot be mapped to a port ({}) greater than 65535", port.to)
        });
        errors.check(port.ignore_collision && !host_mode, || {
            format!("Port {label:?} collision may not be ignored on non-host network mode {:?}", network.mode)
        });
        errors.check(port.ignore_collision && host_mode && !fixed, || {
            format!("Port {label:?} collision may not be ignored without a static port")
        });
    }
}

fn static_port(port: &Port, owner: &str, statics: &mut Users, errors: &mut Errors) {
    let label = &port.label;
    errors.check(port.value < 0, || format!("Port {label} ({}) cannot be negative", port.value));
    errors.check(port.value > 65_535, || format!("Port {label} ({}) cannot be greater than 65535", port.value));
    let key = (port.host_network.clone(), port.value);
    match statics.get(&key) {
        Some(other) if !port.ignore_collision => {
            errors.add(format!("Static port {} already reserved by {other}", port.value));
        }
        Some(_) => {}
        None => {
            statics.insert(key, format!("{owner}:{label}"));
        }
    }
}

fn volumes(job: &Job, group: &TaskGroup, errors: &mut Errors) {
    for (name, volume) in &group.volumes {
        errors.nest(&format!("Task group volume validation for {name} failed"), one_volume(job, group, volume));
    }
}

fn one_volume(job: &Job, group: &TaskGroup, volume: &VolumeRequest) -> Errors {
    let mut errors = Errors::default();
    let mode = volume.access_mode.as_str();
    errors.check(volume.source.is_empty(), || "volume has an empty source".to_string());
    if volume.per_alloc {
        errors.check(job.kind.is_system(), || "volume cannot be per_alloc for system or sysbatch jobs".to_string());
        errors.check(group.update.as_ref().is_some_and(|u| u.canary > 0), || {
            "volume cannot be per_alloc when canaries are in use".to_string()
        });
        errors.check(volume.sticky, || "volume cannot be per_alloc and sticky at the same time".to_string());
    }
    match volume.kind.as_str() {
        "host" => {
            let known = [
                "",
                "single-node-reader-only",
                "single-node-writer",
                "single-node-single-writer",
                "single-node-multi-writer",
            ];
            errors.check(!known.contains(&mode), || format!("host volumes cannot be mounted with {mode} access mode"));
            errors.check(volume.mount_options.is_some(), || "host volumes cannot have mount options".to_string());
        }
        "csi" => csi_volume(group, volume, &mut errors),
        other => errors.add(format!("volume has an unknown type {other:?}; it must be \"host\" or \"csi\"")),
    }
    errors
}

fn csi_volume(group: &TaskGroup, volume: &VolumeRequest, errors: &mut Errors) {
    let mode = volume.access_mode.as_str();
    errors.check(volume.attachment_mode.is_empty(), || "CSI volumes must have an attachment mode".to_string());
    errors.check(mode.is_empty(), || "CSI volumes must have an access mode".to_string());
    errors.check(volume.sticky, || "CSI volumes cannot be sticky".to_string());
    errors.check(volume.attachment_mode == "block-device" && volume.mount_options.is_some(), || {
        "block devices cannot have mount options".to_string()
    });
    errors.check(mode.ends_with("-reader-only") && !volume.read_only, || format!("{mode} volumes must be read-only"));
    errors.check(mode.starts_with("single-node-") && group.count > 1 && !volume.per_alloc, || {
        format!("volume with {mode} access mode allows only one reader or writer")
    });
}
