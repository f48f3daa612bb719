//! Rules of tasks and what belongs to them.

use super::{Errors, escapes_alloc, escapes_folder, is_name, place, policy, service};
use crate::job::{Artifact, DEFAULT_IDENTITY, Identity, Job, JobType, Resources, Task, TaskGroup, Template};
use crate::values::duration_text;
use std::collections::BTreeSet;

/// Least megahertz and megabytes of memory of a task.
const MIN_CPU: i64 = 1;
const MIN_MEMORY_MB: i64 = 10;

/// A task; `hook` is its lifecycle hook if that is none of the known ones.
pub(super) fn task(job: &Job, group: &TaskGroup, task: &Task, hook: Option<&str>) -> Errors {
    let mut errors = Errors::default();
    name(task, &mut errors);
    errors.check(task.driver.is_empty(), || "Missing task driver".to_string());
    errors.check(task.kill_timeout < 0, || "KillTimeout must be a positive value".to_string());
    if job.kind == JobType::Service
        && let Some(update) = group.update.as_ref().filter(|u| u.progress_deadline > 0)
    {
        errors.check(task.kill_timeout > update.progress_deadline, || {
            format!(
                "KillTimout ({}) longer than the group's ProgressDeadline ({})",
                duration_text(task.kill_timeout),
                duration_text(update.progress_deadline)
            )
        });
    }
    errors.check(task.shutdown_delay < 0, || "ShutdownDelay must be a positive value".to_string());
    errors.bundle(resources(&task.resources));
    errors.bundle(logs(group, task));
    if task.restart_policy != group.restart_policy {
        policy::restart(&task.restart_policy, &mut errors);
    }
    place::constraints(&task.constraints, &mut errors, false);
    place::affinities(job.kind, &task.affinities, &mut errors);
    errors.bundle(service::task_services(group, task));
    artifacts(task, &mut errors);
    vault(task, &mut errors);
    templates(task, &mut errors);
    payload_and_hook(task, hook, &mut errors);
    csi_plugin(task, &mut errors);
    volume_mounts(group, task, &mut errors);
    identities(task, &mut errors);
    actions(task, &mut errors);
    secrets(task, &mut errors);
    errors
}

fn name(task: &Task, errors: &mut Errors) {
    let name = task.name.as_str();
    errors.check(name.is_empty(), || "Missing task name".to_string());
    errors.check(name.contains(['/', '\\']), || "Task name cannot include slashes".to_string());
    errors.check(name.contains('\0'), || "Task name cannot include null bytes".to_string());
    errors.check(name == "alloc", || "Task cannot be named \"alloc\"".to_string());
    errors.check(name == "." || name == "..", || format!("Task cannot be named {name:?}"));
}

fn resources(resources: &Resources) -> Errors {
    let mut errors = Errors::default();
    let mut least = Errors::default();
    errors.check(resources.cores > 0 && resources.cpu > 0, || {
        "Task can only ask for 'cpu' or 'cores' resource, not both.".to_string()
    });
    least.check(resources.cores == 0 && resources.cpu < MIN_CPU, || {
        format!("minimum CPU value is {MIN_CPU}; got {}", resources.cpu)
    });
    least.check(resources.memory_mb < MIN_MEMORY_MB, || {
        format!("minimum MemoryMB value is {MIN_MEMORY_MB}; got {}", resources.memory_mb)
    });
    errors.bundle(least);
    errors.check(resources.cores < 0, || format!("cores value must not be negative; got {}", resources.cores));
    let max = resources.memory_max_mb;
    errors.check(max != 0 && max != -1 && max < resources.memory_mb, || {
        format!("MemoryMaxMB value ({max}) should be larger than MemoryMB value ({})", resources.memory_mb)
    });
    errors.check(resources.secrets_mb < 0 || resources.secrets_mb > resources.memory_mb.max(0), || {
        format!(
            "SecretsMB value ({}) must be between 0 and the MemoryMB value ({})",
            resources.secrets_mb, resources.memory_mb
        )
    });
    for (index, device) in resources.devices.iter().enumerate() {
        let mut own = Errors::default();
        let parts: Vec<&str> = device.name.splitn(3, '/').collect();
        own.check(parts.iter().any(|p| p.is_empty()), || {
            "device name must be given as one of the following: type, vendor/type, or vendor/type/name".to_string()
        });
        for (at, constraint) in device.constraints.iter().enumerate() {
            place::device_constraint(at + 1, constraint, &mut own);
        }
        place::affinities(JobType::Service, &device.affinities, &mut own);
        errors.nest(&format!("device {} failed validation", index + 1), own);
    }
    errors
}

