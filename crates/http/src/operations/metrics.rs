//! `GET /v1/metrics`: figures of this agent, in the peer's JSON or in the text form of Prometheus.

use crate::answer::Answer;
use crate::error::HttpError;
use crate::metrics::{Aggregate, INTERVAL, Measured};
use crate::pipeline::Call;
use herdsman_model::{ClientStatus, EvalStatus, JobStatus, NodeStatus};
use herdsman_state::Snapshot;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One figure: name, labels, value.
struct Gauge {
    name: &'static str,
    labels: BTreeMap<&'static str, String>,
    value: f64,
}

/// Answers the metrics.
///
/// # Errors
/// The text form is asked for and not turned on.
pub async fn read(call: Call) -> Result<Answer, HttpError> {
    let host = call.api.agent().facts().name.clone();
    let mut gauges = process_gauges();
    if let Some(server) = call.api.local_server() {
        state_gauges(&server.snapshot(), &mut gauges);
        let status = server.consensus().status().await;
        gauges.push(plain("nomad.raft.appliedIndex", number(status.applied.unwrap_or(0))));
        gauges.push(plain("nomad.raft.lastIndex", number(status.last_log.unwrap_or(0))));
        gauges.push(plain("nomad.state.snapshotIndex", number(server.snapshot().index())));
    }
    for gauge in &mut gauges {
        gauge.labels.insert("host", host.clone());
    }
    if call.request.params.text("format") == "prometheus" {
        if !call.api.agent().prometheus() {
            return Err(HttpError::new(415, "Prometheus is not enabled"));
        }
        let text = prometheus(&gauges, &call.api.metrics().totals(), &host);
        return Ok(Answer::text(200, text).with_content_type("text/plain; version=0.0.4; charset=utf-8"));
    }
    let interval = call.api.metrics().interval();
    let shown_as = |all: &BTreeMap<&'static str, Aggregate>| -> Vec<Value> {
        all.iter().map(|(name, one)| sample(name, one, &host)).collect()
    };
    let shown: Vec<Value> =
        gauges.iter().map(|g| json!({"Name": g.name, "Value": g.value, "Labels": g.labels})).collect();
    Answer::json(&json!({
        "Timestamp": timestamp(call.api.metrics().now()), "Gauges": shown, "PrecisionGauges": [], "Points": [],
        "Counters": shown_as(&interval.counters), "Samples": shown_as(&interval.samples),
    }))
}

/// `2026-12-01 00:32:50 +0000 UTC`, cut to an interval.
fn timestamp(now: i64) -> String {
    let interval = i64::try_from(INTERVAL.as_nanos()).unwrap_or(1);
    let text = herdsman_model::time_text(now - now.rem_euclid(interval));
    format!("{} +0000 UTC", text.trim_end_matches('Z').replace('T', " "))
}

fn sample(name: &str, one: &Aggregate, host: &str) -> Value {
    json!({
        "Name": name, "Count": one.count, "Sum": one.sum, "Min": one.min, "Max": one.max, "Mean": one.mean(),
        "Rate": one.sum / INTERVAL.as_secs_f64(), "Stddev": one.deviation(), "Labels": {"host": host},
    })
}

#[expect(clippy::cast_precision_loss, reason = "figures for people; far below 2^52 in practice")]
fn number(value: u64) -> f64 {
    value as f64
}

fn count(value: usize) -> f64 {
    number(u64::try_from(value).unwrap_or(u64::MAX))
}

fn plain(name: &'static str, value: f64) -> Gauge {
    Gauge { name, labels: BTreeMap::new(), value }
}

/// Figures of this process, from `/proc`.
fn process_gauges() -> Vec<Gauge> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let mut gauges = Vec::new();
    if let Some(resident) = kilobytes("VmRSS:") {
        gauges.push(plain("nomad.runtime.alloc_bytes", number(resident.saturating_mul(1024))));
    }
    if let Some(size) = kilobytes("VmSize:") {
        gauges.push(plain("nomad.runtime.sys_bytes", number(size.saturating_mul(1024))));
    }
    gauges
}

