//! Recorded renderings, row by row, and what is ours.

use super::{Source, TaskFunctions};
use crate::{Options, Template};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

struct Recorded;

impl Source for Recorded {
    fn env(&self, name: &str) -> Option<String> {
        let known = [("NOMAD_TASK_NAME", "t"), ("NOMAD_META_color", "red"), ("GREET", "hi")];
        known.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
    }
    fn file(&self, path: &str) -> Result<String, String> {
        match path {
            "local/in" => Ok("text".into()),
            path => Err(format!("'{path}' is outside of sandbox")),
        }
    }
    fn services(&self) -> Result<Vec<Value>, String> {
        Ok(vec![json!({"Name": "env-svc", "Tags": []}), json!({"Name": "redis", "Tags": ["a", "b"]})])
    }
    fn service(&self, name: &str) -> Result<Vec<Value>, String> {
        let one = |id: &str, port: u16, tags: Value| json!({"ID": id, "Name": "redis", "Address": "127.0.0.1", "Port": port, "Tags": tags});
        Ok(if name == "redis" { vec![one("r1", 1, json!(["a"])), one("r2", 2, json!(["a", "b"]))] } else { vec![] })
    }
    fn now(&self) -> i64 {
        // 2026-12-01T04:05:06.078901234Z
        1_796_097_906_078_901_234
    }
}

fn rendered(text: &str) -> Result<String, String> {
    let functions = TaskFunctions::new(&Recorded);
    let options = Options { functions: &functions, ..Options::default() };
    let template = Template::parse(text, options).map_err(|e| format!("parse: {e}"))?;
    template.render(&Value::Null).map_err(|e| format!("execute: {e}"))
}

/// Rows where ours is another answer on purpose, and what it holds.
const OTHERS: &[(&str, &str)] = &[
    // Nothing is waited for that can never come: the error names the function.
    ("{{ key \"a/b\" }}", "key: it needs Consul"),
    ("{{ service \"web\" }}", "service: it needs Consul"),
    ("{{ range ls \"x\" }}{{ end }}", "ls: it needs Consul"),
    ("{{ datacenters }}", "datacenters: it needs Consul"),
    ("{{ secret \"a\" }}", "secret: it needs Vault"),
    ("{{ with secret \"secret/x\" }}{{ .Data.a }}{{ end }}", "secret: it needs Vault"),
    ("{{ pkiCert \"x\" }}", "pkiCert: it needs Vault"),
    ("{{ caRoots }}", "caRoots: it needs Consul"),
    ("{{ peerings }}", "peerings: it needs Consul"),
    ("{{ connect \"x\" }}", "connect: it needs Consul"),
    ("{{ keyOrDefault \"a\" \"b\" }}", "keyOrDefault: it needs Consul"),
    ("{{ sockaddr \"GetPrivateIP\" | len }}", "sockaddr: it is not offered here"),
    ("{{ spew_sdump \"x\" }}", "spew_sdump: it is not offered here"),
    // Methods with arguments.
    ("{{ scratch.Set \"k\" \"v\" }}{{ scratch.Get \"k\" }}{{ if scratch.Key \"k\" }}has{{ end }}", "scratch"),
    (
        "{{ scratch.MapSet \"m\" \"a\" 1 }}{{ scratch.MapSet \"m\" \"b\" 2 }}{{ range scratch.MapValues \"m\" }}{{ . }}{{ end }}",
        "scratch",
    ),
    // Lists are lists, whatever function made them.
    (
        "{{ containsAny (split \",\" \"a,z\") (split \",\" \"a,b\") }} {{ containsAll (split \",\" \"a\") (split \",\" \"a,b\") }} {{ containsNone (split \",\" \"q\") (split \",\" \"a,b\") }}",
        "true true true",
    ),
    // Instances are objects: a field that is not there is no error. The file does not exist here.
    (
        "{{ range nomadService \"redis\" }}{{ .Name }} {{ .Tags }} {{ .JobID }} {{ .Datacenter }} {{ .Namespace }};{{ end }}",
        "redis [a]",
    ),
    ("{{ file \"alloc-dir-relative\" }}", "error calling file"),
    // The same fault, quoted shorter, and found later.
    ("{{ writeToFile \"/tmp/x\" \"u\" \"g\" \"0644\" \"c\" }}", "error calling writeToFile: function is disabled"),
    ("{{ unclosed", "parse: template: :1: unclosed action"),
    // The same fault, placed at the whole call.
    ("{{ toLower 5 }}", "expected string; found 5"),
];