fn logs(group: &TaskGroup, task: &Task) -> Errors {
    let mut errors = Errors::default();
    let logs = &task.log_config;
    errors.check(logs.max_files < 1, || format!("minimum number of files is 1; got {}", logs.max_files));
    errors.check(logs.max_file_size_mb < 1, || format!("minimum file size is 1MB; got {}", logs.max_file_size_mb));
    let total = logs.max_files.saturating_mul(logs.max_file_size_mb);
    errors.check(group.ephemeral_disk.size_mb <= total && !logs.disabled, || {
        format!(
            "log storage ({total} MB) must be less than requested disk capacity ({} MB)",
            group.ephemeral_disk.size_mb
        )
    });
    errors
}

fn artifacts(task: &Task, errors: &mut Errors) {
    for (index, artifact) in task.artifacts.iter().enumerate() {
        let mut own = Errors::default();
        own.check(artifact.getter_source.is_empty(), || "source must be specified".to_string());
        let mode = artifact.getter_mode.as_str();
        own.check(!matches!(mode, "" | "any" | "file" | "dir"), || {
            format!("invalid artifact mode {mode:?}; must be one of: any, file, dir")
        });
        own.check(escapes_alloc(&artifact.relative_dest), || "destination escapes allocation directory".to_string());
        if let Some(error) = checksum_error(artifact) {
            own.add(error);
        }
        errors.nest(&format!("Artifact {} validation failed", index + 1), own);
    }
}

fn checksum_error(artifact: &Artifact) -> Option<String> {
    let checksum = artifact.getter_options.get("checksum")?;
    // What a node fills in is not known yet; the sums in a fetched file are checked when it is there.
    if checksum.contains("${") || checksum.starts_with("file:") {
        return None;
    }
    let Some((kind, value)) = checksum.split_once(':') else {
        return Some(format!("checksum must be given as \"type:value\"; got {checksum:?}"));
    };
    if let Some(bad) = value.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Some(format!("invalid checksum: encoding/hex: invalid byte: U+{:04X} '{bad}'", u32::from(bad)));
    }
    if value.len() % 2 != 0 {
        return Some("invalid checksum: encoding/hex: odd length hex string".to_string());
    }
    let wanted = match kind {
        "md5" => 16,
        "sha1" => 20,
        "sha256" => 32,
        "sha512" => 64,
        _ => return Some(format!("unsupported checksum type: {kind}")),
    };
    let length = value.len() / 2;
    (length != wanted).then(|| format!("invalid {kind} checksum: expected {wanted} bytes, got {length}"))
}

fn vault(task: &Task, errors: &mut Errors) {
    let Some(vault) = &task.vault else { return };
    let mut own = Errors::default();
    match vault.change_mode.as_str() {
        "noop" | "restart" => {}
        "signal" => own.check(vault.change_signal.is_empty(), || {
            "Signal must be specified when using change mode \"signal\"".to_string()
        }),
        other => own.add(format!("Unknown change mode {other:?}")),
    }
    errors.nest("Vault validation failed", own);
}

fn templates(task: &Task, errors: &mut Errors) {
    for (index, template) in task.templates.iter().enumerate() {
        errors.nest(&format!("Template {} validation failed", index + 1), one_template(template));
        let dest = template.dest_path.as_str();
        let first = task.templates.iter().take(index).position(|t| t.dest_path == dest && !dest.is_empty());
        if let Some(first) = first {
            errors.add(format!("Template {} has same destination as {}", index + 1, first + 1));
        }
    }
}

