//! Rules of constraints, affinities and spreads.

use super::Errors;
use crate::job::{Affinity, Constraint, JobType, Spread};
use herdsman_expr::constraint::{Operator, Target};

/// Constraints; those on distinct hosts or properties only where `distinct` allows them.
pub(super) fn constraints(list: &[Constraint], errors: &mut Errors, distinct: bool) {
    for (index, constraint) in list.iter().enumerate() {
        let position = index + 1;
        let mut own = Errors::default();
        for error in
            herdsman_expr::constraint::validate(&constraint.l_target, &constraint.operand, &constraint.r_target)
        {
            own.add(error.to_string());
        }
        errors.nest(&format!("Constraint {position} validation failed"), own);
        errors.check(!distinct && is_distinct(&constraint.operand), || {
            format!("Constraint {position} has disallowed Operand at task level: {}", constraint.operand)
        });
    }
}

/// A constraint of a device, at this position.
pub(super) fn device_constraint(position: usize, constraint: &Constraint, errors: &mut Errors) {
    if is_distinct(&constraint.operand) {
        errors.add(format!(
            "Constraint {position} validation failed: using unsupported operand {:?}",
            constraint.operand
        ));
        return;
    }
    let mut own = Errors::default();
    for error in herdsman_expr::constraint::validate(&constraint.l_target, &constraint.operand, &constraint.r_target) {
        own.add(error.to_string());
    }
    errors.nest(&format!("Constraint {position} validation failed"), own);
}

fn is_distinct(operand: &str) -> bool {
    matches!(operand, "distinct_hosts" | "distinct_property")
}

/// Affinities; system jobs have none.
pub(super) fn affinities(kind: JobType, list: &[Affinity], errors: &mut Errors) {
    if kind == JobType::System {
        errors.check(!list.is_empty(), || "System jobs may not have an affinity block".to_string());
        return;
    }
    for (index, affinity) in list.iter().enumerate() {
        let mut own = Errors::default();
        let operand = affinity.operand.as_str();
        own.check(operand.is_empty(), || "Missing affinity operand".to_string());
        if !operand.is_empty() && (is_distinct(operand) || Operator::parse(operand).is_none()) {
            own.add(format!("Unknown affinity operator {operand:?}"));
        } else {
            for error in herdsman_expr::constraint::validate(&affinity.l_target, operand, &affinity.r_target) {
                let text = error.to_string();
                // The left side has a text of its own below.
                own.check(!text.starts_with("no attribute") && !operand.is_empty(), || text);
            }
        }
        own.check(affinity.l_target.is_empty() && !is_distinct(operand), || {
            "No LTarget provided but is required".to_string()
        });
        own.check(affinity.weight == 0, || "Affinity weight cannot be zero".to_string());
        own.check(!(-100..=100).contains(&affinity.weight), || {
            "Affinity weight must be within the range [-100,100]".to_string()
        });
        errors.nest(&format!("Affinity {} validation failed", index + 1), own);
    }
}

/// Spreads; system jobs have none.
pub(super) fn spreads(kind: JobType, list: &[Spread], errors: &mut Errors) {
    if kind == JobType::System {
        errors.check(!list.is_empty(), || "System jobs may not have a spread block".to_string());
        return;
    }
    for (index, spread) in list.iter().enumerate() {
        let mut own = Errors::default();
        own.check(spread.attribute.is_empty(), || "Missing spread attribute".to_string());
        own.check(matches!(Target::parse(&spread.attribute), Target::Unknown(_)), || {
            format!("unsupported attribute {:?}", spread.attribute)
        });
        own.check(!(1..=100).contains(&spread.weight), || {
            "Spread block must have a positive weight from 0 to 100".to_string()
        });
        let mut sum = 0u64;
        for (at, target) in spread.spread_target.iter().enumerate() {
            own.check(target.value.is_empty(), || "Missing spread target value".to_string());
            own.check(spread.spread_target.iter().take(at).any(|t| t.value == target.value), || {
                format!("Spread target value {:?} already defined", target.value)
            });
            own.check(target.percent > 100, || {
                format!("Spread target percentage for value {:?} must be between 0 and 100", target.value)
            });
            sum = sum.saturating_add(target.percent);
        }
        own.check(sum > 100, || format!("Sum of spread target percentages must not be greater than 100%; got {sum}%"));
        errors.nest(&format!("Spread {} validation failed", index + 1), own);
    }
}
