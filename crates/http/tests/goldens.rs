//! Recorded calls of the peer, made again: refusals must be the same to the letter, answers must have the same members.

use crate::support::{Cluster, golden};
use serde_json::{Value, json};

/// Registers the jobs that the recorded calls are about.
async fn scene() -> Cluster {
    let cluster = Cluster::with_node().await;
    for number in ["072", "323", "340"] {
        let recorded = golden(number);
        let answer = again(&cluster, &recorded).await;
        assert_eq!(answer.status, 200, "{number}: {}", answer.text());
    }
    cluster
}

/// Takes out what jobs cannot have here yet: the recorded refusals are about other things.
fn bearable(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("Templates");
            fields.values_mut().for_each(bearable);
        }
        Value::Array(items) => items.iter_mut().for_each(bearable),
        _ => {}
    }
}

async fn again(cluster: &Cluster, recorded: &Value) -> crate::support::Answer {
    let mut request = recorded["request"].clone();
    bearable(&mut request);
    let body = match &request["body"] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    cluster.send(request["method"].as_str().unwrap(), request["path"].as_str().unwrap(), body).await
}

/// Refusals whose text clients match. Where ours says more, it is no row here.
const REFUSALS: &[&str] = &[
    "011", "013", "016", "019", "020", "027", "033", "036", "041", "046", "047", "050", "060", "061", "064", "066",
    "071", "084", "085", "096", "100", "101", "109", "115", "118", "124", "173", "227", "233", "234", "236", "237",
    "239", "240", "245", "248", "249", "250", "251", "255", "258", "259", "260", "261", "262", "268", "276", "277",
    "309", "328", "329", "330", "331", "332", "333", "334", "344", "346", "352", "355", "356", "357", "360", "397",
    "398", "401", "406", "409", "414", "415", "416", "427", "428", "430", "431", "447", "449", "452", "453", "454",
    "462", "473", "476", "482", "487", "488", "489", "490", "491", "492", "493", "494", "495", "502", "629",
];

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_the_same_to_the_letter() {
    let cluster = scene().await;
    // Some refusals are about the second version of a job.
    let mut second = golden("072")["request"]["body"].clone();
    bearable(&mut second);
    second["Job"]["Meta"] = json!({"owner": "team-b"});
    assert_eq!(cluster.put("/v1/jobs", second).await.status, 200);
    let mut wrong = Vec::new();
    for number in REFUSALS {
        let recorded = golden(number);
        let answer = again(&cluster, &recorded).await;
        let (status, text) = (recorded["status"].as_u64().unwrap(), recorded["body_text"].as_str().unwrap_or_default());
        if u64::from(answer.status) != status || answer.text() != text {
            wrong.push(format!("{number}: {} {:?}, not {status} {text:?}", answer.status, answer.text()));
        }
        for header in ["X-Nomad-Index", "X-Nomad-Knownleader", "X-Nomad-Lastcontact", "Content-Type"] {
            let (ours, theirs) = (answer.header(&header.to_lowercase()), recorded["headers"][header].as_str());
            let differs = if header == "X-Nomad-Index" { ours.is_some() != theirs.is_some() } else { ours != theirs };
            if differs {
                wrong.push(format!("{number}: {header} {ours:?}, not {theirs:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Members that are in one and not in the other, with their place. Maps by name or id are compared by their first member.
fn differences(ours: &Value, theirs: &Value, place: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keyed = |m: &serde_json::Map<String, Value>| {
                !m.is_empty() && m.keys().all(|k| k.chars().next().is_some_and(|c| !c.is_ascii_uppercase()))
            };
            if keyed(a) && keyed(b) && !place.is_empty() {
                if let (Some((_, x)), Some((_, y))) = (a.iter().next(), b.iter().next()) {
                    differences(x, y, &format!("{place}.*"), found);
                }
                return;
            }
            if a.is_empty() || b.is_empty() {
                return;
            }
            found.extend(b.keys().filter(|k| !a.contains_key(*k)).map(|k| format!("{place}.{k} is missing")));
            found.extend(a.keys().filter(|k| !b.contains_key(*k)).map(|k| format!("{place}.{k} is too much")));
            for (key, value) in a {
                if let Some(other) = b.get(key) {
                    differences(value, other, &format!("{place}.{key}"), found);
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if let (Some(x), Some(y)) = (a.first(), b.first()) {
                differences(x, y, &format!("{place}[]"), found);
            }
        }
        // Null stands for what is empty.
        (Value::Null, _) | (_, Value::Null) => {}
        (a, b) if std::mem::discriminant(a) != std::mem::discriminant(b) => {
            found.push(format!("{place} is {a}, not like {b}"));
        }
        _ => {}
    }
}

/// Answers with the same members as recorded: the number of the call, and what differs on purpose or by what a test
/// without running tasks can show.
const ANSWERS: &[(&str, &[&str])] = &[
    ("002", &[]),
    ("003", &[]),
    ("004", &[]),
    ("005", &[]),
    ("006", &[]),
    ("007", &[]),
    ("008", &[]),
    ("010", &[]),
    ("014", &[]),
    ("015", &[]),
    ("017", &[]),
    ("018", &[]),
    ("021", &[]),
    ("024", &[]),
    ("025", &[]),
    ("026", &[]),
    ("030", &[]),
    ("034", &[]),
    ("067", &[]),
    ("068", &[]),
    ("069", &[]),
    ("070", &[]),
    ("073", &[]),
    // The first of our list has none.
    ("074", &["[].Meta"]),
    ("075", &[]),
    ("076", &[]),
    ("079", &[]),
    ("080", &[]),
    ("081", &[]),
    ("083", &[]),
    ("086", &[]),
    ("087", &[]),
    ("090", &[]),
    ("094", &[]),
    ("095", &[]),
    ("102", &[]),
    ("105", &[]),
    ("112", &[]),
    ("113", &[]),
    ("231", &[]),
    ("243", &[]),
    ("247", &[]),
    ("265", &[]),
    ("324", &[]),
    ("342", &[]),
    ("393", &["[].Hash"]),
    ("410", &["[].Hash"]),
    ("424", &[]),
    ("425", &[]),
    ("429", &[]),
    ("432", &[]),
    ("433", &[]),
    ("434", &[]),
    ("472", &[]),
    ("499", &[]),
];

#[tokio::test(flavor = "multi_thread")]
async fn answers_have_the_same_members() {
    let cluster = scene().await;
    cluster.until("/v1/job/web/allocations", |a| a.json().as_array().is_some_and(|l| l.len() == 2)).await;
    *cluster.agent.servers.lock().unwrap() = vec![cluster.server.rpc_advertise()];
    let mut wrong = Vec::new();
    for (number, allowed) in ANSWERS {
        let mut recorded = golden(number);
        if *number == "231" {
            // What is enforced is this cluster's own index.
            let own = cluster.get("/v1/job/web").await.json()["JobModifyIndex"].clone();
            recorded["request"]["body"]["JobModifyIndex"] = own;
        }
        let answer = again(&cluster, &recorded).await;
        if Some(u64::from(answer.status)) != recorded["status"].as_u64() {
            wrong.push(format!("{number}: {} {}", answer.status, answer.text()));
            continue;
        }
        let mut found = Vec::new();
        differences(&answer.json(), &recorded["body"], "", &mut found);
        found.retain(|f| !allowed.iter().any(|a| f.starts_with(a)));
        wrong.extend(found.into_iter().map(|f| format!("{number}: {f}")));
        for header in ["X-Nomad-Index", "X-Nomad-Knownleader", "X-Nomad-Lastcontact", "Content-Type"] {
            let (ours, theirs) = (answer.header(&header.to_lowercase()), recorded["headers"][header].as_str());
            if ours.is_some() != theirs.is_some() {
                wrong.push(format!("{number}: {header} {ours:?}, not {theirs:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn job_files_are_parsed_as_recorded() {
    let cluster = Cluster::start().await;
    for number in ["063", "637", "638", "639", "641"] {
        let recorded = golden(number);
        let answer = again(&cluster, &recorded).await;
        assert_eq!(answer.status, 200, "{number}: {}", answer.text());
        assert_eq!(answer.json(), recorded["body"], "{number}");
    }
    for number in ["065", "640"] {
        let recorded = golden(number);
        let answer = again(&cluster, &recorded).await;
        assert_eq!(answer.status, 400);
        assert!(answer.text().starts_with("Failed to parse job: input.hcl:"), "{}", answer.text());
    }
    let nothing = cluster.send("POST", "/v1/jobs/parse", None).await;
    assert_eq!((nothing.status, nothing.text().as_str()), (400, "Request body is empty"));
    assert_eq!(cluster.put("/v1/jobs/parse", json!([])).await.status, 400);
}
