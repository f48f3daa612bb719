//! `runtime/constraints.tsv`: which constraints a real node fulfilled, and which were refused.

use std::collections::BTreeMap;

use herdsman_expr::constraint::{Cache, Target, check, validate};

/// The node the table was made with.
fn node() -> BTreeMap<String, String> {
    [
        ("node.datacenter", "dc1"),
        ("node.class", "compute"),
        ("node.pool", "default"),
        ("node.unique.name", "golden-c"),
        ("attr.kernel.name", "linux"),
        ("attr.nomad.version", "2.0.5"),
        ("meta.rack", "r1"),
        ("meta.zone", "z-1"),
        ("meta.ver", "1.2.3"),
        ("meta.verpre", "1.3.0-beta1"),
        ("meta.list", "red,green, blue"),
        ("meta.num", "10"),
        ("meta.empty", ""),
        ("meta.word", "banana"),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .collect()
}

/// Cells stand as they were written in a job file's strings.
fn unescape(cell: &str) -> String {
    cell.replace("\\n", "\n").replace("\\\\", "\\")
}

#[test]
fn every_row_of_the_table_holds() {
    let table = crate::shared("compat/goldens/runtime/constraints.tsv");
    let (node, mut cache, mut rows, mut wrong) = (node(), Cache::default(), 0, Vec::new());
    for line in table.lines().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        let (left, operator, right) = (unescape(cells[0]), cells[1], unescape(cells[2]));
        let errors = validate(&left, operator, &right);
        let got = if errors.is_empty() {
            let l = Target::parse(&left).resolve(&node);
            let r = Target::parse(&right).resolve(&node);
            check(operator, l.as_deref(), r.as_deref(), &mut cache).to_string()
        } else {
            "refused".to_owned()
        };
        if got != cells[3] {
            wrong.push(format!("{line:?}: got {got}"));
        }
        if cells[3] == "refused" {
            let listed: String = errors.iter().map(|e| format!(" * {e}")).collect();
            let plural = if errors.len() == 1 { "error" } else { "errors" };
            let text = format!(
                "1 error occurred: * Constraint 1 validation failed: {} {plural} occurred:{listed}",
                errors.len()
            );
            if text.trim_end() != cells[4].trim_end() {
                wrong.push(format!("{line:?}: got {text}"));
            }
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows >= 298, "table is cut: {rows} rows");
}
