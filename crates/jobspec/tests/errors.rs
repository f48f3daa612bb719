//! What the peer's parser refuses is refused here, at the same place.

use herdsman_jobspec::{Inputs, NoHost, parse};
use serde_json::Value;

use crate::files;

/// Files whose answer differs on purpose, and why.
const EXCEPTIONS: &[(&str, &str)] = &[];

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

/// A shell variable in a script is the commonest fault there is; it is told of once.
#[test]
fn one_fault_in_a_heredoc_makes_no_others() {
    let text = "job \"j\" {\n  meta {\n    script = <<EOT\nS=${S:-2}\nf() { for i in $(seq ${1}); do :; done; }\nEOT\n    b = [\n  }\n}\n";
    let Err(messages) = parse("input.hcl", text, &Inputs::default(), &NoHost) else { panic!("accepted") };
    let places: Vec<_> = messages.iter().filter_map(|d| d.position().map(|p| p.line)).collect();
    assert_eq!(places, [4, 8], "{}", messages.compact());
}

#[test]
fn circular_locals_are_told_once_with_their_way() {
    let text = "locals {\n  a = local.b\n  b = \"x${local.c}\"\n  c = local.a\n  d = \"${local.a}-${local.e}\"\n  e = 1\n  f = local.f\n}\njob \"j\" {\n  name = local.a\n}\n";
    let Err(messages) = parse("input.hcl", text, &Inputs::default(), &NoHost) else { panic!("accepted") };
    let found: Vec<_> =
        messages.iter().map(|d| (d.position().map(|p| (p.line, p.column)), d.detail.as_str())).collect();
    let text = |name: &str, way: &str| {
        format!(
            "This object does not have an attribute named \"{name}\". The value needs itself: {way}. Give one of them a \
             value that needs none of the others."
        )
    };
    assert_eq!(
        found,
        [
            (Some((4, 12)), text("a", "local.a -> local.b -> local.c -> local.a").as_str()),
            (Some((7, 12)), text("f", "local.f -> local.f").as_str()),
        ]
    );
}

#[test]
fn a_circle_of_many_locals_is_named_in_short() {
    let locals: String = (0..25).map(|n| format!("  l{n:02} = local.l{:02}\n", (n + 1) % 25)).collect();
    let text = format!("locals {{\n{locals}}}\njob \"j\" {{\n}}\n");
    let Err(messages) = parse("input.hcl", &text, &Inputs::default(), &NoHost) else { panic!("accepted") };
    let details: Vec<_> = messages.iter().map(|d| d.detail.as_str()).collect();
    assert_eq!(details.len(), 1, "{details:?}");
    assert!(details[0].contains(" -> local.l19 -> (5 more) -> local.l00. Give one"), "{details:?}");
}
