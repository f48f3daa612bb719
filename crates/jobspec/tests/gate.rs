//! Every key that a job file may hold is decided about in the gate, and nothing else is.

use herdsman_jobspec::schema::describe;
use herdsman_model::gate::decisions;
use std::collections::BTreeSet;

/// Whether a row is about a key: the row itself, one for everything below a block, or one for a value of the key.
fn covers(row: &str, path: &str) -> bool {
    match row.strip_suffix(".*") {
        Some(block) => path.strip_prefix(block).is_some_and(|rest| rest.starts_with('.')),
        None => row == path,
    }
}

#[test]
fn every_key_has_a_decision_and_every_decision_a_key() {
    let settings = describe().into_iter().filter(|d| d.key != "<label>").map(|d| format!("{}.{}", d.path, d.key));
    // A task right below the job is short for a group with one task.
    let keys: BTreeSet<String> = settings.filter(|key| !key.starts_with("job.task.")).collect();
    let rows: BTreeSet<&str> = decisions().map(|(row, ..)| row.split('=').next().unwrap_or(row)).collect();
    let undecided: Vec<_> = keys.iter().filter(|key| !rows.iter().any(|row| covers(row, key))).collect();
    let unknown: Vec<_> = rows.iter().filter(|row| !keys.iter().any(|key| covers(row, key))).collect();
    assert!(undecided.is_empty(), "without a row in gate.tsv: {undecided:#?}");
    assert!(unknown.is_empty(), "rows about no key: {unknown:#?}");
}
