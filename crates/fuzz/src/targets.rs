//! The readers, and what they start from.

use herdsman_expr::cron::{Cron, Zone};
use herdsman_expr::filter::Filter;
use herdsman_expr::version::{Scheme, Version, VersionConstraint};
use herdsman_jobspec::{Inputs, NoHost, Source, hcl};
use herdsman_template::{Options, Template};
use serde_json::{Value, json};

/// A reader.
pub struct Target {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Texts to start from.
    pub seeds: &'static [&'static str],
    /// Words of the language.
    pub tokens: &'static [&'static str],
    /// Reads a text; in a word or two, what came of it.
    pub read: fn(&str) -> String,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "job", seeds: JOBS, tokens: HCL_TOKENS, read: job },
    Target { name: "job-json", seeds: JSON_JOBS, tokens: JSON_TOKENS, read: job },
    Target { name: "format", seeds: JOBS, tokens: HCL_TOKENS, read: format_job },
    Target { name: "config", seeds: CONFIGS, tokens: HCL_TOKENS, read: config },
    Target { name: "spec", seeds: JSON_SPECS, tokens: JSON_TOKENS, read: spec },
    Target { name: "filter", seeds: FILTERS, tokens: FILTER_TOKENS, read: filter },
    Target { name: "cron", seeds: CRONS, tokens: CRON_TOKENS, read: cron },
    Target { name: "duration", seeds: DURATIONS, tokens: DURATION_TOKENS, read: duration },
    Target { name: "version", seeds: VERSIONS, tokens: VERSION_TOKENS, read: version },
    Target { name: "template", seeds: TEMPLATES, tokens: TEMPLATE_TOKENS, read: template },
];

/// The reader of this name.
pub fn named(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

const JOBS: &[&str] = &[
    include_str!("../../../examples/service.nomad.hcl"),
    include_str!("../../../examples/lifecycle.nomad.hcl"),
    "variable \"n\" {\n  type = map(object({ a = optional(number, 1) }))\n  default = {}\n}\nlocals {\n  a = { for k, v in var.n : k => v.a if v != null }\n  b = [for x in range(3) : format(\"%03d\", x)]...\n}\njob \"x\" {\n  meta {\n    a = \"${local.a[*].b}%{ if true ~}x%{ else }y%{ endif }\"\n    b = <<-E\n      text ${upper(\"a\")} $${b}\n    E\n  }\n  dynamic \"group\" {\n    for_each = [\"a\"]\n    labels = [group.value]\n    content {\n      task \"t\" {\n        driver = \"exec\"\n        config { command = \"true\" }\n      }\n    }\n  }\n}\n",
];
const HCL_TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "${",
    "%{",
    "~}",
    "$${",
    "\"",
    "<<E\n",
    "<<-E\n",
    "E\n",
    "=",
    "==",
    "...",
    "=>",
    "? ",
    " : ",
    "&&",
    "||",
    "!",
    "-",
    "*",
    ".*",
    "[*]",
    "for x in ",
    "if ",
    "else",
    "endif",
    "endfor",
    "/*",
    "*/",
    "//",
    "#",
    "job ",
    "group ",
    "task ",
    "dynamic ",
    "content ",
    "locals ",
    "variable ",
    "local.",
    "var.",
    "each.value",
    "null",
    "true",
    "format(",
    "range(",
    "regex(",
    "jsondecode(",
    "yamldecode(",
    "pow(",
    "repeat(",
    "setproduct(",
    "merge(",
    "formatdate(",
    "cidrsubnet(",
    "\\u0000",
];
const JSON_JOBS: &[&str] = &[
    "{\"locals\":{\"a\":\"${1+1}\"},\"job\":{\"x\":{\"type\":\"batch\",\"group\":[{\"g\":{\"count\":2,\"task\":{\"t\":{\"driver\":\"exec\",\"config\":{\"command\":\"true\"}}}}}]}}}",
];
const JSON_SPECS: &[&str] = &[
    "{\"ID\":\"x\",\"Type\":\"batch\",\"Periodic\":{\"Spec\":\"* * * * *\",\"SpecType\":\"cron\"},\"TaskGroups\":[{\"Name\":\"g\",\"Count\":1,\"RestartPolicy\":{\"Interval\":1000000000,\"Attempts\":1,\"Mode\":\"fail\"},\"Tasks\":[{\"Name\":\"t\",\"Driver\":\"exec\",\"Config\":{\"command\":\"true\"},\"Resources\":{\"CPU\":100,\"MemoryMB\":10}}]}]}",
];
const JSON_TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "{\"a\":",
    "null",
    "true",
    "1e9",
    "-",
    "\\u0000",
    "\\ud800",
    "\"job\":",
    "\"group\":",
    "\"task\":",
    "\"TaskGroups\":",
    "\"Count\":",
    "\"Tasks\":",
    "\"Name\":",
    "\"${",
    "}\"",
];
const CONFIGS: &[&str] = &[
    "data_dir = \"/tmp/x\"\nports {\n  http = 4646\n}\nserver {\n  enabled = true\n}\nclient {\n  host_volume \"a\" {\n    path = \"/a\"\n  }\n  meta { a = \"b\" }\n}\nplugin \"docker\" { config { volumes { enabled = true } } }\n",
];
const FILTERS: &[&str] = &[
    "Name == \"a\" and (Status in [\"b\"] or not Meta.k is empty)",
    "Tags contains `x` or any Tags as t { t matches \"^a.*\" }",
];
const FILTER_TOKENS: &[&str] = &[
    "(",
    ")",
    "not ",
    " and ",
    " or ",
    " in ",
    " is empty",
    " is not empty",
    " contains ",
    " matches ",
    "==",
    "!=",
    "any ",
    "all ",
    " as ",
    "{",
    "}",
    "\"",
    "`",
    "Name",
    ".",
    "[",
    "]",
    "/",
];
const CRONS: &[&str] =
    &["*/5 0-23 1,15 * MON-FRI", "@every 1h", "@daily", "0 0 29 2 * 2096", "0 30 2 * * * ?", "0 0 L * 5#3"];
