//! Whatever the bytes, reading them ends, and in time.

use herdsman_jobspec::{Diagnostics, Inputs, NoHost, Parsed, hcl, parse};
use proptest::prelude::*;

use crate::files;

fn read(text: &str) -> Result<Parsed, Diagnostics> {
    parse("input.hcl", text, &Inputs::default(), &NoHost)
}

/// The text is refused with this summary.
fn refused(text: &str, summary: &str) {
    match read(text) {
        Ok(_) => panic!("accepted: {}…", text.chars().take(60).collect::<String>()),
        Err(messages) => {
            assert!(messages.iter().any(|m| m.summary == summary), "{summary} is not in\n{}", messages.compact());
        }
    }
}

/// The text, as often as a file may hold it.
fn repeated(text: &str) -> String {
    text.repeat(1_000_000 / text.len())
}

#[test]
fn nesting_has_a_limit() {
    for open in ["[", "(", "{ a = ", "-", "!", "f(", "true ? ", "true ? 1 : ", "\"${", "[for x in ", "{for x in "] {
        refused(&format!("job \"x\" {{\n  type = {}\n}}\n", repeated(open)), "Nesting too deep");
    }
    refused(&repeated("a {\n"), "Nesting too deep");
    refused(&format!("job \"x\" {{\n  type = \"{}\"\n}}\n", repeated("%{ if true }")), "Nesting too deep");
    refused(&format!("job \"x\" {{\n  type = \"{}\"\n}}\n", repeated("%{ for x in y }")), "Nesting too deep");
    refused(&format!("{{\"job\": {}", repeated("[")), "Nesting too deep");
    refused(&format!("{{\"job\": {}", repeated("{\"a\":")), "Nesting too deep");
}

#[test]
fn chains_have_a_limit() {
    for link in [" + 1", ".a", "[0]", " && true", ".*.a", "[*].a"] {
        refused(&format!("job \"x\" {{\n  type = x{}\n}}\n", repeated(link)), "Expression too complex");
    }
    let deepest = "1 + ".repeat(150) + "1";
    let parsed = read(&format!("job \"x\" {{\n  priority = {deepest}\n}}\n")).expect("a chain within the limit");
    assert_eq!(parsed.job["Priority"], 151);
}

#[test]
fn the_deepest_nesting_that_is_allowed_works() {
    let depth = hcl::MAX_NESTING - 4;
    for (open, close) in [("[", "]"), ("(", ")"), ("{ a = ", " }"), ("\"${", "}\""), ("f(", ")"), ("[for x in ", ":x]")]
    {
        let text = format!("locals {{\n  a = {}1{}\n}}\njob \"x\" {{}}\n", open.repeat(depth), close.repeat(depth));
        // Some of these fail when evaluated; what counts is that they are read.
        if let Err(messages) = read(&text) {
            assert!(messages.iter().all(|m| m.summary != "Nesting too deep"), "{}", messages.compact());
        }
    }
}

#[test]
fn sizes_have_a_limit() {
    refused(&" ".repeat(hcl::MAX_SOURCE_BYTES + 1), "File too large");
    let doubling = |n: usize, op: &str| {
        let mut text = String::from("locals {\n  a0 = \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"\n");
        for i in 0..n {
            text.push_str(&format!("  a{} = {}\n", i + 1, op.replace('@', &format!("local.a{i}"))));
        }
        text + "}\njob \"x\" {}\n"
    };
    refused(&doubling(60, "\"${@}${@}\""), "Result too large");
    refused(&doubling(60, "[@, @]"), "Result too large");
    refused(&doubling(60, "{ a = @, b = @ }"), "Result too large");
    refused(&doubling(120, "[@]"), "Result too large");
    refused(&doubling(60, "join(\"\", [@, @])"), "Error in function call");
    refused(&doubling(60, "replace(@, \"x\", @)"), "Error in function call");
    refused(&doubling(60, "jsonencode([@, @, @])"), "Error in function call");
    refused(&doubling(60, "format(\"%s%s\", @, @)"), "Error in function call");
}

#[test]
fn work_has_a_limit() {
    let nested = "[for a in range(1000) : [for b in range(1000) : [for c in range(1000) : a * b * c]]]";
    refused(&format!("locals {{\n  x = {nested}\n}}\njob \"x\" {{}}\n"), "Too much to evaluate");
    let hashes = "[for a in range(1000) : bcrypt(\"x\", 12)]";
    refused(&format!("locals {{\n  x = {hashes}\n}}\njob \"x\" {{}}\n"), "Too much to evaluate");
    for call in [
        "setproduct(range(1000), range(1000), range(1000))",
        "indent(1000000000, \"a\\nb\")",
        "format(\"%1000000000d\", 1)",
        "format(\"%.1000000000f\", 1)",
        "range(0, 1, 0.0000001)",
        "bcrypt(\"x\", 31)",
        "pow(10, 100000) + 1 == 0 ? 1 : tonumber(1)",
        "1e999999999",
        "regex_replace(\"x\", \"((((a{1000}){1000}){1000}){1000})\", \"\")",
        "yamldecode(\"a: &a [x,x,x,x,x,x,x,x]\\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\\nd: &d \
         [*c,*c,*c,*c,*c,*c,*c,*c]\\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\\ng: \
         [*f,*f,*f,*f,*f,*f,*f,*f]\\n\")",
    ] {
        assert!(read(&format!("locals {{\n  x = {call}\n}}\njob \"x\" {{}}\n")).is_err(), "{call}");
    }
}

#[test]
fn a_flood_of_faults_is_counted() {
    let many: String = (0..5_000).map(|i| format!("  nope{i} = 1\n")).collect();
    let messages = read(&format!("job \"x\" {{\n{many}}}\n")).expect_err("unknown arguments");
    assert_eq!(messages.len(), herdsman_jobspec::diag::MAX_DIAGNOSTICS);
    assert!(messages.compact().ends_with("and 4900 other diagnostic(s)"), "{}", messages.compact());
}

fn functions() -> Vec<&'static str> {
    herdsman_jobspec::eval::functions::names().filter(|n| *n != "bcrypt").collect()
}

