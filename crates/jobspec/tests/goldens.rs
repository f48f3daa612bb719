//! Every recorded job file becomes the job the peer made of it.

use herdsman_jobspec::{Inputs, NoHost, parse};
use serde_json::Value;

use crate::{files, goldens_dir};

/// Job files whose result differs on purpose, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("secrets", "a task gets the secrets of group and job once; the peer lists the task's own twice and then refuses"),
    ("constraints-job", "is_set and the like mean their operator; the peer drops them and then refuses the constraint"),
    ("constraints-group-task-device", "the same"),
];

/// The first differences between two JSON values.
pub fn differences(path: &str, ours: &Value, theirs: &Value, out: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                match (a.get(key), b.get(key)) {
                    (Some(x), Some(y)) => differences(&format!("{path}/{key}"), x, y, out),
                    (x, y) => out.push(format!("{path}/{key}: {x:?} instead of {y:?}")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}/{i}"), x, y, out);
            }
        }
        _ if ours == theirs => {}
        _ => out.push(format!("{path}: {ours} instead of {theirs}")),
    }
}

#[test]
fn recorded_job_files_become_the_recorded_jobs() {
    let mut wrong = Vec::new();
    let dir = goldens_dir().join("jobspec");
    let mut count = 0;
    for (name, text) in files("jobspec", ".nomad.hcl") {
        let vars = std::fs::read_to_string(dir.join(format!("{name}.vars.hcl"))).ok();
        let inputs =
            Inputs { files: vars.map(|v| ("input.vars".to_owned(), v)).into_iter().collect(), ..Inputs::default() };
        let expected: Value =
            serde_json::from_str(&crate::read(&dir.join(format!("{name}.parsed.json")))).expect("a recorded answer");
        count += 1;
        let found = match parse("input.hcl", &text, &inputs, &NoHost) {
            Ok(parsed) => {
                let mut found = Vec::new();
                differences("", &parsed.job, &expected, &mut found);
                found
            }
            Err(diagnostics) => vec![diagnostics.compact()],
        };
        let excepted = EXCEPTIONS.iter().any(|(n, _)| *n == name);
        if excepted && found.is_empty() {
            wrong.push(format!("{name}: no longer an exception"));
        } else if !excepted && !found.is_empty() {
            wrong.push(format!("{name}:\n    {}", found.join("\n    ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 70, "only {count} recorded job files");
}
