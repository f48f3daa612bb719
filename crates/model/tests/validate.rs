use crate::mini;
use crate::shared::{goldens, read_json};
use herdsman_model::spec::{canonicalize, normalize};
use herdsman_model::validate::{Limits, Validation, validate_words};
use herdsman_model::{Job, admit};
use serde_json::Value;

/// Where our answer differs from the recorded one on purpose.
const KNOWN: &[(&str, &str)] = &[
    ("weight-overflow", "the peer wraps a weight of 300 to 44; we refuse it"),
    ("volume-bad", "the peer ends its handler; we name every error"),
    ("volume-mount-bad", "the peer ends its handler; we name every error"),
    ("volume-mount-no-destination", "the peer ends its handler; we name every error"),
    ("volume-unknown-type", "the peer drops the volume; we refuse it"),
    ("volume-no-type-no-source", "the peer drops the volume; we refuse it"),
    ("volume-csi-missing-modes", "CSI volumes are refused by the gate; unknown modes pass here as with the peer"),
    ("dispatch-payload-escape", "the peer lets the path through; we refuse it"),
    ("reschedule-bad", "the peer prints the delay in the place of the maximum"),
    ("reschedule-not-viable", "the peer's interval wraps below zero; ours is the one that is needed"),
    ("bad-node-pool", "needs the cluster's node pools"),
    ("unknown-node-pool", "needs the cluster's node pools"),
    ("unknown-namespace", "needs the cluster's namespaces"),
    ("multiregion-ce", "said by the gate"),
    ("schedule-ce", "said by the gate"),
    ("numa-ce", "said by the gate"),
    ("vault-bad", "that Vault is not enabled is said by the gate"),
    ("connect-no-network", "connect is refused by the gate"),
    ("secret-group-and-task", "the peer doubles a task's secrets when its group has some too"),
];

fn checked(mut job: Value) -> Result<Validation, String> {
    job = normalize(job).map_err(|e| e.to_string())?;
    canonicalize(&mut job);
    let (mut job, words) = Job::from_spec_with_words(&job).map_err(|e| e.to_string())?;
    admit(&mut job, &mut || "id".to_string());
    Ok(validate_words(&job, &words, &Limits::default()))
}

