//! The figures.

use crate::agent::{Agent, PATIENCE};
use crate::calibrate;
use anyhow::{Context, Result, bail};
use herdsman_client::{Client, Query};
use herdsman_sim::workload::Workload;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs of submit to running.
const SUBMITS: usize = 200;
/// Tasks of the throughput run.
const ONE_SHOTS: u64 = 1000;
/// Tasks that run while memory is measured.
const RUNNING: u64 = 200;
/// Starts of the agent.
const STARTS: usize = 5;
/// A median may be this many times its promise before a check fails.
const SLACK: f64 = 3.0;

/// One measured number beside its promise.
#[derive(Debug, Clone)]
pub struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    promise: f64,
    /// More is better.
    at_least: bool,
}

impl Figure {
    /// Beyond three times the promise.
    pub fn is_missed(&self) -> bool {
        if self.at_least { self.value * SLACK < self.promise } else { self.value > self.promise * SLACK }
    }

    fn is_kept(&self) -> bool {
        if self.at_least { self.value >= self.promise } else { self.value <= self.promise }
    }
}

/// Everything measured so far, printed as it comes.
struct Report<'a> {
    out: &'a mut dyn Write,
    figures: Vec<Figure>,
}

impl Report<'_> {
    fn at_most(&mut self, name: &'static str, value: f64, unit: &'static str, promise: f64) -> Result<()> {
        self.add(Figure { name, value, unit, promise, at_least: false })
    }

    fn at_least(&mut self, name: &'static str, value: f64, unit: &'static str, promise: f64) -> Result<()> {
        self.add(Figure { name, value, unit, promise, at_least: true })
    }

    fn add(&mut self, figure: Figure) -> Result<()> {
        let sign = if figure.at_least { ">=" } else { "<=" };
        let word = if figure.is_kept() { "kept" } else { "missed" };
        writeln!(
            self.out,
            "{:<42} {:>10.2} {:<7} promise {sign} {:<7} {word}",
            figure.name, figure.value, figure.unit, figure.promise
        )?;
        self.figures.push(figure);
        Ok(())
    }
}

/// Measures everything once.
pub async fn all(binary: &Path, out: &mut dyn Write) -> Result<Vec<Figure>> {
    let folder = tempfile::Builder::new().prefix("herdsman-bench-").tempdir()?;
    let sync = calibrate::data_sync(folder.path())?;
    let process = calibrate::process()?;
    writeln!(out, "calibration: data sync {:.3} ms, process {:.3} ms", ms(sync), ms(process))?;
    let mut report = Report { out, figures: Vec::new() };
    let size = std::fs::metadata(binary).context("the binary")?.len();
    report.at_most("release binary", size as f64 / 1e6, "MB", 40.0)?;

    let mut starts = Vec::new();
    for n in 0..STARTS {
        let own = folder.path().join(format!("start-{n}"));
        std::fs::create_dir(&own)?;
        let (agent, took) = Agent::start(binary, &own).await?;
        starts.push(took);
        agent.stop()?;
    }
    report.at_most("node ready after start, p50", ms(percentile(&mut starts, 50)), "ms", 200.0)?;

    let own = folder.path().join("main");
    std::fs::create_dir(&own)?;
    let (agent, _) = Agent::start(binary, &own).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    report.at_most("agent idle, proportional memory", memory_mb(agent.pid())?, "MB", 30.0)?;
    submit_to_running(&agent, &mut report).await?;
    running_tasks(&agent, &mut report).await?;
    throughput(&agent, &mut report).await?;
    agent.stop()?;
    Ok(report.figures)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn percentile(all: &mut [Duration], percent: usize) -> Duration {
    all.sort();
    let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
    all.get(place).copied().unwrap_or_default()
}

async fn register(client: &Client, workload: &Workload) -> Result<()> {
    client.put::<_, Value>("/v1/jobs", &Query::none(), &json!({"Job": workload.job()})).await?;
    Ok(())
}

async fn purge(client: &Client, id: &str) -> Result<()> {
    client.delete::<Value>(&format!("/v1/job/{id}"), &Query::none().with("purge", "true")).await?;
    Ok(())
}

/// Blocks on a read until it shows what is wanted.
async fn until(client: &Client, path: &str, mut holds: impl FnMut(&Value) -> bool) -> Result<()> {
    let start = Instant::now();
    let mut index = 0;
    loop {
        let (value, meta) = client.get::<Value>(path, &Query::none().after(index, Duration::from_secs(10))).await?;
        if holds(&value) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            bail!("{path} did not show what was waited for; last: {value}");
        }
        index = meta.index.max(1);
    }
}

