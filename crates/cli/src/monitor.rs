//! Watching an evaluation and its deployment to their end, by blocking reads: nothing is polled.

use crate::command::{Attempt, Call, Failure};
use crate::deployment::describe;
use crate::find::{FoundJob, in_space_of};
use crate::format::{Times, id};
use crate::placement;
use crate::terminal::{Colour, Region, Terminal};
use crate::view::{View, members};
use herdsman_client::{Client, Query, encode_segment};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Exit status when something could not be placed.
pub const EXIT_NOT_PLACED: u8 = 2;

/// How long one blocking read waits.
pub const WAIT: Duration = Duration::from_secs(60);

/// How many follow-up evaluations and deployments are watched in a row.
const MAX_CHAIN: usize = 32;

/// Watches what becomes of an evaluation.
pub struct Monitor<'a> {
    pub client: &'a Client,
    pub terminal: &'a mut Terminal,
    pub times: Times,
    /// Full ids.
    pub verbose: bool,
}

/// What is known of an evaluation so far.
#[derive(Default)]
struct Seen {
    status: String,
    deployment: String,
    /// Client status by allocation.
    allocations: BTreeMap<String, String>,
    triggered: bool,
}

/// How an evaluation ended.
struct Ended {
    deployment: String,
    /// The evaluation that follows; empty: none.
    next: String,
    exit: u8,
}

/// Reads something of a job again and again as it changes, until a condition holds; `what` stands before an error.
///
/// # Errors
/// The agent cannot be asked.
pub async fn follow(
    client: &Client,
    job: &FoundJob,
    path: &str,
    what: &str,
    until: &(dyn Fn(&Value) -> bool + Sync),
) -> Result<Value, Failure> {
    let mut index = 0;
    loop {
        let query = job.query().after(index, WAIT);
        let (now, meta): (Value, _) = client.get(path, &query).await.attempt(what)?;
        if until(&now) {
            return Ok(now);
        }
        pause_without_index(meta.index).await;
        index = meta.index.max(index);
    }
}

/// A server without indexes cannot block a read.
pub async fn pause_without_index(index: u64) {
    if index == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl Call<'_> {
    /// Watches an evaluation and its deployment to the end; the number is the exit status.
    ///
    /// # Errors
    /// The agent cannot be asked.
    pub async fn monitor(&mut self, client: &Client, evaluation: &str) -> Result<u8, Failure> {
        let mut monitor = Monitor { client, times: self.times(), verbose: self.verbose(), terminal: self.terminal };
        monitor.evaluation(evaluation).await
    }
}