fn samples() -> Vec<String> {
    files("jobspec", ".nomad.hcl").into_iter().chain(files("errors", ".nomad.hcl")).map(|(_, text)| text).collect()
}

/// Reads and formats; neither may panic, and what was formatted means the same.
fn survives(text: &str) {
    let parsed = read(text);
    if let Err(messages) = &parsed {
        for message in messages.iter() {
            assert!(!message.render().is_empty() && !message.compact().is_empty());
        }
    }
    if let Ok(done) = herdsman_jobspec::format("input.hcl", text) {
        let again = herdsman_jobspec::format("input.hcl", &done)
            .unwrap_or_else(|e| panic!("formatted text does not parse: {}\n{done}\nfrom\n{text}", e.compact()));
        assert_eq!(again, done, "a second pass changes the text\n{text}");
        if let Ok(parsed) = parsed {
            let same = read(&done).unwrap_or_else(|e| panic!("{}\n{done}\nfrom\n{text}", e.compact()));
            assert_eq!(parsed.job, same.job, "formatting changed the meaning of\n{text}\nto\n{done}");
        }
    }
}

#[test]
fn formatting_keeps_the_meaning_of_every_sample() {
    for text in samples() {
        survives(&text);
    }
}

const PIECES: &[&str] = &[
    "job",
    "group",
    "task",
    "\"x\"",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "=",
    "==",
    "\n",
    "\n",
    " ",
    ",",
    ".",
    "...",
    ":",
    "?",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "&&",
    "||",
    "<",
    "<=",
    "=>",
    "${",
    "%{",
    "~",
    "if",
    "else",
    "endif",
    "for",
    "in",
    "endfor",
    "\"",
    "\\",
    "$$",
    "<<EOT\n",
    "<<-EOT\n",
    "EOT\n",
    "# c\n",
    "// c\n",
    "/*",
    "*/",
    "1",
    "1.5e3",
    "null",
    "true",
    "var.a",
    "local.b",
    "attr.c",
    "count",
    "meta",
    "dynamic",
    "content",
    "for_each",
    "labels",
    "variable",
    "locals",
    "default",
    "'",
    "é",
    "\u{feff}",
    "\r\n",
    "\t",
    "upper(",
    "jsonencode(",
    "range(",
    "format(\"%s\",",
    "try(",
    "can(",
];

