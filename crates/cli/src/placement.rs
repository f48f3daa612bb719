//! Why something could not be placed, and how it was scored.

use crate::format::short_number;
use crate::view::View;
use serde_json::Value;
use std::collections::BTreeSet;

/// The reasons of a failed placement, one line each; `indent` stands before each.
/// Source: `goldens/cli/128-eval-status-placement-failure.txt`.
pub fn reasons(metric: &Value, indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |text: String| lines.push(format!("{indent}* {text}"));
    if metric.int("NodesEvaluated") == 0 {
        say("No nodes were eligible for evaluation".to_string());
    }
    for (datacenter, count) in metric.entries("NodesAvailable") {
        if count.as_i64() == Some(0) {
            say(format!("No nodes are available in datacenter {datacenter:?}"));
        }
    }
    if metric.get("NodesInPool").is_some() && metric.int("NodesInPool") == 0 && !metric.text("NodePool").is_empty() {
        say(format!("No nodes are available in node pool {:?}", metric.text("NodePool")));
    }
    for (class, count) in metric.entries("ClassFiltered") {
        say(format!("Class {class:?}: {count} nodes excluded by filter"));
    }
    for (constraint, count) in metric.entries("ConstraintFiltered") {
        say(format!("Constraint \"{constraint}\": {count} nodes excluded by filter"));
    }
    if metric.int("NodesExhausted") > 0 {
        say(format!("Resources exhausted on {} nodes", metric.int("NodesExhausted")));
    }
    for (class, count) in metric.entries("ClassExhausted") {
        say(format!("Class {class:?} exhausted on {count} nodes"));
    }
    for (dimension, count) in metric.entries("DimensionExhausted") {
        say(format!("Dimension \"{dimension}\" exhausted on {count} nodes"));
    }
    for quota in metric.list("QuotaExhausted") {
        say(format!("Quota limit hit {:?}", quota.plain()));
    }
    lines
}

/// `Task Group "g" (failed to place 3 allocations):`.
pub fn heading(group: &str, metric: &Value) -> String {
    let count = metric.int("CoalescedFailures").saturating_add(1);
    format!("Task Group {group:?} (failed to place {count} allocation{}):", if count == 1 { "" } else { "s" })
}

/// All failed placements of an evaluation, as text.
pub fn failures(evaluation: &Value) -> String {
    let mut lines = Vec::new();
    for (group, metric) in evaluation.entries("FailedTGAllocs") {
        lines.push(heading(group, metric));
        lines.extend(reasons(metric, "  "));
    }
    lines.join("\n")
}

/// The table of scores of an allocation's placement, as lines of cells.
pub fn scores(metric: &Value, full: bool) -> Vec<String> {
    let rows = metric.list("ScoreMetaData");
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for row in rows {
        for (name, _) in row.entries("Scores") {
            names.insert(name);
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = names.into_iter().collect();
    let mut lines = vec![format!("Node|{}|final score", names.join("|")).replace("||", "|")];
    for row in rows {
        let scores: Vec<String> = names.iter().map(|n| short_number(row.at("Scores").float(n))).collect();
        let node = crate::format::id(row.text("NodeID"), full);
        lines.push(format!("{node}|{}|{}", scores.join("|"), short_number(row.float("NormScore"))).replace("||", "|"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_reason_has_its_line() {
        let metric = json!({
            "NodesEvaluated": 3, "NodesAvailable": {"dc1": 0}, "NodePool": "gpu", "NodesInPool": 0,
            "ClassFiltered": {"compute": 1}, "ConstraintFiltered": {"${meta.rack} = nope": 1},
            "NodesExhausted": 2, "ClassExhausted": {"compute": 2}, "DimensionExhausted": {"memory": 2},
            "QuotaExhausted": ["cpu"], "CoalescedFailures": 2
        });
        assert_eq!(
            reasons(&metric, "  "),
            [
                "  * No nodes are available in datacenter \"dc1\"",
                "  * No nodes are available in node pool \"gpu\"",
                "  * Class \"compute\": 1 nodes excluded by filter",
                "  * Constraint \"${meta.rack} = nope\": 1 nodes excluded by filter",
                "  * Resources exhausted on 2 nodes",
                "  * Class \"compute\" exhausted on 2 nodes",
                "  * Dimension \"memory\" exhausted on 2 nodes",
                "  * Quota limit hit \"cpu\"",
            ]
        );
        assert_eq!(heading("g", &metric), "Task Group \"g\" (failed to place 3 allocations):");
        assert_eq!(reasons(&json!({}), ""), ["* No nodes were eligible for evaluation"]);
    }
}
