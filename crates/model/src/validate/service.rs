//! Rules of services and their checks.

use super::{Errors, is_name};
use crate::job::{Check, Service, Task, TaskGroup};
use crate::values::{SECOND, duration_text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Longest name of a service.
const MAX_SERVICE_NAME: usize = 63;
/// Longest note of a check.
const MAX_NOTES: usize = 255;

/// The services of a group.
pub(super) fn group_services(group: &TaskGroup) -> Errors {
    let mut errors = Errors::default();
    let mut seen = BTreeSet::new();
    let mut twice = Vec::new();
    for (index, service) in group.services.iter().enumerate() {
        if !seen.insert((service.name.as_str(), service.port_label.as_str(), service.address.as_str())) {
            twice.push(format!("group->{}", service.name));
        }
        let mut own = one_service(service);
        errors.check(service.address_mode == "driver", || {
            format!("service {:?} cannot use address_mode=\"driver\", only services defined in a \"task\" block can use this mode", service.name)
        });
        if !service.task_name.is_empty() && group.task(&service.task_name).is_none() {
            own.add(format!("Service refers to task {:?}, which is not in the group", service.task_name));
        }
        errors.nest(&format!("Service[{index}] {} validation failed", service.name), own);
    }
    let providers: BTreeSet<&str> = group
        .services
        .iter()
        .chain(group.tasks.iter().flat_map(|t| t.services.iter()))
        .map(|s| s.provider.as_str())
        .filter(|p| matches!(*p, "nomad" | "consul"))
        .collect();
    errors.check(!twice.is_empty(), || format!("Services are not unique: [{}]", twice.join(" ")));
    errors.check(providers.len() > 1, || {
        "Multiple service providers used: task group services must use the same provider".to_string()
    });
    errors
}

/// Checks of group services that run inside a task must say in which.
pub(super) fn group_check_tasks(group: &TaskGroup) -> Errors {
    let mut errors = Errors::default();
    for service in &group.services {
        let lacking = service.checks.iter().find(|c| {
            matches!(c.kind.as_str(), "script" | "grpc") && c.task_name.is_empty() && service.task_name.is_empty()
        });
        if let Some(check) = lacking {
            errors.add(format!(
                "Service [{}]->{} or Check {} must specify task parameter",
                group.name, service.name, check.name
            ));
        }
        for check in service.checks.iter().filter(|c| !c.task_name.is_empty() && group.task(&c.task_name).is_none()) {
            errors.add(format!("Check {} refers to non-existent task {}", check.name, check.task_name));
        }
    }
    errors
}

/// The services of a task.
pub(super) fn task_services(group: &TaskGroup, task: &Task) -> Errors {
    let mut errors = Errors::default();
    let mut names = BTreeSet::new();
    for (index, service) in task.services.iter().enumerate() {
        errors.nest(&format!("service[{index}] {} validation failed", service.name), one_service(service));
        errors.check(!names.insert((service.name.as_str(), service.port_label.as_str())), || {
            format!("service {:?} is duplicate", service.name)
        });
        errors.check(matches!(service.address_mode.as_str(), "alloc" | "alloc_ipv6"), || {
            format!("service {:?} cannot use address_mode={:?}, only services defined in a \"group\" block can use this mode", service.name, service.address_mode)
        });
        errors.check(service.connect.as_ref().is_some_and(|c| !c.is_null()), || {
            format!("service {:?} cannot have connect; move it to the group {:?}", service.name, group.name)
        });
        errors.check(service.task_name != task.name && !service.task_name.is_empty(), || {
            format!("service {:?} refers to task {:?}; it belongs to {:?}", service.name, service.task_name, task.name)
        });
        errors.check(is_number(&service.port_label) && service.address_mode != "driver", || {
            format!(
                "service {:?} cannot use a numeric port {} without setting address_mode=\"driver\"",
                service.name, service.port_label
            )
        });
        let mut checks = BTreeSet::new();
        for check in &service.checks {
            errors.check(!checks.insert(check.name.as_str()), || format!("check {:?} is duplicate", check.name));
            let port = if check.port_label.is_empty() { &service.port_label } else { &check.port_label };
            errors.check(is_number(port) && needs_port(check) && check.address_mode != "driver", || {
                format!(
                    "check {:?} cannot use a numeric port {port} without setting address_mode=\"driver\"",
                    check.name
                )
            });
        }
    }
    errors
}

fn is_number(port: &str) -> bool {
    port.parse::<u16>().is_ok_and(|p| p > 0)
}

fn needs_port(check: &Check) -> bool {
    matches!(check.kind.as_str(), "http" | "tcp" | "grpc")
}

/// Whether a name is one of RFC 1123: letters, digits and dashes, no dash at either end.
fn is_host_label(name: &str) -> bool {
    (1..=MAX_SERVICE_NAME).contains(&name.len())
        && is_name(name, &['-'])
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn one_service(service: &Service) -> Errors {
    let mut errors = Errors::default();
    // What a node fills in is not known yet.
    if !service.name.contains("${") {
        errors.check(!is_host_label(&service.name), || {
            format!(
                "Service name must be valid per RFC 1123 and can contain only alphanumeric characters or dashes and must be no longer than {MAX_SERVICE_NAME} characters: {:?}",
                service.name
            )
        });
    }
    errors.check(!matches!(service.address_mode.as_str(), "auto" | "host" | "driver" | "alloc" | "alloc_ipv6"), || {
        format!(
            "Service address_mode must be \"auto\", \"host\", \"driver\", \"alloc\" or \"alloc_ipv6\"; not {:?}",
            service.address_mode
        )
    });
    errors.check(!service.address.is_empty() && service.address_mode != "auto", || {
        format!("Service address_mode must be \"auto\" if address is set; not {:?}", service.address_mode)
    });
    on_update(&service.on_update, &mut errors);
    match service.provider.as_str() {
        "nomad" => nomad_service(service, &mut errors),
        "consul" => consul_service(service, &mut errors),
        other => errors.add(format!("Service provider must be \"consul\", or \"nomad\"; not {other:?}")),
    }
    errors
}

fn on_update(word: &str, errors: &mut Errors) {
    errors.check(!matches!(word, "require_healthy" | "ignore_warnings" | "ignore"), || {
        format!("on_update must be \"require_healthy\", \"ignore_warnings\", or \"ignore\"; got {word:?}")
    });
}

fn nomad_service(service: &Service, errors: &mut Errors) {
    for check in &service.checks {
        if let Some(error) = check_error(check, &["tcp", "http"]) {
            errors.add(error);
        }
    }
    errors.check(service.connect.as_ref().is_some_and(|c| !c.is_null()), || {
        "Service with provider nomad cannot include Connect blocks".to_string()
    });
    errors.check(service.enable_tag_override, || {
        "Service with provider nomad cannot include enable_tag_override".to_string()
    });
    errors.check(!service.tagged_addresses.is_empty(), || {
        "Service with provider nomad cannot include tagged addresses".to_string()
    });
    errors.check(service.on_update == "ignore_warnings", || {
        "Service with provider nomad cannot have on_update \"ignore_warnings\"".to_string()
    });
    errors
        .check(service.identity.is_some(), || "Service with provider nomad cannot include identity blocks".to_string());
}

fn consul_service(service: &Service, errors: &mut Errors) {
    for check in &service.checks {
        if let Some(error) = check_error(check, &["tcp", "http", "grpc", "script"]) {
            errors.add(error);
        }
    }
    if let Some(connect) = service.connect.as_ref().filter(|c| !c.is_null()) {
        connect_kinds(service, connect, errors);
    }
}

/// Exactly one of native, sidecar and gateway.
fn connect_kinds(service: &Service, connect: &Value, errors: &mut Errors) {
    let has = |key: &str| connect.get(key).is_some_and(|v| !v.is_null());
    let native = connect.get("Native") == Some(&Value::Bool(true));
    let kinds = usize::from(native) + usize::from(has("SidecarService")) + usize::from(has("Gateway"));
    errors.check(kinds != 1, || {
        "Consul Connect must be exclusively native, make use of a sidecar, or represent a Gateway".to_string()
    });
    errors.check(native && service.task_name.is_empty(), || {
        format!("Service {} is Connect Native and requires setting the task", service.name)
    });
}

/// The first thing wrong with a check.
fn check_error(check: &Check, kinds: &[&str]) -> Option<String> {
    if !kinds.contains(&check.kind.as_str()) {
        return Some(format!("invalid check type ({:?}), must be one of {}", check.kind, kinds.join(", ")));
    }
    match check.kind.as_str() {
        "http" if check.path.is_empty() => return Some("http type must have http path".to_string()),
        "http" if check.path.contains("://") || check.path.starts_with("//") => {
            return Some("relative http path required".to_string());
        }
        "script" if check.command.is_empty() => return Some("script type must have a valid script path".to_string()),
        _ => {}
    }
    if check.kind == "http" && !matches!(check.protocol.as_str(), "" | "http" | "https") {
        return Some(format!("unknown protocol {:?}; it must be http or https", check.protocol));
    }
    for (name, value) in [("interval", check.interval), ("timeout", check.timeout)] {
        if value < SECOND {
            return Some(format!("{name} ({}) cannot be lower than 1s", duration_text(value)));
        }
    }
    if !matches!(check.initial_status.as_str(), "" | "passing" | "warning" | "critical" | "pending") {
        return Some(format!("invalid initial check state ({})", check.initial_status));
    }
    if !matches!(check.address_mode.as_str(), "" | "host" | "driver" | "alloc" | "alloc_ipv6") {
        return Some(format!("invalid address_mode {:?}", check.address_mode));
    }
    if check.notes.chars().count() > MAX_NOTES {
        return Some(format!("notes must not be longer than {MAX_NOTES} characters"));
    }
    let mut errors = Errors::default();
    on_update(&check.on_update, &mut errors);
    if let Some(error) = errors.0.into_iter().next() {
        return Some(error);
    }
    let restart = check.check_restart.as_ref()?;
    if restart.limit < 0 {
        return Some(format!("limit must be greater than or equal to 0 but found {}", restart.limit));
    }
    if restart.grace < 0 {
        return Some(format!("grace period cannot be negative: {}", duration_text(restart.grace)));
    }
    let forbidden = check.on_update == "ignore" || check.on_update == "ignore_warnings" && !restart.ignore_warnings;
    forbidden.then(|| format!("on_update value {:?} is not compatible with check_restart", check.on_update))
}