fn one_template(template: &Template) -> Errors {
    let mut errors = Errors::default();
    errors.check(template.source_path.is_empty() && template.embedded_tmpl.is_empty(), || {
        "Must specify a source path or have an embedded template".to_string()
    });
    errors.check(template.dest_path.is_empty(), || "Must specify a destination for the template".to_string());
    errors.check(escapes_alloc(&template.dest_path), || "destination escapes allocation directory".to_string());
    match template.change_mode.as_str() {
        "noop" | "restart" => {}
        "signal" => {
            errors.check(template.change_signal.is_empty(), || {
                "Must specify signal value when change mode is signal".to_string()
            });
            errors.check(template.envvars, || "cannot use signals with env var templates".to_string());
        }
        "script" => match &template.change_script {
            None => errors.add("must specify change script configuration value when change mode is script"),
            Some(script) => {
                errors.check(script.command.is_empty(), || {
                    "must specify change script command when change mode is script".to_string()
                });
                errors.check(script.timeout <= 0, || "change script timeout must be greater than zero".to_string());
            }
        },
        _ => errors.add("Invalid change mode. Must be one of the following: noop, signal, script, restart"),
    }
    errors.check(template.change_script.is_some() && template.change_mode != "script", || {
        "change_script may only be set when change mode is script".to_string()
    });
    errors.check(template.splay < 0, || "Must specify positive splay value".to_string());
    permissions(&template.perms, &mut errors);
    for (what, id) in [("uid", template.uid), ("gid", template.gid)] {
        errors.check(id.is_some_and(|id| !(0..=i64::from(u32::MAX)).contains(&id)), || {
            format!("{what} must be between 0 and {}", u32::MAX)
        });
    }
    if let Some(wait) = &template.wait
        && let (Some(min), Some(max)) = (wait.min, wait.max)
    {
        errors
            .check(min > max, || format!("wait min {} is greater than max {}", duration_text(min), duration_text(max)));
    }
    errors
}

fn permissions(perms: &str, errors: &mut Errors) {
    if perms.is_empty() {
        return;
    }
    let octal = perms.bytes().all(|b| (b'0'..=b'7').contains(&b));
    match u64::from_str_radix(perms, 8) {
        Ok(bits) if octal && bits <= 0o7777 => {}
        _ => {
            let cause = if octal { "value out of range" } else { "invalid syntax" };
            errors.add(format!("Failed to parse {perms:?} as octal: strconv.ParseUint: parsing {perms:?}: {cause}"));
        }
    }
}

fn payload_and_hook(task: &Task, hook: Option<&str>, errors: &mut Errors) {
    if let Some(payload) = &task.dispatch_payload {
        errors.check(payload.file.is_empty(), || {
            "Dispatch Payload validation failed: file must be specified".to_string()
        });
        errors.check(escapes_folder(&payload.file), || {
            "Dispatch Payload validation failed: file escapes the local directory of the task".to_string()
        });
    }
    match hook {
        Some("") => errors.add("Lifecycle validation failed: no lifecycle hook provided"),
        Some(word) => errors.add(format!("Lifecycle validation failed: invalid hook: {word}")),
        None => {}
    }
}

fn csi_plugin(task: &Task, errors: &mut Errors) {
    let Some(plugin) = &task.csi_plugin_config else { return };
    errors.check(plugin.id.is_empty(), || "CSIPluginConfig must have a non-empty PluginID".to_string());
    errors.check(!matches!(plugin.kind.as_str(), "node" | "controller" | "monolith"), || {
        format!("CSIPluginConfig PluginType must be one of 'node', 'controller', or 'monolith', got: {:?}", plugin.kind)
    });
}