#[test]
fn recorded_renderings() {
    let shared = std::env::var_os("HERDSMAN_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = shared.join("compat/goldens/runtime/templates.tsv");
    let table = std::fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{}: {e}; set HERDSMAN_SHARED to the directory with the goldens", path.display()));
    let others: BTreeMap<_, _> = OTHERS.iter().copied().collect();
    let (mut wrong, mut rows) = (Vec::new(), 0);
    for row in table.lines().skip(1) {
        let cells: Vec<&str> = row.split('\t').collect();
        let [text, outcome, wanted] = cells[..] else { panic!("{row}") };
        rows += 1;
        let text = &text.replace("\\t", "\t");
        let got = rendered(text);
        if text.contains("nomadVar") {
            assert!(got.as_ref().is_err_and(|e| e.contains("variables are not read by nodes")), "{text}: {got:?}");
            continue;
        }
        if let Some(part) = others.get(text.as_str()) {
            let whole = got.clone().unwrap_or_else(|e| e);
            if !whole.contains(part) {
                wrong.push(format!("{text}\n  wanted {part}\n  got {got:?}"));
            }
            continue;
        }
        let wanted = match outcome {
            "rendered" => Ok(serde_json::from_str::<String>(wanted).unwrap_or_else(|e| panic!("{row}: {e}"))),
            _ => {
                Err(wanted.split(" || ").next().unwrap().trim_start_matches("Template failed: (dynamic): ").to_string())
            }
        };
        if got != wanted {
            wrong.push(format!("{text}\n  wanted {wanted:?}\n  got    {got:?}"));
        }
    }
    assert!(rows > 90, "only {rows} rows");
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn times_follow_layouts() {
    for (layout, wanted) in [
        ("2006-01-02T15:04:05Z07:00", "2026-12-01T04:05:06Z"),
        ("Mon Jan _2 15:04:05.000 MST 2006", "Tue Dec  1 04:05:06.078 UTC 2026"),
        ("Monday, 02-Jan-06 3:04PM -0700", "Tuesday, 01-Dec-26 4:05AM +0000"),
        ("unix", "1796097906"),
    ] {
        assert_eq!(rendered(&format!("{{{{ timestamp {layout:?} }}}}")).unwrap(), wanted, "{layout}");
    }
}

#[test]
fn limits_end_what_would_not() {
    for text in [
        "{{ loop 99999999 }}",
        "{{ indent 99999999 \"a\\nb\\nc\" }}",
        "{{ parseYAML (printf \"%1000s\" \"[\" | replaceAll \" \" \"[\") }}",
        "{{ \"a: &x 1\\nb: *x\" | parseYAML }}",
        "{{ explodeMap (parseJSON (printf \"{%q:1}\" (\"a/\" | replaceAll \"a\" (printf \"%200s\" \"\" | replaceAll \" \" \"b/\")))) }}",
    ] {
        assert!(rendered(text).is_err(), "{text}");
    }
}

#[test]
fn yaml_and_toml_are_written_as_read() {
    let yaml = "a:\n  b:\n  - c: 1\n    d: \"true\"\n  - x\ne: {}";
    assert_eq!(rendered(&format!("{{{{ {yaml:?} | parseYAML | toYAML }}}}")).unwrap(), yaml);
    let toml = rendered("{{ parseJSON \"{\\\"a\\\":{\\\"b\\\":[1,\\\"x\\\"]},\\\"z\\\":true}\" | toTOML }}").unwrap();
    assert_eq!(toml, "z = true\n\n[a]\nb = [1.0, \"x\"]");
}
