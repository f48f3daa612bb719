//! Access to the recorded answers of the peer, and comparison of JSON.

use serde_json::Value;
use std::path::PathBuf;

/// The folder with the recorded answers.
pub fn goldens() -> PathBuf {
    let root = std::env::var_os("HERDSMAN_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let folder = root.join("compat/goldens");
    assert!(
        folder.is_dir(),
        "no recorded answers at {}: lay the shared folder beside the repository or set HERDSMAN_SHARED",
        folder.display()
    );
    folder
}

pub fn read_json(path: &std::path::Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The body of a recorded call whose file name starts with this number.
pub fn api_body(number: &str) -> Value {
    let folder = goldens().join("api");
    let prefix = format!("{number}-");
    let entry = std::fs::read_dir(&folder)
        .unwrap()
        .filter_map(Result::ok)
        .find(|e| e.file_name().to_string_lossy().starts_with(&prefix))
        .unwrap_or_else(|| panic!("no recorded call {number}"));
    read_json(&entry.path())["body"].clone()
}

/// The names of the job files that have a recorded form of this kind.
pub fn job_names(suffix: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(goldens().join("jobspec"))
        .unwrap()
        .filter_map(|e| e.ok()?.file_name().to_str()?.strip_suffix(suffix).map(str::to_string))
        .collect();
    names.sort();
    assert!(!names.is_empty());
    names
}

/// Every difference of two values, numbers by value.
pub fn differences(got: &Value, want: &Value) -> Vec<String> {
    let mut out = Vec::new();
    compare(got, want, "", &mut out);
    out
}

fn compare(got: &Value, want: &Value, path: &str, out: &mut Vec<String>) {
    match (got, want) {
        (Value::Object(g), Value::Object(w)) => {
            for key in g.keys().chain(w.keys().filter(|k| !g.contains_key(*k))) {
                match (g.get(key), w.get(key)) {
                    (Some(a), Some(b)) => compare(a, b, &format!("{path}.{key}"), out),
                    (Some(a), None) => out.push(format!("{path}.{key}: ours only: {a}")),
                    (None, Some(b)) => out.push(format!("{path}.{key}: missing: {b}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(g), Value::Array(w)) if g.len() == w.len() => {
            for (i, (a, b)) in g.iter().zip(w).enumerate() {
                compare(a, b, &format!("{path}[{i}]"), out);
            }
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
        _ if got == want => {}
        _ => out.push(format!("{path}: ours {got}, theirs {want}")),
    }
}
