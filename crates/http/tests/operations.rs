//! Operations from request to state and back.

use crate::support::{Cluster, Streamed, job};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn jobs_live_from_register_to_purge() {
    let cluster = Cluster::with_node().await;
    let made = cluster.register(job("a")).await;
    let eval = made["EvalID"].as_str().unwrap().to_string();
    assert!(made["JobModifyIndex"].as_u64() > Some(0) && made["EvalCreateIndex"].as_u64() > Some(0));
    let done = cluster.until(&format!("/v1/evaluation/{eval}"), |a| a.json()["Status"] == "complete").await;
    assert_eq!(done.json()["JobID"], "a");
    let allocs = cluster.get("/v1/job/a/allocations").await.json();
    assert_eq!((allocs[0]["ClientStatus"].as_str(), allocs[0]["EvalID"].as_str()), (Some("pending"), Some(&*eval)));
    let by_eval = cluster.get(&format!("/v1/evaluation/{eval}/allocations")).await.json();
    assert_eq!(by_eval[0]["ID"], allocs[0]["ID"]);
    let alloc = cluster.get(&format!("/v1/allocation/{}", allocs[0]["ID"].as_str().unwrap())).await.json();
    assert_eq!(alloc["Job"]["ID"], "a");

    let mut changed = job("a");
    changed["TaskGroups"][0]["Count"] = json!(2);
    let plan = cluster.put("/v1/job/a/plan", json!({"Job": changed, "Diff": true})).await;
    assert_eq!(plan.status, 200, "{}", plan.text());
    let plan = plan.json();
    assert_eq!(plan["Diff"]["Type"], "Edited");
    assert_eq!(plan["Annotations"]["DesiredTGUpdates"]["group1"]["Place"], 1, "{plan}");
    let stale = json!({"Job": changed, "EnforceIndex": true, "JobModifyIndex": 1_000_000});
    let refused = cluster.put("/v1/jobs", stale).await;
    assert!(
        refused.text().starts_with("Enforcing job modify index 1000000: job exists with conflicting job modify index")
    );
    cluster.register(changed).await;
    let versions = cluster.get("/v1/job/a/versions?diffs=true").await.json();
    assert_eq!((versions["Versions"].as_array().unwrap().len(), versions["Diffs"].as_array().unwrap().len()), (2, 1));

    let reverted = cluster.put("/v1/job/a/revert", json!({"JobID": "a", "JobVersion": 0})).await;
    assert_eq!((reverted.status, reverted.header("x-nomad-knownleader")), (200, Some("false")), "{}", reverted.text());
    let stopped = cluster.send("DELETE", "/v1/job/a", None).await;
    assert_eq!(stopped.status, 200);
    assert_eq!(cluster.get("/v1/job/a").await.json()["Stop"], true);
    let purged = cluster.send("DELETE", "/v1/job/a?purge=true", None).await;
    assert!(purged.json()["EvalID"].as_str().is_some_and(|e| !e.is_empty()));
    assert_eq!(cluster.get("/v1/job/a").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_type_in_a_body_is_named_by_its_path() {
    let cluster = Cluster::start().await;
    let refused = async |path: &str, body: Value| {
        let answer = cluster.put(path, body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        answer.text()
    };
    let job =
        |field: &str| format!("json: cannot unmarshal number into Go struct field Job.Job.{field} of type string");
    assert_eq!(refused("/v1/jobs", json!({"Job": {"ID": 5}})).await, job("ID"));
    assert_eq!(refused("/v1/jobs", json!({"Job": {"id": 5}})).await, job("ID"));
    assert_eq!(refused("/v1/jobs", json!({"Job": {"ID": "a", "Namespace": 5}})).await, job("Namespace"));
    assert_eq!(refused("/v1/job/a/plan", json!({"Job": {"ID": "a", "Region": 5}})).await, job("Region"));
    assert_eq!(refused("/v1/jobs", json!({"Job": {"ID": null}})).await, "Job ID hasn't been provided");
    assert_eq!(
        refused("/v1/jobs", json!({"Job": {"ID": "a"}, "Submission": {"Source": 5}})).await,
        "json: Submission.Source: invalid type: integer `5`, expected a string"
    );
    assert_eq!(
        refused("/v1/jobs", json!({"Job": {"ID": "a"}, "JobModifyIndex": "x"})).await,
        "json: JobModifyIndex: invalid type: string \"x\", expected u64"
    );
    assert_eq!(
        refused("/v1/namespace", json!({"Name": "a", "Meta": {"k": 1}})).await,
        "json: Meta.k: invalid type: integer `1`, expected a string"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_may_be_spelled_in_any_case() {
    let cluster = Cluster::start().await;
    let body = json!({"job": {"id": "low", "name": "low", "type": "batch", "datacenters": ["dc1"], "taskgroups": [
        {"name": "g", "tasks": [{"name": "t", "driver": "raw_exec", "config": {"command": "true"}}]}
    ]}, "preservecounts": true, "unknown": 1});
    let answer = cluster.put("/v1/jobs", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(cluster.get("/v1/job/low").await.json()["TaskGroups"][0]["Tasks"][0]["Driver"], "raw_exec");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promise_that_is_not_kept_is_refused() {
    let cluster = Cluster::start().await;
    let mut vault = job("v");
    vault["TaskGroups"][0]["Tasks"][0]["Vault"] = json!({"Role": "r"});
    let refused = cluster.put("/v1/jobs", json!({"Job": vault})).await;
    assert!(refused.status >= 400 && refused.text().contains("vault"), "{} {}", refused.status, refused.text());
    let checked = cluster.put("/v1/validate/job", json!({"Job": vault})).await.json();
    assert!(checked["Error"].as_str().unwrap().contains("vault"), "{checked}");
    assert_eq!(cluster.get("/v1/job/v").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn validation_names_every_fault() {
    let cluster = Cluster::start().await;
    let mut wrong = job("w");
    wrong["Priority"] = json!(1000);
    wrong["TaskGroups"][0]["Tasks"][0]["Driver"] = json!("");
    let answer = cluster.put("/v1/validate/job", json!({"Job": wrong})).await;
    assert_eq!((answer.status, answer.header("x-nomad-index")), (200, None));
    let answer = answer.json();
    assert_eq!(answer["ValidationErrors"].as_array().unwrap().len(), 2, "{answer}");
    assert!(answer["Error"].as_str().unwrap().contains("job priority must be between [1, 100]"));
    let refused = cluster.put("/v1/jobs", json!({"Job": wrong})).await;
    assert_eq!((refused.status, refused.text().as_str()), (500, answer["Error"].as_str().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_counts_and_notes() {
    let cluster = Cluster::start().await;
    let mut scaled = job("s");
    scaled["TaskGroups"][0]["Scaling"] = json!({"Min": 1, "Max": 5, "Enabled": true, "Policy": {}});
    cluster.register(scaled).await;
    let change = json!({"Target": {"Group": "group1"}, "Count": 3, "Message": "more", "Meta": {"by": "me"}});
    let done = cluster.put("/v1/job/s/scale", change).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(done.json()["EvalID"].as_str().is_some_and(|e| !e.is_empty()));
    let noted =
        cluster.put("/v1/job/s/scale", json!({"Target": {"Group": "group1"}, "Error": true, "Message": "bad"})).await;
    assert_eq!((noted.json()["EvalID"].as_str(), noted.json()["EvalCreateIndex"].as_u64()), (Some(""), Some(0)));
    let status = cluster.get("/v1/job/s/scale").await.json();
    let group = &status["TaskGroups"]["group1"];
    assert_eq!((group["Desired"].as_i64(), group["Events"].as_array().unwrap().len()), (Some(3), 2));
    assert_eq!(group["Events"][0]["EvalID"], Value::Null);
    assert_eq!(
        (group["Events"][1]["Message"].as_str(), group["Events"][1]["PreviousCount"].as_i64()),
        (Some("more"), Some(1))
    );
    let policies = cluster.get("/v1/scaling/policies").await.json();
    let policy = cluster.get(&format!("/v1/scaling/policy/{}", policies[0]["ID"].as_str().unwrap())).await.json();
    assert_eq!((policy["Min"].as_i64(), policy["Max"].as_i64()), (Some(1), Some(5)));
    assert_eq!(policy["Target"], json!({"Namespace": "default", "Job": "s", "Group": "group1"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_written_read_and_removed() {
    let cluster = Cluster::start().await;
    let written = cluster.put("/v1/namespace", json!({"Name": "team-a", "Description": "A"})).await;
    assert_eq!((written.status, written.text().as_str()), (200, ""));
    assert!(written.index() > 0);
    assert_eq!(cluster.get("/v1/namespace/team-a").await.json()["Description"], "A");
    let pool = json!({"Name": "gpu", "Meta": {"a": "b"}, "NodeIdentityTTL": "720h"});
    assert_eq!(cluster.put("/v1/node/pools", pool).await.status, 200);
    let read = cluster.get("/v1/node/pool/gpu").await.json();
    assert_eq!(
        (read["NodeIdentityTTL"].as_i64(), read["Meta"]["a"].as_str()),
        (Some(2_592_000_000_000_000), Some("b"))
    );
    let mismatch = cluster.put("/v1/node/pool/gpu", json!({"Name": "other"})).await;
    assert_eq!(mismatch.status, 400);
    for (key, value, what) in
        [("ID", json!(5), "number"), ("Namespace", json!([]), "array"), ("region", json!({}), "object")]
    {
        let field = if key == "region" { "Region" } else { key };
        let refused = cluster.put("/v1/jobs", json!({"Job": {"ID": "x", key: value}})).await;
        let text = format!("json: cannot unmarshal {what} into Go struct field Job.Job.{field} of type string");
        assert_eq!((refused.status, refused.text()), (400, text));
    }
    // Names that cannot exist are looked for all the same.
    let odd = cluster.get("/v1/node/pool/node%2Fpool").await;
    assert_eq!((odd.status, odd.text().as_str()), (404, "node pool not found"));
    assert_eq!(cluster.put("/v1/node/pools", json!({"Name": "plain", "NodeIdentityTTL": ""})).await.status, 200);
    let mut used = job("j");
    used["NodePool"] = json!("gpu");
    used["Namespace"] = json!("team-a");
    cluster.register(used).await;
    let busy = cluster.send("DELETE", "/v1/namespace/team-a", None).await;
    assert!(busy.text().contains("namespace \"team-a\" has non-terminal jobs in regions: [global]"), "{}", busy.text());
    assert_eq!(cluster.send("DELETE", "/v1/job/j?purge=true&namespace=team-a", None).await.status, 200);
    assert_eq!(cluster.send("DELETE", "/v1/namespace/team-a", None).await.status, 200);
    assert_eq!(cluster.send("DELETE", "/v1/node/pool/gpu", None).await.status, 200);
    assert_eq!(cluster.get("/v1/node/pool/gpu").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn evaluations_are_deleted_only_while_the_broker_pauses() {
    let cluster = Cluster::start().await;
    let made = cluster.register(job("a")).await;
    let ids = json!({"EvalIDs": [made["EvalID"]]});
    let refused = cluster.send("DELETE", "/v1/evaluations", Some(ids.to_string())).await;
    assert!(refused.text().contains("eval broker is enabled"), "{}", refused.text());
    let config = json!({"SchedulerAlgorithm": "spread", "PauseEvalBroker": true, "NodeLimitForFeasibilityChecks": 123});
    assert_eq!(cluster.put("/v1/operator/scheduler/configuration", config).await.json()["Updated"], true);
    let config = cluster.get("/v1/operator/scheduler/configuration").await.json()["SchedulerConfig"].clone();
    assert_eq!(
        (config["SchedulerAlgorithm"].as_str(), config["PauseEvalBroker"].as_bool()),
        (Some("spread"), Some(true))
    );
    assert_eq!(config["PreemptionConfig"]["SystemSchedulerEnabled"], false);
    assert_eq!(config["NodeLimitForFeasibilityChecks"], 123);
    let unknown = json!({"EvalIDs": ["8e231cf4-ca48-43ff-b694-5801e69e22fa"]});
    let refused = cluster.send("DELETE", "/v1/evaluations", Some(unknown.to_string())).await;
    assert_eq!((refused.status, refused.text().as_str()), (500, "eval not found"));
    let deleted = cluster.send("DELETE", "/v1/evaluations", Some(ids.to_string())).await;
    assert_eq!(deleted.json()["Count"], 1, "{}", deleted.text());
    assert_eq!(cluster.get(&format!("/v1/evaluation/{}", made["EvalID"].as_str().unwrap())).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn search_finds_by_prefix_and_by_any_part() {
    let cluster = Cluster::with_node().await;
    cluster.register(job("redis-1")).await;
    let found = cluster.put("/v1/search", json!({"Prefix": "red", "Context": "jobs"})).await.json();
    assert_eq!(found["Matches"]["jobs"], json!(["redis-1"]));
    let odd = cluster.put("/v1/search", json!({"Prefix": "6d6", "Context": "nodes"})).await.json();
    assert_eq!(odd["Matches"]["nodes"].as_array().map(Vec::len), Some(1), "{odd}");
    let fuzzy = cluster.put("/v1/search/fuzzy", json!({"Text": "bin", "Context": "all"})).await.json();
    let expected = json!([{"ID": "/bin/sleep", "Scope": ["default", "redis-1", "group1", "task1"]}]);
    assert_eq!(fuzzy["Matches"]["commands"], expected, "{fuzzy}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_event_stream_tells_what_was_and_what_comes() {
    let cluster = Cluster::start().await;
    cluster.register(job("a")).await;
    let mut stream = Streamed::open(&cluster.api, "/v1/event/stream?topic=Evaluation&topic=Job:b&index=0").await;
    assert_eq!((stream.status, stream.next().await.unwrap().unwrap().as_str()), (200, "{}\n"));
    let first: Value = serde_json::from_str(&stream.next().await.unwrap().unwrap()).unwrap();
    let event = &first["Events"][0];
    assert_eq!((event["Topic"].as_str(), event["Type"].as_str()), (Some("Evaluation"), Some("JobRegistered")));
    assert_eq!((event["Namespace"].as_str(), event["FilterKeys"][0].as_str()), (Some("default"), Some("a")));
    assert_eq!(event["Payload"]["Evaluation"]["JobID"], "a");
    cluster.register(job("b")).await;
    let told = loop {
        let line: Value = serde_json::from_str(&stream.next().await.unwrap().unwrap()).unwrap();
        let events = line["Events"].as_array().cloned().unwrap_or_default();
        if let Some(job) = events.into_iter().find(|e| e["Topic"] == "Job") {
            break job;
        }
    };
    assert_eq!((told["Key"].as_str(), told["Payload"]["Job"]["ID"].as_str()), (Some("b"), Some("b")));
    let wrong = cluster.get("/v1/event/stream?topic=Evaluation:::*").await;
    assert!(wrong.text().contains("Invalid key value pair"), "{}", wrong.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_watched_in_frames_or_plain() {
    let cluster = Cluster::start().await;
    let mut plain = Streamed::open(&cluster.api, "/v1/agent/monitor?log_level=debug&plain=true").await;
    assert_eq!(plain.next().await.unwrap().unwrap(), "[DEBUG] http: hello\n");
    let mut frames = Streamed::open(&cluster.api, "/v1/agent/monitor?log_level=debug").await;
    let frame: Value = serde_json::from_str(&frames.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(
        (frame["Data"].as_str(), frame["FileEvent"].as_str()),
        (Some("W0RFQlVHXSBodHRwOiBoZWxsbwo="), Some("log"))
    );
    assert_eq!(frames.next().await.unwrap().unwrap(), "{}");
    let other = cluster.get("/v1/agent/monitor?server_id=nobody.global").await;
    assert_eq!((other.status, other.text().as_str()), (500, "unknown Nomad server nobody.global"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_can_be_rotated_and_old_ones_removed() {
    let cluster = Cluster::start().await;
    let public = cluster.get("/.well-known/jwks.json").await;
    assert_eq!(public.json()["keys"].as_array().unwrap().len(), 1);
    assert_eq!(public.json()["keys"][0]["kty"], "OKP");
    let old = cluster.get("/v1/operator/keyring/keys").await;
    assert!(old.index() > 0);
    let old = old.json()[0]["KeyID"].as_str().unwrap().to_string();
    let made = cluster.put("/v1/operator/keyring/rotate", json!({})).await;
    assert!(made.index() > 0);
    let active = cluster
        .send("DELETE", &format!("/v1/operator/keyring/key/{}", made.json()["Key"]["KeyID"].as_str().unwrap()), None)
        .await;
    assert_eq!(active.status, 500);
    assert_eq!(cluster.send("DELETE", &format!("/v1/operator/keyring/key/{old}?force=true"), None).await.status, 200);
    assert_eq!(cluster.get("/v1/operator/keyring/keys").await.json().as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_change_eligibility_drain_and_go() {
    let cluster = Cluster::with_node().await;
    let node = cluster.get("/v1/nodes").await.json()[0]["ID"].as_str().unwrap().to_string();
    let change = |path: &str, body: Value| {
        let (path, cluster) = (format!("/v1/node/{node}/{path}"), &cluster);
        async move { cluster.put(&path, body).await }
    };
    let off = change("eligibility", json!({"Eligibility": "ineligible"})).await;
    assert_eq!((off.status, off.json()["EvalIDs"].is_null()), (200, true), "{}", off.text());
    assert_eq!(cluster.get(&format!("/v1/node/{node}")).await.json()["SchedulingEligibility"], "ineligible");
    let bad = change("eligibility", json!({"Eligibility": "maybe"})).await;
    assert_eq!((bad.status, bad.text().as_str()), (500, "invalid scheduling eligibility \"maybe\""));
    let drain = change("drain", json!({"DrainSpec": {"Deadline": 600_000_000_000_i64}, "Meta": {"why": "x"}})).await;
    assert_eq!(drain.status, 200, "{}", drain.text());
    assert!(drain.json()["NodeModifyIndex"].as_u64() > Some(0));
    let cancelled = change("drain", json!({"DrainSpec": null, "MarkEligible": true})).await;
    assert_eq!(cancelled.status, 200);
    assert_eq!(change("evaluate", json!({})).await.json()["NumNodes"], 1);
    assert_eq!(cluster.get("/v1/node/nope/allocations").await.json(), json!([]));
    assert_eq!(change("purge", json!({})).await.status, 200);
    assert_eq!(cluster.get(&format!("/v1/node/{node}")).await.status, 404);
    let unknown = cluster.put("/v1/node/8e231cf4-ca48-43ff-b694-5801e69e22fa/evaluate", json!({})).await;
    assert!(unknown.text().contains("not found"));
}