fn counts(summary: &Value, state: &str) -> u64 {
    summary["Summary"]["g"][state].as_u64().unwrap_or(0)
}

async fn submit_to_running(agent: &Agent, report: &mut Report<'_>) -> Result<()> {
    let client = &agent.client;
    let mut all = Vec::with_capacity(SUBMITS);
    for n in 0..SUBMITS {
        let workload = Workload::sleeping(&format!("submit-{n}"), 1);
        let start = Instant::now();
        register(client, &workload).await?;
        let path = format!("/v1/job/{}/allocations", workload.id);
        until(client, &path, |v| v[0]["ClientStatus"] == "running").await?;
        all.push(start.elapsed());
        purge(client, &workload.id).await?;
        until(client, &path, |v| v.as_array().is_none_or(|a| a.iter().all(|a| a["ClientStatus"] != "running"))).await?;
    }
    report.at_most("submit to running, p50", ms(percentile(&mut all, 50)), "ms", 10.0)?;
    report.at_most("submit to running, p99", ms(percentile(&mut all, 99)), "ms", 40.0)
}

async fn running_tasks(agent: &Agent, report: &mut Report<'_>) -> Result<()> {
    let client = &agent.client;
    let before = family_memory_mb(agent.pid())?;
    let workload = Workload::sleeping("running", RUNNING);
    register(client, &workload).await?;
    until(client, "/v1/job/running/summary", |v| counts(v, "Running") == RUNNING).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = family_memory_mb(agent.pid())?;
    report.at_most("proportional memory per running task", (after - before) / RUNNING as f64, "MB", 0.5)?;
    report.at_most("agent with 200 tasks, proportional memory", memory_mb(agent.pid())?, "MB", 60.0)?;
    let (ticks, start) = (cpu_seconds(agent.pid())?, Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let share = (cpu_seconds(agent.pid())? - ticks) / start.elapsed().as_secs_f64() * 100.0;
    report.at_most("idle agent with 200 tasks, of one core", share, "%", 1.0)?;
    let start = Instant::now();
    client.delete::<Value>("/v1/job/running", &Query::none()).await?;
    until(client, "/v1/job/running/summary", |v| counts(v, "Running") == 0).await?;
    report.at_most("stop of 200 tasks", ms(start.elapsed()), "ms", 1000.0)?;
    purge(client, "running").await
}

async fn throughput(agent: &Agent, report: &mut Report<'_>) -> Result<()> {
    let client = &agent.client;
    let workload = Workload::one_shot("burst", ONE_SHOTS);
    let start = Instant::now();
    register(client, &workload).await?;
    until(client, "/v1/job/burst/summary", |v| {
        counts(v, "Complete") + counts(v, "Failed") + counts(v, "Lost") >= ONE_SHOTS
    })
    .await?;
    let took = start.elapsed();
    let (summary, _) = client.get::<Value>("/v1/job/burst/summary", &Query::none()).await?;
    if counts(&summary, "Complete") != ONE_SHOTS {
        bail!("not every one-shot task completed: {summary}");
    }
    report.at_least("1,000 one-shot tasks", ONE_SHOTS as f64 / took.as_secs_f64(), "per s", 500.0)
}

/// Proportional memory of one process, megabytes.
fn memory_mb(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("proportional memory")?;
    let line = text.lines().find_map(|l| l.strip_prefix("Pss:")).context("proportional memory")?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes / 1024.0)
}

/// Proportional memory of the agent and of every process that runs the shim's program, megabytes.
fn family_memory_mb(agent: u32) -> Result<f64> {
    let mut total = memory_mb(agent)?;
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if pid != agent && comm.trim_end().starts_with("herdsman-") {
            // It may have ended meanwhile.
            total += memory_mb(pid).unwrap_or(0.0);
        }
    }
    Ok(total)
}

/// Processor time a process has used, seconds.
fn cpu_seconds(pid: u32) -> Result<f64> {
    /// Clock ticks per second on every Linux this runs on.
    const TICKS: f64 = 100.0;
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit_once(')').context("process statistics")?.1;
    let field = |n: usize| rest.split_whitespace().nth(n).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((field(11) + field(12)) / TICKS)
}