#[test]
fn broken_job_files_get_the_recorded_texts() {
    let folder = goldens().join("errors");
    let index = std::fs::read_to_string(folder.join("index.tsv")).unwrap();
    let (mut compared, mut problems) = (0, Vec::new());
    for line in index.lines().skip(1) {
        let name = line.split('\t').next().unwrap();
        let parsed = line.split('\t').nth(1) == Some("200");
        if !parsed || KNOWN.iter().any(|k| k.0 == name) {
            continue;
        }
        let text = std::fs::read_to_string(folder.join(format!("{name}.nomad.hcl"))).unwrap();
        let result = read_json(&folder.join(format!("{name}.result.json")));
        let want = &result["validate"]["body"];
        let Some(job) = mini::job(&text) else {
            problems.push(format!("{name}: the small reader does not know it"));
            continue;
        };
        match checked(job) {
            Err(error) => problems.push(format!("{name}: {error}")),
            Ok(got) => {
                let theirs: Vec<&str> =
                    want["ValidationErrors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                // The peer walks volumes in no order.
                let sorted = |text: &str| {
                    let mut lines: Vec<&str> = text.lines().collect();
                    lines.sort_unstable();
                    lines.join("\n")
                };
                let same = got.errors == theirs
                    || name == "volume-host-bad" && sorted(&got.errors.join("")) == sorted(&theirs.join(""));
                if !same {
                    problems.push(format!("{name}:\n ours   {:?}\n theirs {theirs:?}", got.errors));
                }
                if got.warnings_text() != want["Warnings"].as_str().unwrap_or_default() {
                    problems.push(format!(
                        "{name}:\n ours   {:?}\n theirs {:?}",
                        got.warnings_text(),
                        want["Warnings"]
                    ));
                }
                compared += 1;
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(compared > 60, "only {compared} compared");
}

#[test]
fn what_the_peer_registers_has_no_error_and_the_same_warnings() {
    let folder = goldens().join("jobspec");
    let table = std::fs::read_to_string(folder.join("registered.tsv")).unwrap();
    let mut problems = Vec::new();
    for line in table.lines().skip(1) {
        let mut cells = line.split('\t');
        let (name, status, texts) = (cells.next().unwrap(), cells.next().unwrap(), cells.next().unwrap_or_default());
        let got = checked(read_json(&folder.join(format!("{name}.parsed.json")))).unwrap();
        if status == "200" {
            if !got.errors.is_empty() {
                problems.push(format!("{name}: {}", got.error_text()));
            }
            // The proxies that the peer adds have a shutdown delay of their own.
            let flat: Vec<&str> = got.warnings.iter().flat_map(|w| w.split_whitespace()).collect();
            let ours = flat.join(" ");
            let theirs: Vec<&str> = texts.split_whitespace().collect();
            let theirs = theirs.join(" ");
            let theirs =
                theirs.split_once("warning: * ").or(theirs.split_once("warnings: * ")).map_or("", |t| t.1).to_string();
            let ours_marked = got
                .warnings
                .iter()
                .map(|w| w.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
                .join(" * ");
            if ours_marked != theirs && !name.starts_with("connect") {
                problems.push(format!("{name} warnings:\n ours   {ours}\n theirs {theirs}"));
            }
        } else if got.errors.is_empty()
            && ![
                "connect-gateways-ok",
                "connect-gateways",
                "connect-sidecar",
                "multiregion",
                "schedule",
                "vault",
                "devices-numa-resources",
                "secrets",
            ]
            .contains(&name)
        {
            problems.push(format!("{name}: no error, the peer says {texts}"));
        } else if status == "500" && !got.errors.is_empty() {
            let ours = got.error_text().split_whitespace().collect::<Vec<_>>().join(" ");
            let theirs = texts.split_whitespace().collect::<Vec<_>>().join(" ");
            if !ours.starts_with(theirs.trim_end_matches('.'))
                && !theirs.starts_with(&ours)
                && name != "secrets"
                && !name.starts_with("connect-gateways")
            {
                problems.push(format!("{name}:\n ours   {ours}\n theirs {theirs}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn what_the_peer_cannot_answer_gets_an_error_by_name() {
    let folder = goldens().join("errors");
    for (name, part) in [
        ("weight-overflow", "Job.Affinities.Weight of type int8"),
        ("volume-mount-no-destination", "empty destination"),
        ("volume-mount-bad", "references undefined volume ghost"),
        ("volume-unknown-type", "unknown type"),
        ("dispatch-payload-escape", "escapes the local directory"),
        ("reschedule-not-viable", "Set the interval to at least"),
    ] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.nomad.hcl"))).unwrap();
        let answer = match checked(mini::job(&text).unwrap()) {
            Ok(v) => v.error_text(),
            Err(e) => e,
        };
        assert!(answer.contains(part), "{name}: {answer}");
    }
}

fn task_with(key: &str, value: Value) -> Value {
    let mut job =
        serde_json::json!({"ID": "a", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec"}]}]});
    job["TaskGroups"][0]["Tasks"][0][key] = value;
    job
}

#[test]
fn nomad_10511_cores_below_zero_are_refused() {
    let text = checked(task_with("Resources", serde_json::json!({"Cores": -1}))).unwrap().error_text();
    assert!(text.contains("cores value must not be negative; got -1"), "{text}");
}

#[test]
fn nomad_10855_an_empty_volume_mount_is_refused() {
    let text = checked(task_with("VolumeMounts", serde_json::json!([{}]))).unwrap().error_text();
    assert!(text.contains("Volume Mount (0) is invalid") && text.contains("empty destination"), "{text}");
}

#[test]
fn nomad_9764_a_checksum_file_is_accepted() {
    let artifact =
        serde_json::json!([{"GetterSource": "http://h/x", "GetterOptions": {"checksum": "file:http://h/x.sha256"}}]);
    assert_eq!(checked(task_with("Artifacts", artifact)).unwrap().error_text(), "");
}
