//! Variables, suggestions, known faults of the peer.

use herdsman_jobspec::{Diagnostics, Inputs, NoHost, Parsed, parse};
use serde_json::json;

fn read(text: &str) -> Result<Parsed, Diagnostics> {
    parse("x.nomad.hcl", text, &Inputs::default(), &NoHost)
}

fn with(text: &str, inputs: &Inputs) -> Result<Parsed, Diagnostics> {
    parse("x.nomad.hcl", text, inputs, &NoHost)
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

const ONE: &str = "variable \"a\" { default = \"default\" }\njob \"x\" {\n  meta {\n    a = var.a\n  }\n}\n";

#[test]
fn later_sources_of_a_variable_win() {
    let mut inputs = Inputs { strict: true, ..Inputs::default() };
    let value = |inputs: &Inputs| with(ONE, inputs).expect("a job").job["Meta"]["a"].clone();
    assert_eq!(value(&inputs), "default");
    inputs.env.push(pair("a", "env"));
    inputs.env.push(pair("nobody", "declared"));
    assert_eq!(value(&inputs), "env");
    inputs.files.push(pair("one.hcl", "a = \"one\""));
    inputs.files.push(pair("two.json", "{\"a\": \"two\"}"));
    assert_eq!(value(&inputs), "two");
    inputs.flags.push(pair("a", "flag"));
    inputs.flags.push(pair("a", "last"));
    assert_eq!(value(&inputs), "last");
}

#[test]
fn values_nobody_declared_are_errors_or_warnings() {
    let mut inputs = Inputs { flags: vec![pair("ghost", "1")], ..Inputs::default() };
    assert_eq!(with(ONE, &inputs).expect("not strict").warnings.len(), 1);
    inputs.strict = true;
    let text = with(ONE, &inputs).expect_err("strict").compact();
    assert!(
        text.starts_with("<nil>: Undefined -var variable; A \"ghost\" variable was passed in the command line"),
        "{text}"
    );
    inputs.flags.clear();
    inputs.files.push(pair("v.hcl", "\nghost = 1\n"));
    let text = with(ONE, &inputs).expect_err("strict").compact();
    assert!(text.starts_with("v.hcl:2,1-6: Undefined variable;"), "{text}");
    inputs.files = vec![pair("v.hcl", "variable \"a\" {}\n")];
    assert!(
        with(ONE, &inputs).expect_err("a declaration").compact().contains("Variable declaration in a variable file")
    );
}

#[test]
fn values_given_as_text_follow_the_type() {
    let text = "variable \"n\" { type = number }\nvariable \"l\" { type = list(string) }\nvariable \"u\" {}\njob \"x\" {\n  \
                priority = var.n\n  datacenters = var.l\n  type = var.u\n}\n";
    let inputs =
        Inputs { flags: vec![pair("n", "7"), pair("l", "[\"a\", \"b\"]"), pair("u", "[1]")], ..Inputs::default() };
    let job = with(text, &inputs).expect("a job").job;
    assert_eq!((&job["Priority"], &job["Datacenters"], &job["Type"]), (&json!(7), &json!(["a", "b"]), &json!("[1]")));
    let inputs = Inputs { flags: vec![pair("n", "x"), pair("l", "[\"a\""), pair("u", "")], ..Inputs::default() };
    let messages = with(text, &inputs).expect_err("unsuitable values");
    assert!(messages.compact().contains("-var n:1,1-2: Invalid value for variable"), "{}", messages.compact());
    assert!(messages.compact().contains("-var l:1,"), "{}", messages.compact());
}

#[test]
fn all_faults_are_reported_at_once() {
    let text = "job \"x\" {\n  typ = \"batch\"\n  priority = \"high\"\n  group \"g\" {\n    count = 1.5\n    tusk \"t\" {}\n    task \"t\" {\n      \
                driver = uper(\"a\")\n      env {\n        A = null\n        B = [1]\n      }\n    }\n  }\n}\n";
    let messages = read(text).expect_err("many faults");
    let lines: Vec<usize> = messages.iter().filter_map(|m| m.position()).map(|p| p.line).collect();
    assert_eq!(lines, [2, 3, 5, 6, 8, 10, 11], "{}", messages.compact());
    assert!(messages.render().contains("Did you mean \"type\"?"));
    assert!(messages.render().contains("3 |   priority = \"high\"\n  |               ^^^^\n"), "{}", messages.render());
}

#[test]
fn syntax_faults_are_reported_at_once() {
    let text =
        "job \"x\" {\n  type = \n  priority = 5,\n  meta = { a = 1 b = 2 }\n  name = \"ok\"\n  region = [1 2]\n}\n";
    let messages = read(text).expect_err("many faults");
    let lines: Vec<usize> = messages.iter().filter_map(|m| m.position()).map(|p| p.line).collect();
    assert_eq!(lines, [2, 3, 4, 6], "{}", messages.compact());
}

#[test]
fn every_part_has_its_place() {
    let parsed =
        read("job \"x\" {\n  group \"g\" {\n    count = 2\n    task \"t\" {\n      driver = \"exec\"\n    }\n  }\n}\n")
            .expect("a job");
    let line = |pointer: &str| parsed.span(pointer).map(|s| parsed.source.position(s.start).line);
    assert_eq!(line("/TaskGroups/0/Count"), Some(3));
    assert_eq!(line("/TaskGroups/0/Tasks/0/Driver"), Some(5));
    assert_eq!(line("/TaskGroups/0/Tasks/0/KillTimeout"), Some(4), "what was not written points at its block");
    assert_eq!(line("/Nothing"), Some(1));
}

#[test]
fn what_is_hardly_meant_is_warned_about() {
    let parsed = read("job \"x\" {\n  affinity {\n    weight = 300\n  }\n}\n").expect("a job");
    assert_eq!(parsed.job.pointer("/Affinities/0/Weight"), Some(&json!(44)));
    assert!(parsed.warnings[0].compact().starts_with("x.nomad.hcl:3,14-17: Number out of range; 300"));
    let parsed = read(
        "job \"x\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"docker\"\n      config {\n        dynamic \
                       \"mount\" {\n          for_each = []\n          content {}\n        }\n      }\n    }\n  }\n}\n",
    )
    .expect("a job");
    assert_eq!(parsed.warnings.len(), 1);
    assert_eq!(parsed.warnings[0].summary, "Dynamic block is not expanded");
}

#[test]
fn a_task_gets_each_secret_once() {
    let secret = |name: &str| format!("secret \"{name}\" {{\n  provider = \"nomad\"\n  path = \"{name}\"\n}}\n");
    let text = format!(
        "job \"x\" {{\n{}group \"g\" {{\n{}task \"t\" {{\n{}{}}}\n}}\n}}\n",
        secret("job"),
        secret("group"),
        secret("own"),
        secret("job").replace("path = \"job\"", "path = \"closest\"")
    );
    let job = read(&text).expect("a job").job;
    let secrets = job["TaskGroups"][0]["Tasks"][0]["Secrets"].as_array().expect("secrets").clone();
    let names: Vec<_> = secrets.iter().map(|s| (s["Name"].as_str(), s["Path"].as_str())).collect();
    assert_eq!(names, [(Some("own"), Some("own")), (Some("job"), Some("closest")), (Some("group"), Some("group"))]);
}

#[test]
fn nomad_12513_validation_without_condition_is_an_error_with_a_place() {
    let text = "variable \"v\" {\n  default = 1\n  validation {\n    error_message = \"No.\"\n  }\n}\njob \"x\" {}\n";
    let messages = read(text).expect_err("no condition");
    assert_eq!(
        messages.compact(),
        "x.nomad.hcl:3,14-14: Missing required argument; The argument \"condition\" is required, but no definition was found."
    );
}

#[test]
fn nomad_9871_the_iterator_of_a_dynamic_group_is_known_in_deep_fields() {
    let text = "job \"x\" {\n  dynamic \"group\" {\n    for_each = [\"a\", \"b\"]\n    labels = [group.value]\n    content {\n      task \
                \"t\" {\n        driver = \"docker\"\n        config {\n          args = [\"${group.key}-${group.value}\"]\n          \
                mount {\n            source = group.value\n          }\n        }\n        env {\n          G = group.value\n        \
                }\n        template {\n          data = group.value\n        }\n      }\n    }\n  }\n}\n";
    let job = read(text).expect("a job").job;
    for (i, name) in ["a", "b"].iter().enumerate() {
        let task = &job["TaskGroups"][i]["Tasks"][0];
        assert_eq!(task["Config"]["args"], json!([format!("{i}-{name}")]));
        assert_eq!(task["Config"]["mount"], json!([{ "source": name }]));
        assert_eq!(task["Env"]["G"], *name);
        assert_eq!(task["Templates"][0]["EmbeddedTmpl"], *name);
    }
}

#[test]
fn nomad_10511_negative_cores_reach_validation_with_their_place() {
    let text = "job \"x\" {\n  group \"g\" {\n    task \"t\" {\n      resources {\n        cores = -1\n      }\n    }\n  }\n}\n";
    let parsed = read(text).expect("validation is another step");
    let pointer = "/TaskGroups/0/Tasks/0/Resources/Cores";
    assert_eq!(parsed.job.pointer(pointer), Some(&json!(-1)));
    let message = parsed.error_at(pointer, "Invalid cores", "cores must not be negative");
    assert_eq!(message.compact(), "x.nomad.hcl:5,9-19: Invalid cores; cores must not be negative");
}

#[test]
fn files_of_any_content_can_be_read() {
    let text = "id = \"v\"\nn = 2\nm = { a = 1 }\ncapability {\n  mode = \"x\"\n}\nrule \"ns\" \"*\" {\n  p = [true, null]\n}\n";
    let document = herdsman_jobspec::document("v.hcl", text, Default::default(), &NoHost).expect("a document");
    assert_eq!(
        document.value,
        json!({"id": "v", "n": 2, "m": {"a": 1}, "capability": [{"mode": "x"}], "rule": [{"ns": [{"*": [{"p": [true, null]}]}]}]})
    );
    assert_eq!(document.spans.get("/capability/0/mode").map(|s| document.source.position(s.start).line), Some(5));
    assert!(herdsman_jobspec::document("v.hcl", "a = upper([])\n", Default::default(), &NoHost).is_err());
}

#[test]
fn old_configuration_files_can_be_read() {
    use herdsman_jobspec::hcl::{BodyKind, Options, parse_native};
    let source = herdsman_jobspec::Source::new(
        "a.hcl",
        "\"data_dir\" = \"${x}\"\nserver { enabled = true }\nclient {\n  \"meta\" {\n    \"a.b\" = 1\n  }\n}\n",
    );
    let file = parse_native(&source, Options { lenient: true }).expect("an old file");
    let BodyKind::Native { attributes, blocks } = &file.body.kind else { panic!("native syntax") };
    assert_eq!((&*attributes[0].name.name, blocks.len()), ("data_dir", 2));
}

/// The meta value an expression gives.
fn meta(expression: &str) -> String {
    let text = format!("job \"x\" {{\n  meta {{\n    r = {expression}\n  }}\n}}\n");
    match read(&text) {
        Ok(parsed) => parsed.job["Meta"]["r"].as_str().expect("a text").to_owned(),
        Err(messages) => panic!("{expression}: {}", messages.compact()),
    }
}

#[test]
fn the_syntax_has_room_for_line_breaks_comments_and_blanks() {
    for (expression, wanted) in [
        ("join(\",\", [\n  1, # one\n  2, // two\n  /* three */ 3,\n])", "1,2,3"),
        ("join(\n  \",\",\n  [\"a\",\n\"b\"],\n)", "a,b"),
        ("jsonencode({\n  a = 1\n  # c\n  b : 2, c = 3 // d\n\n})", "{\"a\":1,\"b\":2,\"c\":3}"),
        ("jsonencode({ (\"k\") = 1, \"${\"t\"}\" = 2 })", "{\"k\":1,\"t\":2}"),
        ("(\n  true\n  ? \"y\"\n  : \"n\"\n)", "y"),
        ("join(\",\", [\n  for x in [1, 2, 3] :\n  x * 2\n  if x > 1\n])", "4,6"),
        ("join(\"|\", [<<EOT\na\nEOT\n, \"b\"])", "a\n|b"),
        ("[1, 2] [1]", "2"),
        ("1 - -1", "2"),
        ("!true || true", "true"),
        ("\"100% $ $$ %% \\u0041\"", "100% $ $$ %% A"),
        ("\"a %{ if 1 > 0 ~}  b %{~ endif }\"", "a b"),
        ("{ a = [{ b = 7 }] }[\"a\"][0].b", "7"),
        ("[{ a = [1, 2] }, { a = [3] }][*].a[0] == [1, 3]", "true"),
        ("max([1, 5]...)", "5"),
        ("\"${attr.kernel.name}\"", "${attr.kernel.name}"),
        ("\"${meta[\"a.b\"]}\"", "${meta[\"a.b\"]}"),
    ] {
        assert_eq!(meta(expression), wanted, "{expression}");
    }
}

#[test]
fn files_with_other_line_ends_read_the_same() {
    for (name, text) in crate::files("jobspec", ".nomad.hcl") {
        if text.contains("<<") || text.starts_with('{') {
            continue;
        }
        let plain = read(&text);
        let other = read(&format!("\u{feff}{}", text.replace('\n', "\r\n")));
        match (plain, other) {
            (Ok(plain), Ok(other)) => assert_eq!(plain.job, other.job, "{name}"),
            (Err(_), Err(_)) => {}
            (plain, other) => panic!("{name}: {:?} and {:?}", plain.err(), other.err()),
        }
    }
    let text = "job \"x\" {\r\n  name = <<-EOT\r\n    a\r\n  EOT\r\n}\r\n";
    assert_eq!(read(text).expect("a job").job["Name"], "a\r\n");
}

#[test]
fn the_json_syntax_means_the_same() {
    let json = r#" {
      "variable": {"n": {"type": "number", "default": 2}, "l": {"type": "list(string)", "default": ["a", "b"]}},
      "locals": {"x": "${var.n + 1}"},
      "job": {"j": {
        "//": "a comment",
        "priority": "${local.x}",
        "dynamic": {"group": {"for_each": "${var.l}", "labels": ["g-${group.value}"], "content": {
          "count": 1,
          "task": {"t": {
            "driver": "docker", "config": {"image": "${NOMAD_META_image}", "mount": [{"type": "bind"}], "labels": {"a": 1}},
            "env": {"A": 1, "B": "${group.key}"}, "template": [{"data": "x"}, {"data": "y"}]
          }}
        }}}
      }}
    }"#;
    let native = "variable \"n\" {\n  type = number\n  default = 2\n}\nvariable \"l\" {\n  type = list(string)\n  default = [\"a\", \"b\"]\n}\nlocals {\n  x = var.n + 1\n}\njob \"j\" {\n  priority = local.x\n  dynamic \"group\" {\n    for_each = var.l\n    labels = [\"g-${group.value}\"]\n    content {\n      count = 1\n      task \"t\" {\n        driver = \"docker\"\n        config {\n          image = \"${NOMAD_META_image}\"\n          mount {\n            type = \"bind\"\n          }\n          labels {\n            a = 1\n          }\n        }\n        env {\n          A = 1\n          B = group.key\n        }\n        template {\n          data = \"x\"\n        }\n        template {\n          data = \"y\"\n        }\n      }\n    }\n  }\n}\n";
    let from_json = read(json).unwrap_or_else(|e| panic!("{}", e.compact()));
    let from_native = read(native).unwrap_or_else(|e| panic!("{}", e.compact()));
    assert_eq!(from_json.job, from_native.job);
    let messages = read("{\"job\": {\"j\": {\n  \"prioritty\": 5,\n  \"group\": 7\n}}}").expect_err("two faults");
    let lines: Vec<_> = messages.iter().filter_map(|m| m.position()).map(|p| p.line).collect();
    assert_eq!(lines, [2, 3], "{}", messages.compact());
}

