use crate::shared::{goldens, job_names, read_json};
use herdsman_model::Job;
use herdsman_model::gate::{Decision, Severity, decision, decisions, gate, gate_spec};
use herdsman_model::spec::{Field, JOB, Kind, Shape, canonicalize, normalize};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Keys of the registry that are no settings of their own: labels, servers' fields, short forms that become others.
fn is_setting(block: &str, key: &str) -> bool {
    let other = block.starts_with('(') || block == "<file>" || key.starts_with(['(', '<']) || key.contains('|');
    !other && key != "vault_token" && key != "consul_token"
}

#[test]
fn every_key_of_the_registry_has_a_decision() {
    let registry = std::fs::read_to_string(goldens().join("../jobspec.tsv")).unwrap();
    let missing: Vec<String> = registry
        .lines()
        .skip(1)
        .map(|l| (l.split('\t').next().unwrap(), l.split('\t').nth(1).unwrap()))
        .filter(|(block, key)| is_setting(block, key))
        .map(|(block, key)| format!("{block}.{key}"))
        .filter(|path| decision(path).is_none())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A job in which one key, and what leads to it, is set. None where job files and typed jobs differ in form.
fn job_with(path: &str, value: Option<&str>) -> Option<Value> {
    let keys: Vec<&str> = path.split('.').skip(1).collect();
    Some(block_with(&JOB, &keys, value)?.into())
}

fn block_with(shape: &'static Shape, keys: &[&str], value: Option<&str>) -> Option<Map<String, Value>> {
    let (key, rest) = keys.split_first()?;
    let field: &Field = shape.fields.iter().find(|f| f.key == *key)?;
    let inner = |shape| if rest.is_empty() { Some(Map::new()) } else { block_with(shape, rest, value) };
    let set: Value = match field.kind {
        Kind::Text => value.unwrap_or("another").into(),
        Kind::Flag => {
            // What differs from the default says something.
            let mut job = json!({});
            job["x"] = json!(!matches!(field.default, herdsman_model::spec::FieldDefault::Flag(true)));
            job["x"].clone()
        }
        Kind::Number { .. } => 7.into(),
        Kind::Bytes => "".into(),
        Kind::Texts => json!(["a"]),
        Kind::TextMap => json!({"a": "b"}),
        Kind::JsonMap => json!({"a": 1}),
        Kind::TextsMap => json!({"a": ["b"]}),
        Kind::Ports => json!([1]),
        Kind::Block(shape) => inner(shape)?.into(),
        Kind::Blocks(shape) => json!([inner(shape)?]),
        Kind::BlockMap(shape) => json!({"label": inner(shape)?}),
    };
    Some(Map::from_iter([(field.wire.to_string(), set)]))
}

#[test]
fn every_key_that_does_not_act_is_told_when_set() {
    let (mut told, mut skipped) = (0, BTreeSet::new());
    for (row, decided, reason) in decisions() {
        let (path, value) = row.split_once('=').map_or((row, None), |(p, v)| (p, Some(v)));
        let wanted = match decided {
            Decision::Acts | Decision::Inside => continue,
            Decision::Warns => Severity::Warn,
            Decision::Refuses => Severity::Refuse,
        };
        assert!(!reason.is_empty(), "{row} says nothing");
        let value = value.map(|v| v.replace('*', "x"));
        let Some(job) = job_with(path, value.as_deref()) else {
            skipped.insert(row);
            continue;
        };
        let mut job = normalize(job).unwrap_or_else(|e| panic!("{row}: {e}"));
        canonicalize(&mut job);
        let issues = gate_spec(&job);
        assert!(
            issues.iter().any(|i| i.key == path && i.severity == wanted && i.reason.contains(reason)),
            "{row} is not told: {issues:?}"
        );
        told += 1;
    }
    // These become settings of tasks when a file is read, or are not part of the typed job.
    let known: BTreeSet<&str> =
        ["job.vault", "job.secret", "job.group.vault", "job.group.secret"].into_iter().collect();
    assert_eq!(skipped.difference(&known).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert!(told > 50, "only {told}");
}

#[test]
fn keys_that_act_are_not_told() {
    for (row, decided, _) in decisions() {
        if decided != Decision::Acts || row.contains('=') {
            continue;
        }
        let Some(job) = job_with(row, None) else { continue };
        let Ok(mut job) = normalize(job) else { continue };
        canonicalize(&mut job);
        let about: Vec<_> = gate_spec(&job).into_iter().filter(|i| i.key == row).collect();
        assert!(about.is_empty(), "{row}: {about:?}");
    }
}

/// Recorded jobs that the gate refuses, each with the keys that it refuses for.
#[test]
fn plain_recorded_jobs_pass() {
    let folder = goldens().join("jobspec");
    let mut refused = Vec::new();
    for name in job_names(".registered.json") {
        let job = Job::from_spec(&read_json(&folder.join(format!("{name}.canonical.json")))).unwrap();
        let keys: BTreeSet<String> =
            gate(&job).into_iter().filter(|i| i.severity == Severity::Refuse).map(|i| i.key).collect();
        if !keys.is_empty() {
            refused.push(name);
        }
    }
    for plain in
        ["minimal", "lifecycle", "type-batch", "parameterized", "periodic-crons", "update-migrate-reschedule-ok"]
    {
        assert!(!refused.iter().any(|r| r == plain), "{plain} is refused");
    }
    for promise in ["volumes-csi", "csi-plugins", "connect-sidecar-ok", "consul-ok", "network-bridge-cni"] {
        assert!(refused.iter().any(|r| r == promise), "{promise} is not refused");
    }
}

#[test]
fn an_issue_says_where_what_and_why() {
    let spec =
        json!({"ID": "a", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec", "Vault": {}}]}]});
    let mut spec = normalize(spec).unwrap();
    canonicalize(&mut spec);
    let issues = gate(&Job::from_spec(&spec).unwrap());
    assert_eq!(issues.len(), 1, "{issues:?}");
    assert_eq!(issues[0].pointer, "/TaskGroups/0/Tasks/0/Vault");
    assert!(issues[0].reason.starts_with("group \"g\" task \"t\": vault cannot be honoured: "), "{}", issues[0].reason);
}
