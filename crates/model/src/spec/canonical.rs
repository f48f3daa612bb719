//! The canonical form of a submitted job: defaults that do not depend on the cluster.

use super::normalize::empty_block;
use super::schema::{Default, Kind, Presence, Shape};
use super::{table, table_mesh};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// Fills in the defaults of a job in the full form that [`super::normalize()`] makes. Doing it twice changes nothing more.
pub fn canonicalize(job: &mut Value) {
    let Some(job) = job.as_object_mut() else { return };
    shallow(&table::JOB, job);
    if is_null(job, "Name") {
        let id = text(job, "ID");
        job.insert("Name".into(), id.into());
    }
    let kind = text(job, "Type");
    match job.get_mut("Update").and_then(Value::as_object_mut) {
        Some(update) => deep(&table::UPDATE_STRATEGY, update),
        None if kind == "service" || kind == "system" => {
            job.insert("Update".into(), filled(&table::UPDATE_STRATEGY));
        }
        None => {}
    }
    let mut groups = job.get_mut("TaskGroups").map(Value::take).unwrap_or_default();
    for group in objects(&mut groups) {
        canonical_group(group, job, &kind);
    }
    job.insert("TaskGroups".into(), groups);
    deep(&table::JOB, job);
}

fn canonical_group(group: &mut Object, job: &Object, kind: &str) {
    shallow(&table::TASK_GROUP, group);
    let scaling_min = group.get("Scaling").and_then(|s| s.get("Min")).filter(|m| !m.is_null()).cloned();
    if is_null(group, "Count") {
        group.insert("Count".into(), scaling_min.unwrap_or_else(|| json!(1)));
    }
    let count = group.get("Count").cloned().unwrap_or_default();
    if let Some(scaling) = object_mut(group, "Scaling") {
        fill(scaling, "Min", count);
    }
    let namespace = text(job, "ConsulNamespace");
    if let Some(consul) = object_mut(group, "Consul")
        && text(consul, "Namespace").is_empty()
    {
        consul.insert("Namespace".into(), namespace.into());
    }
    inherit(group, "Update", job.get("Update").filter(|u| !is_zero_block(u)));
    inherit(group, "ReschedulePolicy", job.get("Reschedule"));
    inherit(group, "Migrate", job.get("Migrate"));
    if !matches!(kind, "system" | "sysbatch") && is_null(group, "ReschedulePolicy") {
        group.insert("ReschedulePolicy".into(), empty_block(&table::RESCHEDULE_POLICY));
    }
    if let Some(policy) = object_mut(group, "ReschedulePolicy") {
        fill_from(policy, &reschedule_default(kind));
    }
    if kind == "service" && is_null(group, "Migrate") {
        group.insert("Migrate".into(), filled(&table::MIGRATE_STRATEGY));
    }
    if is_null(group, "RestartPolicy") {
        group.insert("RestartPolicy".into(), empty_block(&table::RESTART_POLICY));
    }
    let restart = restart_default(kind);
    if let Some(policy) = object_mut(group, "RestartPolicy") {
        fill_from(policy, &restart);
    }
    let restart = group.get("RestartPolicy").cloned().unwrap_or_default();
    let names = (text(job, "Name"), text(group, "Name"));
    for task in objects_in(group, "Tasks") {
        canonical_task(task, &restart, &names);
    }
    for service in objects_in(group, "Services") {
        canonical_service(service, &format!("{}-{}", names.0, names.1));
    }
}

fn canonical_task(task: &mut Object, restart: &Value, names: &(String, String)) {
    shallow(&table::TASK, task);
    if let Some(resources) = object_mut(task, "Resources") {
        canonical_resources(resources);
    }
    match object_mut(task, "RestartPolicy") {
        Some(own) => fill_from(own, restart),
        None => {
            task.insert("RestartPolicy".into(), restart.clone());
        }
    }
    for artifact in objects_in(task, "Artifacts") {
        canonical_artifact(artifact);
    }
    for template in objects_in(task, "Templates") {
        canonical_template(template);
    }
    let name = format!("{}-{}-{}", names.0, names.1, text(task, "Name"));
    for service in objects_in(task, "Services") {
        canonical_service(service, &name);
    }
}