#[test]
fn a_fault_of_a_variable_is_reported_once() {
    let text = "variable \"a\" {}\nvariable \"b\" { type = nope }\nlocals {\n  c = upper([])\n}\njob \"x\" {\n  name = \"${var.a}${var.b}${local.c}\"\n}\n";
    let messages = read(text).expect_err("three faults");
    let lines: Vec<_> = messages.iter().filter_map(|m| m.position()).map(|p| p.line).collect();
    assert_eq!(lines, [1, 2, 4], "{}", messages.compact());
}

#[test]
fn locals_in_a_circle_are_named_once() {
    let text = "locals {\n  first = 1\n  b = \"x${local.c}\"\n  a = [local.first, upper(local.b)]\n  c = local.a\n  user = local.c\n  alone = local.alone\n}\njob \"x\" {\n  name = local.user\n}\n";
    let messages = read(text).expect_err("two cycles");
    let found: Vec<_> = messages
        .iter()
        .map(|m| (m.summary.as_str(), m.position().map(|p| (p.line, p.column)), m.detail.split(". ").next()))
        .collect();
    let circle = "The locals refer to each other in a circle: ";
    let (three, one) = (format!("{circle}a -> b -> c -> a"), format!("{circle}alone -> alone"));
    assert_eq!(
        found,
        [
            ("Circular reference", Some((4, 27)), Some(three.as_str())),
            ("Circular reference", Some((7, 11)), Some(one.as_str())),
        ],
        "{}",
        messages.render()
    );
}