const CRON_TOKENS: &[&str] = &["*", "/", "-", ",", "L", "W", "#", "?", "@", "MON", "FEB", "59", "2099", " "];
const DURATIONS: &[&str] = &["1h2m3.5s", "-1.5ms", "9223372036854775807ns", "1us", "0"];
const DURATION_TOKENS: &[&str] = &["h", "m", "s", "ms", "us", "ns", "\u{b5}s", ".", "-", "+", "d"];
const VERSIONS: &[&str] = &[">= 1.2.3-beta.1+build, < 2", "~> 1.2", "!= 1.0.0"];
const VERSION_TOKENS: &[&str] = &[">=", "<=", "~>", "!=", "=", ",", ".", "-", "+", "v", "beta", "0"];
const TEMPLATES: &[&str] = &[
    "{{ range $i, $e := .list }}{{ if eq $i 1 }}{{ $e | printf \"%05.2f\" }}{{ else }}x{{ end }}{{ end }}",
    "{{- define \"a\" }}{{ template \"a\" . }}{{ end -}}{{ with .map }}{{ .k }}{{ end }}{{/* c */}}",
    "{{ printf \"%[2]*.[1]*f %+v %q %x\" 3 9 1.5 .map \"a\" }}{{ index .list 1 }}{{ slice \"abc\" 1 2 }}",
];
const TEMPLATE_TOKENS: &[&str] = &[
    "{{",
    "}}",
    "{{-",
    "-}}",
    "{{ if . }}",
    "{{ else }}",
    "{{ end }}",
    "{{ range .list }}",
    "{{ with . }}",
    "{{ template \"a\" . }}",
    "{{ define \"a\" }}",
    "$x",
    ":=",
    "|",
    "(",
    ")",
    "`",
    "\"",
    "printf ",
    "index ",
    "slice ",
    "len ",
    "%[1]d",
    "%*d",
    "%999999999d",
    ".map",
    ".list",
    "{{ break }}",
    "{{ block \"b\" . }}",
    "0x1p-2",
    "'a'",
];

fn outcome<T, E: std::fmt::Display>(result: Result<T, E>) -> String {
    result.err().map_or_else(|| "read".to_string(), |e| e.to_string())
}

fn job(text: &str) -> String {
    match herdsman_jobspec::parse("fuzz.nomad.hcl", text, &Inputs::default(), &NoHost) {
        Ok(parsed) => submitted(parsed.job),
        Err(messages) => {
            // Positions and carets are worked out too.
            let _ = messages.render();
            messages.iter().map(|m| m.summary.as_str()).collect::<Vec<_>>().join(";")
        }
    }
}

fn format_job(text: &str) -> String {
    let source = Source::new("fuzz.hcl", text);
    match hcl::parse_native(&source, hcl::Options::default()) {
        Ok(_) => outcome(herdsman_jobspec::format("fuzz.hcl", text).map_err(|m| m.compact())),
        Err(messages) => messages.iter().map(|m| m.summary.as_str()).collect::<Vec<_>>().join(";"),
    }
}

fn config(text: &str) -> String {
    let source = Source::new("fuzz.hcl", text);
    match hcl::parse_native(&source, hcl::Options { lenient: true }) {
        Ok(_) => "read".to_string(),
        Err(messages) => messages.iter().map(|m| m.summary.as_str()).collect::<Vec<_>>().join(";"),
    }
}

fn spec(text: &str) -> String {
    match serde_json::from_str(text) {
        Ok(value) => submitted(value),
        Err(error) => error.to_string(),
    }
}

/// The way of a submitted job: full form, canonical form, typed form.
fn submitted(job: Value) -> String {
    let mut full = match herdsman_model::spec::normalize(job) {
        Ok(full) => full,
        Err(errors) => return errors.to_string(),
    };
    herdsman_model::spec::canonicalize(&mut full);
    let _ = herdsman_model::gate::gate_spec(&full);
    outcome(herdsman_model::Job::from_spec_with_words(&full))
}

fn filter(text: &str) -> String {
    let item = json!({"Name": "a", "Status": "b", "Tags": ["x", "y"], "Meta": {"k": ""}, "Count": 3});
    outcome(Filter::parse(text).and_then(|f| f.matches(&item)))
}

fn cron(text: &str) -> String {
    match Cron::parse(text) {
        Ok(cron) => cron.next_in(1_700_000_000, &Zone::utc()).is_some().to_string(),
        Err(error) => error.to_string(),
    }
}

fn duration(text: &str) -> String {
    let _ = herdsman_jobspec::duration::parse_duration(text);
    outcome(herdsman_expr::duration::parse(text))
}

fn version(text: &str) -> String {
    let (left, _) = text.split_once(' ').unwrap_or((text, ""));
    let _ = (Version::parse(left, Scheme::Loose), Version::parse(left, Scheme::Strict));
    for operator in ["version", "semver", "regexp", "set_contains"] {
        let _ = herdsman_expr::constraint::validate("${attr.a}", operator, text);
        let _ = herdsman_expr::constraint::check(operator, Some("1.2.3"), Some(text), &mut Default::default());
    }
    outcome(VersionConstraint::parse(text, Scheme::Loose))
}

fn template(text: &str) -> String {
    let data = json!({"list": [1, 2.5, "c"], "map": {"k": null}});
    outcome(Template::parse(text, Options::default()).and_then(|t| t.render(&data)))
}
