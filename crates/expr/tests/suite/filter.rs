//! Filter expressions against a table of results and the answers of the API.

use herdsman_expr::filter::{Filter, FilterError, MAX_FILTER_BYTES, MAX_FILTER_DEPTH, Shape};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The item the table was made with.
fn item() -> Value {
    json!({
        "Status": "ready", "ID": "abc-123", "Num": 42, "U": 7, "F": 1.5, "Flag": true, "Empty": "",
        "Tags": ["blue", "green"], "None": null,
        "Meta": {"rack": "r1", "a.b": "c", "zone": "z-1"}, "NilMap": null,
        "Sub": {"Name": "inner", "Count": 3}, "Ptr": null, "PStr": "ps", "PBool": null,
        "Subs": [{"Name": "x", "Count": 1}, {"Name": "y", "Count": 2}],
        "SubMap": {"k": {"Name": "kk", "Count": 9}}, "Nums": [1, 2, 3], "I": null,
    })
}

const SHAPE: Shape<'static> = Shape { maps: &["Meta", "NilMap", "SubMap"] };

fn answer(text: &str) -> String {
    match Filter::parse(text) {
        Err(error) => format!("perr\t{error}"),
        Ok(filter) => match filter.matches_shaped(&item(), &SHAPE) {
            Err(error) => format!("ererr\t{error}"),
            Ok(result) => format!("{result}\t"),
        },
    }
}

#[test]
fn results_and_errors_agree_with_the_table() {
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in include_str!("../data/filters.tsv").lines() {
        let (text, want) = line.split_once('\t').unwrap();
        let got = answer(text).replace('\n', "\\n");
        if got != want {
            wrong.push(format!("{text}\n  want {want}\n  got  {got}"));
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows > 200, "table is cut: {rows} rows");
}

/// The `filter` parameter of a recorded request.
fn filter_of(call: &Value) -> String {
    let path = call["request"]["path"].as_str().unwrap();
    let (_, query) = path.split_once('?').unwrap();
    let text = query.split('&').find_map(|p| p.strip_prefix("filter=")).unwrap();
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let hex = [bytes.next().unwrap(), bytes.next().unwrap()];
            out.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
        } else {
            out.push(b);
        }
    }
    String::from_utf8(out).unwrap()
}

fn call(name: &str) -> Value {
    serde_json::from_str(&crate::shared(&format!("compat/goldens/api/{name}.json"))).unwrap()
}

#[test]
fn recorded_answers_hold_what_was_filtered_for() {
    for name in [
        "042-nodes-filter",
        "076-jobs-list-filter",
        "103-evaluations-filter",
        "116-allocations-filter",
        "272-service-filter",
        "351-page-allocs-filter",
        "547-acl-tokens-filter",
    ] {
        let call = call(name);
        let filter = Filter::parse(&filter_of(&call)).unwrap();
        let items = call["body"].as_array().unwrap();
        assert!(!items.is_empty(), "{name}");
        for item in items {
            assert_eq!(filter.matches(item), Ok(true), "{name}");
        }
    }
}

#[test]
fn recorded_refusals_have_the_same_text() {
    let bad = call("043-nodes-filter-bad");
    let error = Filter::parse(&filter_of(&bad)).unwrap_err();
    let text = format!("failed to create result paginator: failed to read filter expression: {error}");
    assert_eq!(bad["body_text"], text);
    for name in ["044-nodes-filter-bad-selector", "381-vars-list-filter"] {
        let bad = call(name);
        let filter = Filter::parse(&filter_of(&bad)).unwrap();
        let error = filter.matches(&json!({"ID": "x"})).unwrap_err();
        assert_eq!(bad["body_text"], format!("failed to read result page: {error}"));
    }
}

#[test]
fn a_quoted_path_is_compared_as_written() {
    let filter = Filter::parse("Path == \"/opt/x\"").unwrap();
    assert_eq!(filter.matches(&json!({"Path": "/opt/x"})), Ok(true));
    assert_eq!(filter.matches(&json!({"Path": "opt/x"})), Ok(false));
}

#[test]
fn limits_refuse() {
    let long = format!("a == \"{}\"", "x".repeat(MAX_FILTER_BYTES));
    assert!(matches!(Filter::parse(&long), Err(FilterError::TooLong(_))));
    let nested = |n: usize| format!("{}a == b{}", "(".repeat(n), ")".repeat(n));
    assert!(Filter::parse(&nested(MAX_FILTER_DEPTH)).is_ok());
    assert!(matches!(Filter::parse(&nested(MAX_FILTER_DEPTH + 1)), Err(FilterError::TooDeep)));
    assert!(matches!(Filter::parse(&"(".repeat(10_000)), Err(FilterError::TooDeep)));
    assert!(matches!(Filter::parse(&"not ".repeat(4_000)), Err(FilterError::TooDeep)));
    let patterns = |n: usize| vec!["Status matches \"^r\""; n].join(" and ");
    assert_eq!(Filter::parse(&patterns(32)).unwrap().matches(&item()), Ok(true));
    assert!(matches!(Filter::parse(&patterns(33)), Err(FilterError::TooManyPatterns)));
    let costly = format!("{}Num == 1{}", "any Nums as n { ".repeat(20), " }".repeat(20));
    assert_eq!(Filter::parse(&costly).unwrap().matches(&item()), Err(FilterError::TooCostly));
    // Many terms on one level are no nesting.
    let wide = vec!["Num == 1"; 1_000].join(" or ");
    assert_eq!(Filter::parse(&wide).unwrap().matches(&item()), Ok(false));
}

const TOKENS: &str = "(Status|Num|Tags|Meta\\.rack|Subs|\\[\"x\"\\]|\\.0|==|!=|in|not|contains|matches|is|empty|nil|and|or|any|all|as|x|\\{|\\}|\\(|\\)|,|_|-?[0-9.]{1,3}|\"[a-z/\\\\]{0,4}\"|`q`|é)";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = answer(&text);
    }

    #[test]
    fn near_text_never_panics(tokens in proptest::collection::vec(TOKENS, 0..14), glue in "[ ]{0,1}") {
        let _ = answer(&tokens.join(" "));
        let _ = answer(&tokens.join(&glue));
    }

    #[test]
    fn negation_turns_the_result(value in "[a-z]{1,6}", op in "(==|contains|matches)") {
        let plain = Filter::parse(&format!("Status {op} {value}")).unwrap();
        let negated = Filter::parse(&format!("not (Status {op} {value})")).unwrap();
        prop_assert_eq!(plain.matches(&item()).unwrap(), !negated.matches(&item()).unwrap());
    }
}