#[test]
fn a_cycle_of_many_locals_is_named_in_short() {
    let mut text = String::from("locals {\n");
    for n in 0..100 {
        text.push_str(&format!("  l{n} = local.l{}\n", (n + 1) % 100));
    }
    text.push_str("}\njob \"x\" {}\n");
    let messages = read(&text).expect_err("a cycle");
    assert_eq!(messages.iter().count(), 1);
    assert!(messages.iter().all(|m| m.detail.contains(" -> l19 -> (80 more) -> l0.")), "{}", messages.render());
}

#[test]
fn a_misspelt_var_is_warned_about() {
    let parsed =
        read("job \"x\" {\n  meta {\n    a = \"${vra.x}\"\n    b = locals.y\n    c = attr.z\n    d = vars\n  }\n}\n")
            .expect("a job");
    assert_eq!(parsed.job["Meta"]["a"], "${vra.x}");
    let lines: Vec<_> = parsed.warnings.iter().filter_map(|w| w.position()).map(|p| p.line).collect();
    assert_eq!(lines, [3, 4]);
    assert!(parsed.warnings[0].detail.ends_with("Did you mean \"var\"?"));
}

#[test]
fn what_the_peer_does_not_know_is_listed() {
    let parsed = read("job \"x\" {\n  group \"g\" {\n    task \"t\" {\n      lifecycle {\n        hook = \"poststop\"\n        when = \"failure\"\n      }\n    }\n  }\n}\n").expect("a job");
    let ours: Vec<_> = parsed.extensions.iter().map(|e| e.path.as_str()).collect();
    assert_eq!(ours, ["job.group.task.lifecycle.when"]);
    assert_eq!(parsed.job.pointer("/TaskGroups/0/Tasks/0/Lifecycle/When"), Some(&json!("failure")));
}

#[test]
fn short_forms_of_constraints_mean_their_operator() {
    let operator = |line: &str| {
        let job = read(&format!("job \"x\" {{\n  constraint {{\n    attribute = \"a\"\n    {line}\n  }}\n}}\n"))
            .expect("a job")
            .job;
        let part = |name: &str| job["Constraints"][0][name].as_str().unwrap_or("").to_owned();
        (part("LTarget"), part("Operand"), part("RTarget"))
    };
    let is = |l: &str, o: &str, r: &str| (l.to_owned(), o.to_owned(), r.to_owned());
    assert_eq!(operator("is_set = true"), is("a", "is_set", ""));
    assert_eq!(operator("is_set = false"), is("a", "is_not_set", ""));
    assert_eq!(operator("is_not_set = true"), is("a", "is_not_set", ""));
    assert_eq!(operator("set_contains_all = \"x,y\""), is("a", "set_contains_all", "x,y"));
    assert_eq!(operator("set_contains_any = \"x,y\""), is("a", "set_contains_any", "x,y"));
    assert_eq!(operator("distinct_property = \"b\""), is("b", "distinct_property", ""));
    assert_eq!(operator("distinct_hosts = false"), is("a", "distinct_hosts", "false"));
}
