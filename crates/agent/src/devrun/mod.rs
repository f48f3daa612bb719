//! `run -dev FILE`: a job file on a server and node of its own in this process, watched to its end.
//!
//! Tasks: one follows the job's allocations by blocking reads; one per running task follows each of its logs. They send
//! what they see over one bounded channel to the one place that prints.

mod follow;
mod view;

use crate::devrun::follow::{Seen, follow_allocations, follow_job};
use crate::devrun::view::View;
use herdsman_cli::Terminal;
use herdsman_client::{Client, ClientError, Query, encode_segment};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// Exit status of a file that cannot be run.
pub const EXIT_BAD_FILE: u8 = 2;

/// Things seen that wait to be printed; whoever sees waits when there are more.
const BACKLOG: usize = 256;

/// How a task of the job stands, as far as it was seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskSeen {
    pub state: String,
    pub failed: bool,
    /// Events already printed.
    pub events: usize,
    pub poststop: bool,
}

/// What is known of the job's allocations.
#[derive(Debug, Default)]
pub struct Known {
    /// By allocation id.
    pub allocs: BTreeMap<String, AllocSeen>,
    pub job_status: String,
    pub ever_healthy: bool,
    /// Why some could not be placed, once that was seen.
    pub blocked: Option<String>,
}

/// How an allocation stands, as far as it was seen.
#[derive(Debug, Default)]
pub struct AllocSeen {
    pub status: String,
    /// It was replaced by another.
    pub replaced: bool,
    pub tasks: BTreeMap<String, TaskSeen>,
}

impl AllocSeen {
    /// Nothing of it runs any more.
    pub fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "complete" | "failed" | "lost")
    }
}

impl Known {
    /// Every allocation is over, and there was one.
    fn all_over(&self) -> bool {
        !self.allocs.is_empty() && self.allocs.values().all(AllocSeen::is_over)
    }

    /// Every allocation that was not replaced ended well.
    fn all_well(&self) -> bool {
        self.all_over() && self.allocs.values().filter(|a| !a.replaced).all(|a| a.status == "complete")
    }
}

/// How somebody interrupts a run: each message is one Ctrl-C.
pub type Interrupts = mpsc::Receiver<()>;

/// Runs a job to its end and shows it; gives the exit status.
///
/// # Errors
/// The agent in this process does not answer.
pub async fn run(
    client: &Client,
    job: &Value,
    submission: Option<Value>,
    terminal: &mut Terminal,
    interrupts: Interrupts,
) -> Result<u8, ClientError> {
    let id = job["ID"].as_str().unwrap_or_default().to_string();
    let is_batch = matches!(job["Type"].as_str(), Some("batch" | "sysbatch"));
    if !job["ParameterizedJob"].is_null() {
        terminal.error(format!(
            "job {id:?} is parameterized: it runs when it is dispatched. Start `{0} agent -dev`, then `{0} job run` and `{0} job dispatch {id}`.",
            terminal.program()
        ));
        return Ok(EXIT_BAD_FILE);
    }
    let body = json!({"Job": job, "Submission": submission});
    match client.put::<_, Value>("/v1/jobs", &Query::none(), &body).await {
        Ok((answer, _)) => {
            if let Some(warnings) = answer["Warnings"].as_str().filter(|w| !w.is_empty()) {
                terminal.error(warnings);
            }
        }
        Err(error @ ClientError::Refused { .. }) => {
            terminal.error(format!("the job was refused: {}", error.message().unwrap_or_default()));
            return Ok(EXIT_BAD_FILE);
        }
        Err(error) => return Err(error),
    }
    let (sender, seen) = mpsc::channel(BACKLOG);
    let path = format!("/v1/job/{}", encode_segment(&id));
    let followers = [
        tokio::spawn(follow_allocations(client.clone(), path.clone(), sender.clone())),
        tokio::spawn(follow_job(client.clone(), path.clone(), sender.clone())),
    ];
    let mut run = Run { client: client.clone(), id, path, is_batch, known: Known::default(), stopping: 0 };
    let exit = run.watch(job, terminal, seen, sender, interrupts).await;
    for follower in followers {
        follower.abort();
    }
    exit
}

/// One run.
struct Run {
    client: Client,
    id: String,
    path: String,
    is_batch: bool,
    known: Known,
    /// How often somebody interrupted.
    stopping: u32,
}

impl Run {
    async fn watch(
        &mut self,
        job: &Value,
        terminal: &mut Terminal,
        mut seen: mpsc::Receiver<Seen>,
        sender: mpsc::Sender<Seen>,
        mut interrupts: Interrupts,
    ) -> Result<u8, ClientError> {
        let mut view = View::new(terminal, &self.id, job);
        loop {
            tokio::select! {
                biased;
                Some(()) = interrupts.recv() => self.interrupt(&mut view).await?,
                Some(one) = seen.recv() => {
                    view.show(&mut self.known, one, &self.client, &sender);
                    // Everything that is already there is shown before the end is decided, so that no log is cut off.
                    while let Ok(more) = seen.try_recv() {
                        view.show(&mut self.known, more, &self.client, &sender);
                    }
                }
                else => break,
            }
            if let Some(exit) = self.verdict(&mut view) {
                view.drain(&mut self.known, &mut seen, &self.client, &sender).await;
                view.finish(&self.known, exit);
                return Ok(exit);
            }
        }
        Ok(1)
    }

    /// The exit status once the run is over. Source of the rules: README.
    fn verdict(&self, view: &mut View<'_>) -> Option<u8> {
        let over = self.known.all_over() || (self.stopping > 0 && self.known.allocs.is_empty());
        if self.is_batch {
            let settled = self.known.job_status == "dead" || self.stopping > 0;
            if over && settled {
                return Some(u8::from(!self.known.all_well()));
            }
        } else if self.stopping > 0 && over {
            return Some(u8::from(!self.known.ever_healthy));
        }
        let hopeless = self.known.blocked.is_some() && (self.known.allocs.is_empty() || self.known.all_over());
        if hopeless && self.stopping == 0 {
            view.note("nothing more can be placed on this machine; the run ends");
            return Some(1);
        }
        None
    }

    /// The first interrupt stops the job, poststop included; the second ends poststop too.
    async fn interrupt(&mut self, view: &mut View<'_>) -> Result<(), ClientError> {
        self.stopping += 1;
        if self.stopping == 1 {
            view.note("stopping the job; poststop tasks run to their end (Ctrl-C again ends them too)");
            self.client.delete::<Value>(&self.path, &Query::none()).await?;
            return Ok(());
        }
        view.note("ending poststop tasks");
        for (alloc, seen) in self.known.allocs.iter().filter(|(_, a)| !a.is_over()) {
            for (task, _) in seen.tasks.iter().filter(|(_, t)| t.state == "running") {
                let path = format!("/v1/client/allocation/{alloc}/signal");
                let body = json!({"Task": task, "Signal": "SIGKILL"});
                if let Err(error) = self.client.put::<_, Value>(&path, &Query::none(), &body).await {
                    view.note(&format!("task {task:?} could not be ended: {error}"));
                }
            }
        }
        Ok(())
    }
}
