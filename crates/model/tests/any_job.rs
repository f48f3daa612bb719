//! Properties over jobs made at random from the table of fields: every kind of block and value that can be submitted.

use herdsman_model::diff::{DiffType, diff};
use herdsman_model::gate::gate_spec;
use herdsman_model::spec::{JOB, Kind, Shape, canonicalize, normalize};
use herdsman_model::validate::{Limits, validate_words};
use herdsman_model::{Job, admit, destructive, spec_changed};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A small generator of numbers, so that a case is one seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
    fn word(&mut self) -> String {
        let words = [
            "",
            "a",
            "b",
            "service",
            "batch",
            "system",
            "sysbatch",
            "prestart",
            "poststop",
            "nomad",
            "consul",
            "http",
            "tcp",
            "script",
            "${meta.a}",
            "=",
            "regexp",
            "(",
            "../../x",
            "signal",
            "restart",
            "host",
            "csi",
            "bridge",
            "fail",
            "delay",
            "constant",
            "exponential",
            "fibonacci",
            "checks",
            "\u{1F980}",
            "job.with spaces",
            "@daily",
            "* * * * *",
        ];
        words[self.roll(words.len() as u64) as usize].to_string()
    }
    fn number(&mut self, min: i128, max: i128) -> i128 {
        match self.roll(6) {
            0 => min,
            1 => max,
            2 => -1i128,
            3 => i128::from(self.roll(1 << 40)),
            _ => i128::from(self.roll(4)),
        }
        .clamp(min, max)
    }
    fn free(&mut self, depth: u64) -> Value {
        match self.roll(if depth > 3 { 5 } else { 7 }) {
            0 => Value::Null,
            1 => json!(self.roll(2) == 1),
            2 => json!(self.roll(1000)),
            3 => json!(1.5),
            4 => json!(self.word()),
            5 => (0..self.roll(3)).map(|_| self.free(depth + 1)).collect(),
            _ => Value::Object((0..self.roll(3)).map(|i| (format!("k{i}"), self.free(depth + 1))).collect()),
        }
    }
    fn block(&mut self, shape: &'static Shape, depth: u64) -> Value {
        let mut out = Map::new();
        for field in shape.fields {
            if self.roll(3) != 0 {
                continue;
            }
            let count = self.roll(3);
            let value = match field.kind {
                Kind::Text => json!(self.word()),
                Kind::Flag => json!(self.roll(2) == 1),
                Kind::Number { min, max, .. } => {
                    let n = self.number(min, max);
                    u64::try_from(n).map_or_else(|_| json!(n as i64), |n| json!(n))
                }
                Kind::Bytes => json!("aGk="),
                Kind::Texts => (0..count).map(|_| self.word()).collect(),
                Kind::Ports => (0..count).map(|_| self.roll(65_536)).collect(),
                Kind::TextMap => Value::Object((0..count).map(|i| (format!("k{i}"), json!(self.word()))).collect()),
                Kind::JsonMap => Value::Object((0..count).map(|i| (format!("k{i}"), self.free(0))).collect()),
                Kind::TextsMap => Value::Object((0..count).map(|i| (format!("k{i}"), json!([self.word()]))).collect()),
                Kind::Block(_) | Kind::Blocks(_) | Kind::BlockMap(_) if depth > 8 => continue,
                Kind::Block(inner) => self.block(inner, depth + 1),
                Kind::Blocks(inner) => (0..count).map(|_| self.block(inner, depth + 1)).collect(),
                Kind::BlockMap(inner) => {
                    Value::Object((0..count).map(|i| (format!("k{i}"), self.block(inner, depth + 1))).collect())
                }
            };
            out.insert(field.wire.to_string(), value);
        }
        out.into()
    }
}

fn any_job() -> impl Strategy<Value = Value> {
    (1..u64::MAX).prop_map(|seed| Dice(seed).block(&JOB, 0))
}

/// The way of a job through the crate.
fn registered(spec: &Value) -> (Value, Job) {
    let mut spec = normalize(spec.clone()).unwrap_or_else(|e| panic!("{e}"));
    canonicalize(&mut spec);
    let once = spec.clone();
    canonicalize(&mut spec);
    assert_eq!(once, spec, "the canonical form changes when made again");
    let (mut job, words) = Job::from_spec_with_words(&spec).unwrap_or_else(|e| panic!("{e}"));
    let _ = gate_spec(&spec);
    admit(&mut job, &mut || "id".to_string());
    let validation = validate_words(&job, &words, &Limits::default());
    assert_eq!(validation.error_text().is_empty(), validation.errors.is_empty());
    (spec, job)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_job_that_can_be_submitted_can_be_held(spec in any_job()) {
        let (_, job) = registered(&spec);
        let mut again = job.clone();
        admit(&mut again, &mut || "other".to_string());
        prop_assert_eq!(&again, &job, "registering again changes it");
        let back: Job = serde_json::from_value(serde_json::to_value(&job).unwrap()).unwrap();
        prop_assert_eq!(&back, &job, "the wire form loses something");
    }

    #[test]
    fn a_job_does_not_differ_from_itself(spec in any_job()) {
        let (_, job) = registered(&spec);
        prop_assert_eq!(diff(Some(&job), Some(&job), true).kind, DiffType::None);
        prop_assert!(!spec_changed(&job, &job));
        for group in &job.task_groups {
            prop_assert!(!destructive(&job, &job, &group.name));
        }
    }

    #[test]
    fn the_difference_of_two_jobs_shows_when_there_is_one(one in any_job(), other in any_job()) {
        let (a, b) = (registered(&one).1, registered(&other).1);
        let shown = diff(Some(&a), Some(&b), false);
        if shown.kind == DiffType::None {
            prop_assert_eq!(a.task_groups.len(), b.task_groups.len());
        }
        let _ = diff(None, Some(&a), true);
    }
}
