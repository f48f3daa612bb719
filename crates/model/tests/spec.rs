use crate::shared::{differences, goldens, job_names, read_json};
use herdsman_model::Job;
use herdsman_model::spec::{canonicalize, normalize};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn every_parsed_job_becomes_the_recorded_canonical_form() {
    let folder = goldens().join("jobspec");
    let mut problems = Vec::new();
    for name in job_names(".canonical.json") {
        let parsed = read_json(&folder.join(format!("{name}.parsed.json")));
        let mut job = normalize(parsed.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
        for d in differences(&job, &parsed) {
            problems.push(format!("{name} full form {d}"));
        }
        canonicalize(&mut job);
        let want = read_json(&folder.join(format!("{name}.canonical.json")));
        for d in differences(&job, &want) {
            problems.push(format!("{name} {d}"));
        }
        let once = job.clone();
        canonicalize(&mut job);
        assert_eq!(once, job, "{name}: canonical form changes when made again");
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_canonical_job_survives_the_typed_form() {
    let folder = goldens().join("jobspec");
    for name in job_names(".canonical.json") {
        let canonical = read_json(&folder.join(format!("{name}.canonical.json")));
        let job = Job::from_spec(&canonical).unwrap_or_else(|e| panic!("{name}: {e}"));
        let again = normalize(serde_json::to_value(&job).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut again = again;
        canonicalize(&mut again);
        assert_eq!(Job::from_spec(&again).unwrap(), job, "{name}");
    }
}

#[test]
fn keys_of_any_case_are_read_and_unknown_ones_left_out() {
    let job = normalize(json!({"id": "a", "taskgroups": [{"NAME": "g", "count": 2, "zork": 1}], "nope": {}})).unwrap();
    assert_eq!(job["ID"], "a");
    assert_eq!(job["TaskGroups"][0]["Name"], "g");
    assert_eq!(job["TaskGroups"][0]["Count"], 2);
    assert!(job.get("nope").is_none() && job["TaskGroups"][0].get("zork").is_none());
}

#[test]
fn a_wrong_type_is_refused_by_name() {
    let errors =
        normalize(json!({"ID": 5, "Priority": 1.5, "TaskGroups": [{"Count": "x"}], "Affinities": [{"Weight": 300}]}))
            .unwrap_err();
    let texts: Vec<_> = errors.0.iter().map(|e| (e.path.as_str(), e.message.as_str())).collect();
    assert!(
        texts.contains(&("Job.ID", "json: cannot unmarshal number into Go struct field Job.Job.ID of type string"))
    );
    for path in ["Job.Priority", "Job.TaskGroups[0].Count", "Job.Affinities[0].Weight"] {
        assert!(texts.iter().any(|t| t.0 == path), "{path} not in {texts:?}");
    }
}

#[test]
fn nesting_without_end_is_refused() {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let job = json!({"ID": "a", "TaskGroups": [{"Tasks": [{"Config": {"x": deep}}]}]});
    assert!(normalize(job).unwrap_err().to_string().contains("nested deeper"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let keys = prop_oneof![
        Just("ID"),
        Just("Name"),
        Just("Type"),
        Just("TaskGroups"),
        Just("Tasks"),
        Just("Count"),
        Just("Update"),
        Just("Services"),
        Just("Checks"),
        Just("Resources"),
        Just("Scaling"),
        Just("Networks"),
        Just("Connect"),
        Just("Templates"),
        Just("periodic"),
        Just("Meta"),
        Just("Config"),
        Just("Constraints"),
        Just("Artifacts"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z$/{}]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone().prop_map(str::to_string), inner, 0..8)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_makes_reading_panic(value in any_json()) {
        if let Ok(mut job) = normalize(value) {
            canonicalize(&mut job);
            let once = job.clone();
            canonicalize(&mut job);
            prop_assert_eq!(&once, &job);
            let _ = Job::from_spec(&job);
        }
    }

    #[test]
    fn canonical_form_of_unread_json_does_not_panic(mut value in any_json()) {
        canonicalize(&mut value);
        let _ = Job::from_spec(&value);
    }
}

/// Where our registered form differs from the recorded one on purpose, as (job, path prefix, reason).
const KNOWN: &[(&str, &str, &str)] = &[
    ("identity", ".TaskGroups[0].Tasks[2].Identities", "an empty list is null in every form"),
    ("connect-mesh-ok", ".TaskGroups[0]", "connect is refused: its proxies are not added"),
    ("connect-sidecar-ok", ".TaskGroups", "connect is refused: its proxies are not added"),
];

#[test]
fn every_registered_job_has_the_recorded_form() {
    let folder = goldens().join("jobspec");
    let mut problems = Vec::new();
    for name in job_names(".registered.json") {
        let canonical = read_json(&folder.join(format!("{name}.canonical.json")));
        let mut job = Job::from_spec(&canonical).unwrap();
        herdsman_model::admit(&mut job, &mut || "new-id".to_string());
        let once = job.clone();
        herdsman_model::admit(&mut job, &mut || "other-id".to_string());
        assert_eq!(once, job, "{name}: registering again changes it");
        let want = read_json(&folder.join(format!("{name}.registered.json")));
        for d in differences(&serde_json::to_value(&job).unwrap(), &want) {
            let path = d.split(": ").next().unwrap_or_default();
            let server_kept = ["Index", ".SubmitTime", ".Status", ".Scaling.ID", ".Version"];
            let generated = server_kept.iter().any(|s| path.ends_with(s))
                || path.contains("ScalingPolicies") && path.ends_with(".ID");
            if !generated && !KNOWN.iter().any(|k| k.0 == name && path.starts_with(k.1)) {
                problems.push(format!("{name} {d}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
