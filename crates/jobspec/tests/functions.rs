//! Every recorded function call gives the recorded result.

use std::collections::BTreeMap;

use herdsman_jobspec::{Files, Host, Inputs, parse};
use serde_json::Value;

use crate::goldens_dir;

/// Rows whose result or kind of error differs on purpose, and why.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Errors of the same kind whose words differ, and why.
const OWN_WORDS: &[(&str, &str)] = &[
    (r#"indent(-1, "a\nb")"#, "the peer reports a panic of its own code"),
    ("log(-1, 2)", "the peer reports a panic of its own code"),
    ("pow(-8, 0.3)", "the peer reports a panic of its own code"),
    ("{ a = NOMAD_META_x }", "the peer calls the object a tuple"),
];

struct Desk;

impl Host for Desk {
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(0x5a);
    }
}

/// Where the files of [`Cli`] lie.
const DIRECTORY: &str = "/srv/jobs";

struct Cli(BTreeMap<&'static str, &'static str>);

impl Host for Cli {
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(0x5a);
    }

    fn files(&self) -> Option<&dyn Files> {
        Some(self)
    }
}

impl Files for Cli {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let clean = path.trim_start_matches("./");
        match self.0.get(clean) {
            Some(text) => Ok(text.as_bytes().to_vec()),
            None if clean == "sub" => Err(format!("failed to read {path}")),
            None => Err(format!("no file exists at {path}")),
        }
    }

    fn exists(&self, path: &str) -> Result<bool, String> {
        if path == "sub" {
            return Err("sub is not a regular file, but \"drwxr-xr-x\"".to_owned());
        }
        Ok(self.0.contains_key(path))
    }

    fn walk(&self, path: &str) -> Result<Vec<String>, String> {
        let prefix = if path == "." { String::new() } else { format!("{path}/") };
        Ok(self.0.keys().filter_map(|k| k.strip_prefix(&prefix)).map(str::to_owned).collect())
    }

    fn absolute(&self, path: &str) -> Result<String, String> {
        Ok(if path.starts_with('/') { path.to_owned() } else { format!("{DIRECTORY}/{path}") })
    }

    fn home(&self) -> Option<String> {
        Some("/root".to_owned())
    }
}

/// The meta value an expression gives, or the messages.
fn evaluate(expression: &str, plain: bool, cli: bool) -> Result<String, Vec<(String, String)>> {
    let value = if plain { expression.to_owned() } else { format!("jsonencode({expression})") };
    let text = format!("job \"x\" {{\n  meta {{\n    r = {value}\n  }}\n}}\n");
    let files = Cli(BTreeMap::from([("data.txt", "line1\nline2\n"), ("sub/b.txt", "b")]));
    let host: &dyn Host = if cli { &files } else { &Desk };
    match parse("input.hcl", &text, &Inputs::default(), host) {
        Ok(parsed) => Ok(parsed.job["Meta"]["r"].as_str().expect("a text").to_owned()),
        Err(messages) => Err(messages.iter().map(|d| (d.summary.clone(), d.detail.clone())).collect()),
    }
}

/// What is different between our answer and the recorded one.
fn difference(row: &[&str]) -> Option<String> {
    let [function, expression, status, recorded] = row else { return Some("not four columns".to_owned()) };
    let cli = function.contains("(CLI parser)");
    let plain = recorded.ends_with("(plain meta value)") || recorded.starts_with("Unsuitable value type");
    let answer = evaluate(expression, plain, cli);
    let recorded = recorded.trim_end_matches("(plain meta value)").trim();
    match (*status, answer) {
        ("ok", Ok(text)) => {
            let text = if plain { Value::from(text).to_string() } else { text };
            let same = match (serde_json::from_str::<Value>(&text), serde_json::from_str::<Value>(recorded)) {
                (Ok(a), Ok(b)) => a == b,
                _ => text == recorded,
            };
            (!same).then(|| format!("{text} instead of {recorded}"))
        }
        ("ok", Err(messages)) => Some(format!("{messages:?} instead of {recorded}")),
        (_, Ok(text)) => Some(format!("{text} instead of the error {recorded}")),
        (_, Err(messages)) => {
            let recorded = match cli {
                true => recorded.split(": ").skip(3).collect::<Vec<_>>().join(": "),
                false => recorded.to_owned(),
            };
            let own_words = OWN_WORDS.iter().any(|(e, _)| e == expression);
            let found = messages.iter().any(|(summary, detail)| {
                let whole = format!("{summary}; {detail}").replace('\n', " | ");
                recorded.starts_with(&whole) || (own_words && recorded.starts_with(&format!("{summary}; ")))
            });
            (!found).then(|| format!("{messages:?} instead of {recorded}"))
        }
    }
}

#[test]
fn recorded_calls_give_the_recorded_results() {
    let table = crate::read(&goldens_dir().join("functions.tsv"));
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in table.lines().skip(1) {
        let row: Vec<&str> = line.split('\t').collect();
        count += 1;
        let found = difference(&row);
        let excepted = EXCEPTIONS.iter().any(|(e, _)| row.get(1) == Some(e));
        match found {
            Some(_) if excepted => {}
            None if !excepted => {}
            None => wrong.push(format!("{}: no longer an exception", row[1])),
            Some(found) => wrong.push(format!("{}: {found}", row[1])),
        }
    }
    assert!(wrong.is_empty(), "{} of {count} differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 490, "only {count} recorded calls");
}

#[test]
fn paths_are_absolute_from_the_directory_of_the_host() {
    let absolute = |path: &str| evaluate(&format!("abspath({path:?})"), false, true);
    assert_eq!(absolute("sub/b.txt"), Ok(format!("\"{DIRECTORY}/sub/b.txt\"")));
    assert_eq!(absolute("sub/../data.txt"), Ok(format!("\"{DIRECTORY}/data.txt\"")));
}