fn volume_mounts(group: &TaskGroup, task: &Task, errors: &mut Errors) {
    for (index, mount) in task.volume_mounts.iter().enumerate() {
        let mut own = Errors::default();
        own.check(mount.destination.is_empty(), || {
            "volume mount has an empty destination; give the path inside the task".to_string()
        });
        own.check(
            !matches!(mount.propagation_mode.as_str(), "" | "private" | "host-to-task" | "bidirectional"),
            || format!("volume mount has an invalid propagation mode: {:?}", mount.propagation_mode),
        );
        own.check(!matches!(mount.se_linux_label.as_str(), "" | "z" | "Z"), || {
            format!("volume mount has an invalid SELinux label: {:?}", mount.se_linux_label)
        });
        errors.check(!group.volumes.contains_key(&mount.volume), || {
            format!("Volume Mount ({index}) references undefined volume {}", mount.volume)
        });
        errors.check(!own.0.is_empty(), || format!("Volume Mount ({index}) is invalid: \"{}\"", own.text()));
    }
}

fn identities(task: &Task, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for identity in task.identity.iter().chain(task.identities.iter()) {
        errors.nest(&format!("Identity {:?} is invalid", identity.name), one_identity(identity));
        errors.check(!names.insert(identity.name.as_str()), || {
            format!("Identity {:?} defined multiple times", identity.name)
        });
    }
}

fn one_identity(identity: &Identity) -> Errors {
    let mut errors = Errors::default();
    errors.check(!is_name(&identity.name, &['-', '_']), || {
        format!("invalid name {:?}. Must match regex ^[a-zA-Z0-9-_]{{1,128}}$", identity.name)
    });
    for (index, audience) in identity.audience.iter().enumerate() {
        errors.check(audience.is_empty(), || format!("an empty string is an invalid audience ({})", index + 1));
    }
    match identity.change_mode.as_str() {
        "" | "noop" | "restart" => errors.check(!identity.change_signal.is_empty(), || {
            "can only use change_signal=\"signal\" with change_mode=\"signal\"".to_string()
        }),
        "signal" => errors.check(identity.change_signal.is_empty(), || {
            "change_signal must be specified when using change_mode=\"signal\"".to_string()
        }),
        other => errors.add(format!("invalid change_mode: {other}")),
    }
    errors.check(identity.ttl > 0 && identity.name == DEFAULT_IDENTITY, || {
        "ttl for default identity not yet supported".to_string()
    });
    errors.check(identity.ttl < 0, || format!("ttl must be >= 0 but found {}", duration_text(identity.ttl)));
    errors.check(!identity.filepath.is_empty() && !identity.file, || {
        "file parameter must be true in order to specify filepath".to_string()
    });
    errors
}

fn actions(task: &Task, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for action in &task.actions {
        errors.check(!names.insert(action.name.as_str()), || format!("Action {} defined multiple times", action.name));
        let mut own = Errors::default();
        own.check(action.command.is_empty(), || "command cannot be empty".to_string());
        let good =
            (1..=128).contains(&action.name.len()) && !action.name.contains(|c: char| c.is_whitespace() || c == '\0');
        own.check(!good, || format!("invalid name '{}'", action.name));
        errors.nest(&format!("Action {} validation failed", action.name), own);
    }
}

fn secrets(task: &Task, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for secret in &task.secrets {
        errors.check(!names.insert(secret.name.as_str()), || format!("Duplicate secret {:?} found", secret.name));
        let mut own = Errors::default();
        own.check(!is_name(&secret.name, &['_']), || "secret name must match regex ^[a-zA-Z0-9_]{1,128}$".to_string());
        own.check(secret.provider.is_empty(), || "secret provider cannot be empty".to_string());
        own.check(secret.path.is_empty(), || "secret path cannot be empty".to_string());
        errors.nest(&format!("Secret {:?} is invalid", secret.name), own);
        errors.check(secret.provider == "vault" && task.vault.is_none(), || {
            format!("Secret {:?} has provider \"vault\" but no vault block", secret.name)
        });
    }
}