/// Figures of the tables.
fn state_gauges(snapshot: &Snapshot, gauges: &mut Vec<Gauge>) {
    let jobs = |status: JobStatus| snapshot.jobs().filter(|j| j.status == status).count();
    gauges.push(plain("nomad.nomad.job_status.pending", count(jobs(JobStatus::Pending))));
    gauges.push(plain("nomad.nomad.job_status.running", count(jobs(JobStatus::Running))));
    gauges.push(plain("nomad.nomad.job_status.dead", count(jobs(JobStatus::Dead))));
    let evals = |status: EvalStatus| snapshot.evals().filter(|e| e.status == status).count();
    gauges.push(plain("nomad.nomad.blocked_evals.total_blocked", count(evals(EvalStatus::Blocked))));
    gauges.push(plain("nomad.nomad.broker.total_pending", count(evals(EvalStatus::Pending))));
    let alive = snapshot.nodes().filter(|n| n.status != NodeStatus::Down).count();
    gauges.push(plain("nomad.nomad.heartbeat.active", count(alive)));
    for summary in snapshot.job_summaries() {
        for (group, numbers) in &summary.groups {
            let each = [
                ("nomad.nomad.job_summary.queued", numbers.queued),
                ("nomad.nomad.job_summary.complete", numbers.complete),
                ("nomad.nomad.job_summary.failed", numbers.failed),
                ("nomad.nomad.job_summary.running", numbers.running),
                ("nomad.nomad.job_summary.starting", numbers.starting),
                ("nomad.nomad.job_summary.lost", numbers.lost),
                ("nomad.nomad.job_summary.unknown", numbers.unknown),
            ];
            for (name, value) in each {
                let labels = BTreeMap::from([
                    ("job", summary.job_id.clone()),
                    ("namespace", summary.namespace.clone()),
                    ("exported_job", summary.job_id.clone()),
                    ("task_group", group.clone()),
                ]);
                gauges.push(Gauge { name, labels, value: number(value) });
            }
        }
    }
    node_gauges(snapshot, gauges);
}

fn node_gauges(snapshot: &Snapshot, gauges: &mut Vec<Gauge>) {
    for node in snapshot.nodes() {
        let status =
            |wanted: ClientStatus| snapshot.allocs_by_node(&node.id).filter(|a| a.client_status == wanted).count();
        let terminal = snapshot.allocs_by_node(&node.id).filter(|a| a.client_terminal()).count();
        let labels = BTreeMap::from([
            ("node_id", node.id.to_string()),
            ("datacenter", node.datacenter.clone()),
            ("node_class", node.node_class.clone()),
            ("node_pool", node.node_pool.clone()),
            ("node_status", node.status.as_str().to_string()),
        ]);
        let each = [
            ("nomad.client.allocations.running", status(ClientStatus::Running)),
            ("nomad.client.allocations.pending", status(ClientStatus::Pending)),
            ("nomad.client.allocations.terminal", terminal),
        ];
        for (name, value) in each {
            gauges.push(Gauge { name, labels: labels.clone(), value: count(value) });
        }
    }
}

/// The text form: names with underscores, one `HELP` and `TYPE` per name.
fn prometheus(gauges: &[Gauge], totals: &Measured, host: &str) -> String {
    let spelled = |name: &str| name.replace(['.', '-'], "_");
    let mut by_name: BTreeMap<String, Vec<&Gauge>> = BTreeMap::new();
    for gauge in gauges {
        by_name.entry(spelled(gauge.name)).or_default().push(gauge);
    }
    let mut out = String::new();
    for (name, all) in by_name {
        let _ = writeln!(out, "# HELP {name} {name}\n# TYPE {name} gauge");
        for gauge in all {
            let labels: Vec<String> = gauge.labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escaped(v))).collect();
            let _ = writeln!(out, "{name}{{{}}} {}", labels.join(","), gauge.value);
        }
    }
    for (name, one) in &totals.counters {
        let name = spelled(name);
        let _ = writeln!(out, "# HELP {name} {name}\n# TYPE {name} counter");
        let _ = writeln!(out, "{name}{{host=\"{}\"}} {}", escaped(host), one.count);
    }
    for (name, one) in &totals.samples {
        let (name, host) = (spelled(name), escaped(host));
        let _ = writeln!(out, "# HELP {name} {name}\n# TYPE {name} summary");
        let _ = writeln!(out, "{name}_sum{{host=\"{host}\"}} {}", one.sum);
        let _ = writeln!(out, "{name}_count{{host=\"{host}\"}} {}", one.count);
    }
    out
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_well_formed() {
        let gauges = [
            Gauge { name: "nomad.a.b", labels: BTreeMap::from([("job", "x\"y".to_string())]), value: 2.0 },
            Gauge { name: "nomad.a.b", labels: BTreeMap::from([("job", "z".to_string())]), value: 3.5 },
        ];
        assert_eq!(
            prometheus(&gauges, &Measured::default(), "h"),
            "# HELP nomad_a_b nomad_a_b\n# TYPE nomad_a_b gauge\nnomad_a_b{job=\"x\\\"y\"} 2\nnomad_a_b{job=\"z\"} 3.5\n"
        );
    }

    #[test]
    fn the_timestamp_is_cut_to_the_interval() {
        assert_eq!(timestamp(1_796_085_174_123_456_789), "2026-12-01 00:32:50 +0000 UTC");
    }
}