/// Processor shares are 100 unless cores are asked for, then none.
fn canonical_resources(resources: &mut Object) {
    if is_null(resources, "Cores") {
        resources.insert("Cores".into(), json!(0));
        fill(resources, "CPU", json!(100));
    }
    fill(resources, "CPU", json!(0));
}

fn canonical_artifact(artifact: &mut Object) {
    if !is_null(artifact, "RelativeDest") {
        return;
    }
    let dest = if text(artifact, "GetterMode") == "file" {
        let source = text(artifact, "GetterSource");
        let base = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        match base {
            "" if source.is_empty() => "local".to_string(),
            "" => "local".to_string(),
            base => format!("local/{base}"),
        }
    } else {
        "local/".to_string()
    };
    artifact.insert("RelativeDest".into(), dest.into());
}

fn canonical_template(template: &mut Object) {
    fill(template, "ChangeMode", json!("restart"));
    let signal = match template.get("ChangeSignal").and_then(Value::as_str) {
        Some(signal) => signal.to_uppercase(),
        None if text(template, "ChangeMode") == "signal" => "SIGHUP".to_string(),
        None => String::new(),
    };
    template.insert("ChangeSignal".into(), signal.into());
}

fn canonical_service(service: &mut Object, default_name: &str) {
    if text(service, "Name").is_empty() {
        service.insert("Name".into(), default_name.into());
    }
    shallow(&table::SERVICE, service);
    let on_update = text(service, "OnUpdate");
    let shared = service.get("CheckRestart").cloned().unwrap_or_default();
    for check in objects_in(service, "Checks") {
        if let Some(shared) = shared.as_object() {
            let own = check.get("CheckRestart").and_then(Value::as_object).cloned();
            check.insert("CheckRestart".into(), merged_check_restart(shared, own).into());
        }
        if text(check, "OnUpdate").is_empty() {
            check.insert("OnUpdate".into(), on_update.clone().into());
        }
    }
    if let Some(task) = object_mut(service, "Connect").and_then(|c| object_mut(c, "SidecarTask")) {
        shallow(&table_mesh::SIDECAR_TASK, task);
        if let Some(resources) = object_mut(task, "Resources") {
            canonical_resources(resources);
        }
    }
}

/// A check's own limits win over those of its service, where it sets them.
fn merged_check_restart(shared: &Object, own: Option<Object>) -> Object {
    let mut out = shared.clone();
    let Some(own) = own else { return out };
    if own.get("Limit").and_then(Value::as_i64).is_some_and(|l| l > 0) {
        out.insert("Limit".into(), own.get("Limit").cloned().unwrap_or_default());
    }
    if let Some(grace) = own.get("Grace").filter(|g| !g.is_null()) {
        out.insert("Grace".into(), grace.clone());
    }
    if own.get("IgnoreWarnings") == Some(&Value::Bool(true)) {
        out.insert("IgnoreWarnings".into(), Value::Bool(true));
    }
    out
}

fn reschedule_default(kind: &str) -> Value {
    let (attempts, interval, delay, function, max, unlimited): (i64, i64, i64, _, i64, _) = match kind {
        "service" => (0, 0, 30_000_000_000, "exponential", 3_600_000_000_000, true),
        "batch" => (1, 86_400_000_000_000, 5_000_000_000, "constant", 0, false),
        _ => (0, 0, 0, "", 0, false),
    };
    json!({"Attempts": attempts, "Interval": interval, "Delay": delay, "DelayFunction": function, "MaxDelay": max,
        "Unlimited": unlimited})
}

fn restart_default(kind: &str) -> Value {
    let (attempts, interval) = match kind {
        "service" | "system" => (2, 1_800_000_000_000i64),
        _ => (3, 86_400_000_000_000),
    };
    json!({"Attempts": attempts, "Interval": interval, "Delay": 15_000_000_000i64, "Mode": "fail", "RenderTemplates": false})
}

