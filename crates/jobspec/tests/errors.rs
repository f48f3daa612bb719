//! What the peer's parser refuses is refused here, at the same place.

use herdsman_jobspec::{Inputs, NoHost, parse};
use serde_json::Value;

use crate::files;

/// Files whose answer differs on purpose, and why.
const EXCEPTIONS: &[(&str, &str)] =
    &[("local-cycle", "the peer says that an attribute is missing; the cycle is named here, at its first reference")];

/// Line and column a recorded message names, if it names any.
fn place(body: &str) -> Option<(usize, usize)> {
    let rest = body.strip_prefix("Failed to parse job: input.hcl:")?;
    let (line, rest) = rest.split_once(',')?;
    let (column, _) = rest.split_once('-')?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// What is different between our answer and the recorded one.
fn difference(text: &str, recorded: &Value) -> Option<String> {
    let status = recorded["parse"]["status"].as_i64();
    let body = recorded["parse"]["body"].as_str().unwrap_or("");
    match (status, parse("input.hcl", text, &Inputs::default(), &NoHost)) {
        (Some(200), Ok(_)) => None,
        (Some(200), Err(messages)) => Some(format!("refused: {}", messages.compact())),
        (_, Ok(_)) => Some(format!("accepted instead of {body}")),
        (_, Err(messages)) => {
            let summary = body.split("; ").next().and_then(|b| b.rsplit(": ").next()).unwrap_or("");
            let found = messages.iter().any(|d| {
                let at = d.position().map(|p| (p.line, p.column));
                d.summary == summary && (place(body).is_none() || place(body) == at)
            });
            (!found).then(|| format!("{}\n    instead of {body}", messages.compact()))
        }
    }
}

#[test]
fn recorded_faults_are_found_at_their_place() {
    let mut wrong = Vec::new();
    let mut count = 0;
    let texts: std::collections::BTreeMap<String, String> =
        files("errors", ".nomad.hcl").into_iter().chain(files("errors", ".nomad.json")).collect();
    for (name, recorded) in files("errors", ".result.json") {
        let Some(text) = texts.get(&name) else { panic!("no job file for {name}") };
        let recorded: Value = serde_json::from_str(&recorded).expect("a recorded answer");
        count += 1;
        let found = difference(text, &recorded);
        let excepted = EXCEPTIONS.iter().any(|(n, _)| *n == name);
        match found {
            Some(_) if excepted => {}
            None if !excepted => {}
            None => wrong.push(format!("{name}: no longer an exception")),
            Some(found) => wrong.push(format!("{name}: {found}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {count} differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 200, "only {count} recorded faults");
}