impl Monitor<'_> {
    /// Watches an evaluation, those that follow it and its deployment; the number is the exit status.
    /// Source: `goldens/cli/028-job-run-attached.txt` and `compat/cli.tsv`.
    ///
    /// # Errors
    /// The agent cannot be asked.
    pub async fn evaluation(&mut self, evaluation: &str) -> Result<u8, Failure> {
        let mut current = evaluation.to_string();
        let mut exit = 0;
        let mut deployment = String::new();
        for _ in 0..MAX_CHAIN {
            let ended = self.one_evaluation(&current).await?;
            exit = ended.exit;
            deployment = ended.deployment;
            if ended.next.is_empty() {
                break;
            }
            current = ended.next;
        }
        if deployment.is_empty() || exit == 1 {
            return Ok(exit);
        }
        match self.deployment(&deployment).await?.as_str() {
            "successful" => Ok(0),
            "failed" => Ok(1),
            _ => Ok(exit),
        }
    }

    async fn one_evaluation(&mut self, evaluation: &str) -> Result<Ended, Failure> {
        let path = format!("/v1/evaluation/{}", encode_segment(evaluation));
        self.head(&format!("Monitoring evaluation {:?}", id(evaluation, self.verbose)));
        let mut seen = Seen { status: "pending".to_string(), ..Seen::default() };
        let mut index = 0;
        loop {
            let query = Query::none().after(index, WAIT);
            let (eval, meta): (Value, _) = self.client.get(&path, &query).await.attempt("Error reading evaluation")?;
            index = meta.index.max(index);
            self.report(&eval, &mut seen).await?;
            if matches!(eval.text("Status"), "complete" | "failed" | "canceled" | "cancelled") {
                return Ok(self.finish(&eval));
            }
            if eval.text("Status") == "blocked" {
                let short = id(evaluation, self.verbose).to_string();
                self.head(&format!("Evaluation {short:?} waits for capacity"));
                return Ok(Ended { deployment: String::new(), next: String::new(), exit: EXIT_NOT_PLACED });
            }
            pause_without_index(index).await;
        }
    }

    /// Prints what is new about an evaluation.
    async fn report(&mut self, eval: &Value, seen: &mut Seen) -> Result<(), Failure> {
        if !seen.triggered {
            seen.triggered = true;
            let node = eval.text("NodeID");
            if !node.is_empty() {
                self.note(&format!("Evaluation triggered by node {:?}", id(node, self.verbose)));
            } else if !eval.text("JobID").is_empty() {
                self.note(&format!("Evaluation triggered by job {:?}", eval.text("JobID")));
            }
        }
        let deployment = eval.text("DeploymentID");
        if !deployment.is_empty() && deployment != seen.deployment {
            seen.deployment = deployment.to_string();
            self.note(&format!("Evaluation within deployment: {:?}", id(deployment, self.verbose)));
        }
        let path = format!("/v1/evaluation/{}/allocations", encode_segment(eval.text("ID")));
        let (allocations, _): (Value, _) =
            self.client.get(&path, &Query::none()).await.attempt("Error reading allocations")?;
        for allocation in members(&allocations) {
            self.report_allocation(eval, allocation, seen);
        }
        let status = eval.text("Status");
        if status != seen.status {
            self.note(&format!("Evaluation status changed: {:?} -> {status:?}", seen.status));
            seen.status = status.to_string();
        }
        Ok(())
    }

    fn report_allocation(&mut self, eval: &Value, allocation: &Value, seen: &mut Seen) {
        let (key, status) = (allocation.text("ID"), allocation.text("ClientStatus"));
        let short = id(key, self.verbose).to_string();
        match seen.allocations.insert(key.to_string(), status.to_string()) {
            None => {
                let verb = if allocation.int("CreateIndex") < eval.int("CreateIndex") { "modified" } else { "created" };
                self.note(&format!(
                    "Allocation {short:?} {verb}: node {:?}, group {:?}",
                    id(allocation.text("NodeID"), self.verbose),
                    allocation.text("TaskGroup")
                ));
            }
            Some(before) if before != status => {
                let why = match allocation.text("ClientDescription") {
                    "" => String::new(),
                    text => format!(" ({text})"),
                };
                self.note(&format!("Allocation {short:?} status changed: {before:?} -> {status:?}{why}"));
            }
            Some(_) => {}
        }
    }

    fn finish(&mut self, eval: &Value) -> Ended {
        let short = id(eval.text("ID"), self.verbose).to_string();
        let status = eval.text("Status");
        let failures = eval.entries("FailedTGAllocs");
        if failures.is_empty() {
            self.head(&format!("Evaluation {short:?} finished with status {status:?}"));
        } else {
            let text =
                format!("Evaluation {short:?} finished with status {status:?} but failed to place all allocations:");
            self.head(&text);
            for (group, metric) in failures {
                self.note(&placement::heading(group, metric));
                for line in placement::reasons(metric, "      ") {
                    self.terminal.line(line);
                }
            }
            let blocked = eval.text("BlockedEval");
            if !blocked.is_empty() {
                let blocked = id(blocked, self.verbose).to_string();
                self.note(&format!("Evaluation {blocked:?} waiting for additional capacity to place remainder"));
            }
        }
        if status != "complete" && !eval.text("StatusDescription").is_empty() {
            self.note(&format!("Reason: {}", eval.text("StatusDescription")));
        }
        let exit = match status {
            "complete" if eval.entries("FailedTGAllocs").is_empty() => 0,
            "complete" => EXIT_NOT_PLACED,
            _ => 1,
        };
        let next = eval.text("NextEval").to_string();
        if !next.is_empty() {
            let wait = match eval.int("Wait") / 1_000_000_000 {
                0 => String::new(),
                seconds => format!(" in {}", crate::format::span(seconds)),
            };
            let text = format!("Monitoring next evaluation {:?}{wait}", id(&next, self.verbose));
            self.note(&text);
        }
        Ended { deployment: eval.text("DeploymentID").to_string(), next, exit }
    }

    /// Watches a deployment to its end, and the one that reverts it when it fails; its last status.
    ///
    /// # Errors
    /// The agent cannot be asked.
    pub async fn deployment(&mut self, deployment: &str) -> Result<String, Failure> {
        let text = format!("Monitoring deployment {:?}", id(deployment, self.verbose));
        self.head(&text);
        let ended = self.one_deployment(deployment).await?;
        let status = ended.text("Status").to_string();
        if status == "failed" && ended.text("StatusDescription").contains("rolling back") {
            self.watch_revert(&ended).await?;
        }
        Ok(status)
    }

    async fn one_deployment(&mut self, deployment: &str) -> Result<Value, Failure> {
        let path = format!("/v1/deployment/{}", encode_segment(deployment));
        let mut region = Region::default();
        let mut index = 0;
        let mut shown = String::new();
        loop {
            let query = Query::none().after(index, WAIT);
            let (now, meta): (Value, _) = self.client.get(&path, &query).await.attempt("Error reading deployment")?;
            let text = describe(&now, self.verbose, &self.times);
            if text != shown {
                let drawn = format!("    \n{}\n{text}", self.times.stamp());
                self.terminal.draw(&mut region, &drawn);
                shown = text;
            }
            if !matches!(
                now.text("Status"),
                "running" | "paused" | "pending" | "blocked" | "unblocking" | "initializing"
            ) {
                return Ok(now);
            }
            pause_without_index(meta.index).await;
            index = meta.index.max(index);
        }
    }

    /// After a failed deployment that reverts: the newer deployment of the same job, if there is one.
    async fn watch_revert(&mut self, failed: &Value) -> Result<(), Failure> {
        let path = format!("/v1/job/{}/deployment", encode_segment(failed.text("JobID")));
        let mut query = in_space_of(failed);
        // The revert is its own evaluation: its deployment may need a moment.
        for _ in 0..2 {
            let (latest, meta): (Value, _) =
                self.client.get(&path, &query).await.attempt("Error reading deployment")?;
            let newer = latest.text("ID");
            if !newer.is_empty() && newer != failed.text("ID") {
                let text = format!("Monitoring deployment {:?} that reverts it", id(newer, self.verbose));
                self.head(&text);
                self.one_deployment(newer).await?;
                return Ok(());
            }
            query = query.after(meta.index, Duration::from_secs(10));
        }
        Ok(())
    }

    fn head(&mut self, text: &str) {
        let line = format!("==> {}: {text}", self.times.stamp());
        let line = self.terminal.paint(Colour::Bold, &line);
        self.terminal.line(line);
    }

    fn note(&mut self, text: &str) {
        let line = format!("    {}: {text}", self.times.stamp());
        self.terminal.line(line);
    }
}