/// Puts the defaults of one block, not of what is inside it.
fn shallow(shape: &'static Shape, block: &mut Object) {
    for field in shape.fields {
        let value = block.get(field.wire);
        let absent = match value {
            None | Some(Value::Null) => true,
            Some(Value::String(s)) => {
                field.presence == Presence::Zero && s.is_empty() || field.wire == "TimeZone" && s.is_empty()
            }
            Some(Value::Number(n)) => field.presence == Presence::Zero && n.as_i64() == Some(0),
            _ => false,
        };
        let number = value.and_then(Value::as_i64);
        let empty = match value {
            Some(Value::Array(a)) => a.is_empty(),
            Some(Value::Object(o)) => o.is_empty(),
            _ => false,
        };
        let new = match field.default {
            Default::Text(text) if absent => json!(text),
            Default::Int(number) if absent => json!(number),
            Default::Flag(flag) if absent => json!(flag),
            Default::EmptyList if absent => json!([]),
            Default::EmptyMap if absent => json!({}),
            Default::Filled if absent => match field.kind {
                Kind::Block(inner) => empty_block(inner),
                _ => continue,
            },
            Default::NullIfEmpty if empty => Value::Null,
            Default::AtLeastOne if number.is_some_and(|n| n < 1) => json!(1),
            Default::NotNegative if number.is_some_and(|n| n < 0) => json!(0),
            _ => continue,
        };
        block.insert(field.wire.to_string(), new);
    }
}

/// Puts the defaults of a block and of everything inside it.
fn deep(shape: &'static Shape, block: &mut Object) {
    shallow(shape, block);
    for field in shape.fields {
        if matches!(field.default, Default::AsIs) {
            continue;
        }
        let Some(value) = block.get_mut(field.wire) else { continue };
        match field.kind {
            Kind::Block(inner) => {
                if let Some(inner_block) = value.as_object_mut() {
                    deep(inner, inner_block);
                }
            }
            Kind::Blocks(inner) => objects(value).for_each(|b| deep(inner, b)),
            Kind::BlockMap(inner) => {
                let blocks = value.as_object_mut().into_iter().flat_map(|m| m.values_mut());
                blocks.filter_map(Value::as_object_mut).for_each(|b| deep(inner, b));
            }
            _ => {}
        }
    }
}

fn filled(shape: &'static Shape) -> Value {
    let mut block = empty_block(shape);
    if let Some(object) = block.as_object_mut() {
        deep(shape, object);
    }
    block
}

/// A group's block wins field by field over the job's.
fn inherit(group: &mut Object, key: &str, outer: Option<&Value>) {
    let Some(outer) = outer.filter(|o| o.is_object()) else { return };
    match object_mut(group, key) {
        Some(own) => fill_from(own, outer),
        None => {
            group.insert(key.into(), outer.clone());
        }
    }
}

fn fill_from(block: &mut Object, defaults: &Value) {
    for (key, value) in defaults.as_object().into_iter().flatten() {
        fill(block, key, value.clone());
    }
}

fn fill(block: &mut Object, key: &str, value: Value) {
    if is_null(block, key) {
        block.insert(key.into(), value);
    }
}

fn is_zero_block(block: &Value) -> bool {
    block.as_object().is_some_and(|b| {
        b.values().all(|v| match v {
            Value::Null | Value::Bool(false) => true,
            Value::Number(n) => n.as_i64() == Some(0),
            Value::String(s) => s.is_empty(),
            _ => false,
        })
    })
}

fn is_null(block: &Object, key: &str) -> bool {
    block.get(key).is_none_or(Value::is_null)
}

fn text(block: &Object, key: &str) -> String {
    block.get(key).and_then(Value::as_str).unwrap_or_default().to_string()
}

fn object_mut<'a>(block: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    block.get_mut(key).and_then(Value::as_object_mut)
}

fn objects(list: &mut Value) -> impl Iterator<Item = &mut Object> {
    list.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut)
}

fn objects_in<'a>(block: &'a mut Object, key: &str) -> impl Iterator<Item = &'a mut Object> {
    block.get_mut(key).into_iter().flat_map(objects)
}