const ARGUMENTS: &[&str] = &[
    "null",
    "-1",
    "0",
    "-0",
    "0.5",
    "2",
    "128",
    "1e400",
    "1e-400",
    "1 / 0",
    "9223372036854775807",
    "-9223372036854775808",
    "true",
    "\"\"",
    "\"é\\n\"",
    "\"abc\"",
    "[]",
    "[\"b\", \"a\"]",
    "[1, null]",
    "[[1], []]",
    "{}",
    "{ a = 1 }",
    "{ a = [1], b = {} }",
    "convert([2, 1], set(number))",
    "convert({ a = 1 }, map(string))",
    "convert([], list(string))",
    "\"10.0.0.0/8\"",
    "\"::/0\"",
    "\"ffff::/128\"",
    "\"2024-02-29T23:59:59.999999999-23:59\"",
    "\"9999-12-31T23:59:59Z\"",
    "\"-9223372036854775808ns\"",
    "\"2562047h\"",
    "\"%s %5.3d %[3]v %-08.2f %q %#x\"",
    "\"%\"",
    "\"%[\"",
    "\"(a|\"",
    "\"[[:alpha:]]\\\\b\"",
    "\"$1 $${x}\"",
    "\"Zm9v\"",
    "\"- a: b\\n  c: [1, {d: *x}]\"",
    "\"a,b\\n\\\"1\"",
    "\"{\\\"a\\\": [1e3\"",
    "\"dns\"",
    "\"YYYY 'x\"",
    "range(5)",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_to_its_end(text in "\\PC{0,200}") {
        survives(&text);
    }

    #[test]
    fn any_call_ends(name in 0..functions().len(), picks in prop::collection::vec(0..ARGUMENTS.len(), 0..5)) {
        let arguments: Vec<&str> = picks.iter().map(|i| ARGUMENTS[*i]).collect();
        let call = format!("{}({})", functions()[name], arguments.join(", "));
        survives(&format!("locals {{\n  x = {call}\n  y = jsonencode(local.x)\n  z = yamlencode(local.x)\n}}\njob \"x\" {{}}\n"));
    }

    #[test]
    fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        survives(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_pieces_are_read_to_their_end(picks in prop::collection::vec(0..PIECES.len(), 0..80), inside in any::<bool>()) {
        let soup: String = picks.iter().filter_map(|i| PIECES.get(*i)).flat_map(|p| [*p, " "]).collect();
        survives(&if inside { format!("job \"x\" {{\n  type = {soup}\n}}\n") } else { soup });
    }

    #[test]
    fn damaged_samples_are_read_to_their_end(
        pick in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..PIECES.len(), 0usize..12), 1..6),
    ) {
        let samples = samples();
        let mut text: Vec<char> = pick.get(&samples).chars().collect();
        for (at, piece, remove) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + remove).min(text.len());
            text.splice(at..end, PIECES[piece].chars());
        }
        survives(&text.into_iter().collect::<String>());
    }
}

#[test]
fn repetition_costs_no_more_than_it_is_long() {
    // Each of these would take minutes if something were looked up by walking all that came before.
    let many: String = (0..60_000).map(|i| format!("    a{i} = 1\n")).collect();
    let text = format!("job \"x\" {{\n  meta {{\n{many}  }}\n}}\n");
    assert_eq!(read(&text).expect("many names").job["Meta"].as_object().map(serde_json::Map::len), Some(60_000));
    let many: String = (0..60_000).map(|i| format!("\"a{i}\":1,")).collect();
    let text = format!("{{\"job\":{{\"x\":{{\"meta\":{{{many}\"z\":1}}}}}}}}");
    assert_eq!(read(&text).expect("many names").job["Meta"].as_object().map(serde_json::Map::len), Some(60_001));
    let line = format!("a = [{}1]\n", "1, ".repeat(150_000));
    assert!(herdsman_jobspec::format("x.hcl", &line).is_ok());
    let secrets: String = (0..4_000).map(|i| format!("secret \"s{i}\" {{}}\n")).collect();
    let tasks: String = (0..4_000).map(|i| format!("task \"t{i}\" {{}}\n")).collect();
    refused(&format!("job \"x\" {{\n{secrets}{tasks}}}\n"), "Too much to evaluate");
    let groups = "dynamic \"group\" {\nfor_each = range(1000)\nlabels = [group.key]\ncontent {\ndynamic \"task\" {\nfor_each = \
                  range(1000)\nlabels = [task.key]\ncontent {}\n}\n}\n}\n";
    refused(&format!("job \"x\" {{\n{groups}}}\n"), "Too much to evaluate");
    let big = "locals {\n  b = [for i in range(1000) : [for j in range(200) : j]]\n}\n";
    for work in [
        "[for i in range(1000) : [for j in range(1000) : local.b == local.b]]".to_owned(),
        "[for i in range(1000) : [for j in range(1000) : true ? local.b : []]]".to_owned(),
        format!("concat({})", "local.b, ".repeat(50_000)),
        "[for i in range(1000) : [for j in range(900) : \"${1e-1200}\"]]".to_owned(),
        "[for i in range(1000) : yamldecode(join(\"\", [for j in range(1000) : \"- - - - - - - - - \"]))]".to_owned(),
    ] {
        assert!(read(&format!("{big}locals {{\n  x = {work}\n}}\njob \"x\" {{}}\n")).is_err(), "{work:.60}");
    }
    let deep = format!("locals {{\n  x = yamldecode(\"{}\")\n}}\njob \"x\" {{}}\n", "- ".repeat(400_000));
    refused(&deep, "Error in function call");
}
