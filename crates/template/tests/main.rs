//! Compares with a table made by Go 1.26 (`tests/go.json`: one value, and for each text what Go answers), and checks that
//! no input brings the interpreter down.

use herdsman_template::{Functions, Missing, Options, Template};
use serde_json::{Value, json};

/// Texts whose messages differ on purpose: the limit of calls is lower here; Go prints its own internals.
const OTHERWISE: &[&str] = &[
    r#"{{define "r"}}{{if .}}{{template "r" .}}{{end}}{{end}}{{template "r" .T}}"#,
    "{{len .Missing}}",
    "{{eq .L .L}}",
    "{{eq .M .M}}",
];

fn rendered(text: &str, data: &Value) -> Result<String, String> {
    let template = Template::parse(text, Options::default()).map_err(|e| e.to_string())?;
    template.render(data).map_err(|e| e.to_string())
}

#[test]
fn every_row_of_the_table_is_as_in_go() {
    let table: Value = serde_json::from_str(include_str!("go.json")).unwrap();
    let rows = table["rows"].as_array().unwrap();
    assert!(rows.len() > 250);
    let mut wrong = Vec::new();
    for row in rows {
        let text = row["text"].as_str().unwrap();
        let ours = rendered(text, &table["data"]);
        let theirs = row["out"].as_str().unwrap();
        assert_eq!(ours.is_ok(), row["ok"].as_bool().unwrap(), "{text}: {ours:?}, Go: {theirs}");
        let same = ours.as_ref().is_ok_and(|o| o == theirs) || ours.as_ref().is_err_and(|e| e == theirs);
        if !same && !OTHERWISE.contains(&text) {
            wrong.push(format!("{text}\n   ours: {ours:?}\n   Go:   {theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn unknown_fields_are_errors_where_wanted() {
    let options = Options { missing: Missing::Error, ..Options::default() };
    let template = Template::parse("{{ range . }}{{ .ID }}{{ end }}", options).unwrap();
    assert_eq!(template.render(&json!([{"ID": "a"}])).unwrap(), "a");
    assert_eq!(
        template.render(&json!([{"Name": "a"}])).unwrap_err().to_string(),
        "template: :1:16: executing \"\" at <.ID>: can't evaluate field ID in type object"
    );
}

#[test]
fn delimiters_and_functions_can_be_given() {
    struct Upper;
    impl Functions for Upper {
        fn call(&self, name: &str, arguments: &[Value]) -> Option<Result<Value, String>> {
            match (name, arguments) {
                ("upper", [Value::String(text)]) => Some(Ok(Value::String(text.to_uppercase()))),
                ("upper", _) => Some(Err("one text is wanted".to_string())),
                _ => None,
            }
        }
        fn has(&self, name: &str) -> bool {
            name == "upper"
        }
    }
    let options = || Options { name: "x", left: "<<", right: ">>", functions: &Upper, ..Options::default() };
    let template = Template::parse("{{<< .a | upper >>}}", options()).unwrap();
    assert_eq!(template.render(&json!({"a": "b"})).unwrap(), "{{B}}");
    let template = Template::parse("<< upper 1 >>", options()).unwrap();
    assert_eq!(
        template.render(&json!(null)).unwrap_err().to_string(),
        "template: x:1:3: executing \"x\" at <upper 1>: error calling upper: one text is wanted"
    );
}

#[test]
fn limits_hold() {
    let deep = "{{if true}}".repeat(200);
    assert!(rendered(&deep, &json!(null)).unwrap_err().contains("deep"));
    let parens = format!("{{{{{}1{}}}}}", "(".repeat(200), ")".repeat(200));
    assert!(rendered(&parens, &json!(null)).unwrap_err().contains("deep"));
    let long = "{{range 100000}}{{range 100000}}{{end}}{{end}}";
    assert!(rendered(long, &json!(null)).unwrap_err().contains("steps"));
    let wide = "{{$x := \"aaaaaaaaaaaaaaaa\"}}{{range 40}}{{$x = printf \"%s%s\" $x $x}}{{end}}";
    assert!(rendered(wide, &json!(null)).unwrap_err().contains("bytes"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(\\{\\{|\\}\\}|-|if|end|range|else|with|printf|index|slice|eq|\\$x|:=|=|\\.|\\.A|\"%[ds*.]\"|'a'|\\(|\\)|\\||,| |/\\*|\\*/|1|0x|\\PC){0,20}") {
        let _ = rendered(&text, &json!({"A": [1, "é", {"A": null}]}));
    }

    #[test]
    fn no_format_makes_it_panic(format in "(%[-+# 0]*[0-9*]{0,2}(\\.[0-9*]{0,2})?(\\[[0-9]\\])?[a-zA-Z%]|\\PC){0,5}") {
        let text = format!("{{{{printf {:?} .A .B .C nil -5}}}}", format);
        let _ = rendered(&text, &json!({"A": "é", "B": 1.5, "C": [true, {"x": u64::MAX}]}));
    }
}
