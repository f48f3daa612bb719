//! What a run shows: one line per event and per line of a log, and on a terminal a line of progress below them.

use crate::devrun::follow::{Seen, follow_log};
use crate::devrun::{Known, TaskSeen};
use herdsman_cli::Terminal;
use herdsman_cli::terminal::Colour;
use herdsman_client::Client;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender};

/// How long the last lines of logs are waited for once a run is over.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// Colours of tasks, in turn.
const COLOURS: &[Colour] = &[Colour::Cyan, Colour::Yellow, Colour::Green, Colour::Bold];

/// What a run shows.
pub struct View<'a> {
    terminal: &'a mut Terminal,
    job: String,
    poststop: BTreeSet<String>,
    tasks: Vec<String>,
    width: usize,
    /// A line of progress stands below the last line.
    drawn: bool,
    open_logs: usize,
}

impl<'a> View<'a> {
    /// A view of this job.
    pub fn new(terminal: &'a mut Terminal, id: &str, job: &Value) -> View<'a> {
        let mut tasks = Vec::new();
        let mut poststop = BTreeSet::new();
        for group in job["TaskGroups"].as_array().into_iter().flatten() {
            for task in group["Tasks"].as_array().into_iter().flatten() {
                let name = task["Name"].as_str().unwrap_or_default().to_string();
                if task["Lifecycle"]["Hook"] == "poststop" {
                    poststop.insert(name.clone());
                }
                tasks.push(name);
            }
        }
        let width = tasks.iter().map(String::len).max().unwrap_or(0);
        View { terminal, job: id.to_string(), poststop, tasks, width, drawn: false, open_logs: 0 }
    }

    /// Shows something that was seen, and follows the logs of tasks that began to run.
    pub fn show(&mut self, known: &mut Known, seen: Seen, client: &Client, sender: &Sender<Seen>) {
        match seen {
            Seen::Line { task, is_error, text } => self.log_line(&task, is_error, &text),
            Seen::LogEnded => self.open_logs = self.open_logs.saturating_sub(1),
            Seen::Job { job, deployment, evaluations } => self.job(known, &job, &deployment, &evaluations),
            Seen::Allocations(list) => {
                for alloc in list.as_array().into_iter().flatten() {
                    self.allocation(known, alloc, client, sender);
                }
            }
        }
        self.progress(known);
    }

    fn job(&mut self, known: &mut Known, job: &Value, deployment: &Value, evaluations: &Value) {
        known.job_status = job["Status"].as_str().unwrap_or_default().to_string();
        if deployment["Status"] == "successful" {
            known.ever_healthy = true;
        }
        let blocked = evaluations.as_array().into_iter().flatten().find(|e| e["Status"] == "blocked");
        match blocked {
            Some(eval) if known.blocked.is_none() => {
                let text = herdsman_cli::placement::failures(eval);
                self.line(&format!("not everything can be placed:\n{text}"));
                known.blocked = Some(text);
            }
            Some(_) => {}
            None => known.blocked = None,
        }
    }

    fn allocation(&mut self, known: &mut Known, alloc: &Value, client: &Client, sender: &Sender<Seen>) {
        let id = alloc["ID"].as_str().unwrap_or_default().to_string();
        let short: String = id.chars().take(8).collect();
        let entry = known.allocs.entry(id.clone()).or_default();
        let status = alloc["ClientStatus"].as_str().unwrap_or_default();
        entry.replaced = alloc["NextAllocation"].as_str().is_some_and(|n| !n.is_empty());
        if alloc["DeploymentStatus"]["Healthy"] == true || (status == "running" && alloc["DeploymentStatus"].is_null())
        {
            known.ever_healthy = true;
        }
        let mut lines = Vec::new();
        let mut begun = Vec::new();
        for (name, state) in alloc["TaskStates"].as_object().into_iter().flatten() {
            let before = entry.tasks.get(name).cloned().unwrap_or_default();
            let events = state["Events"].as_array().map(Vec::as_slice).unwrap_or_default();
            for event in events.iter().skip(before.events) {
                lines.push((name.clone(), event.clone()));
            }
            let started = !state["StartedAt"].is_null();
            if started && !before.started() {
                begun.push(name.clone());
            }
            let state_word = state["State"].as_str().unwrap_or_default().to_string();
            let now = TaskSeen {
                state: if started && state_word == "pending" { "restarting".to_string() } else { state_word },
                failed: state["Failed"] == true,
                events: events.len().max(before.events),
                poststop: self.poststop.contains(name),
            };
            entry.tasks.insert(name.clone(), now);
        }
        let changed = entry.status != status;
        entry.status = status.to_string();
        // Several tasks may have moved since the last look: what happened first is shown first.
        lines.sort_by_key(|(_, event)| event["Time"].as_i64().unwrap_or(0));
        for (task, event) in lines {
            self.event(&task, &event);
        }
        for task in begun {
            self.open_logs += 2;
            for is_error in [false, true] {
                tokio::spawn(follow_log(client.clone(), id.clone(), task.clone(), is_error, sender.clone()));
            }
        }
        if changed {
            let description = alloc["ClientDescription"].as_str().unwrap_or_default();
            let colour = match status {
                "failed" | "lost" => Colour::Red,
                "running" | "complete" => Colour::Green,
                _ => Colour::Grey,
            };
            let word = self.terminal.paint(colour, status);
            self.line(&standing(&short, &word, description));
        }
    }

    fn event(&mut self, task: &str, event: &Value) {
        let label = self.label(task);
        let kind = event["Type"].as_str().unwrap_or_default();
        let text = event["DisplayMessage"].as_str().unwrap_or_default();
        let kind = self.terminal.paint(Colour::Grey, kind);
        self.line(&format!("{label} * {kind}: {text}"));
    }

    fn log_line(&mut self, task: &str, is_error: bool, text: &str) {
        let label = self.label(task);
        let mark = if is_error { self.terminal.paint(Colour::Red, "!") } else { "|".to_string() };
        self.line(&format!("{label} {mark} {text}"));
    }

    fn label(&self, task: &str) -> String {
        let place = self.tasks.iter().position(|t| t == task).unwrap_or(0);
        let colour = COLOURS.get(place % COLOURS.len()).copied().unwrap_or(Colour::Cyan);
        self.terminal.paint(colour, &format!("{task:<width$}", width = self.width))
    }

    /// Says something about the run itself.
    pub fn note(&mut self, text: &str) {
        let text = self.terminal.paint(Colour::Bold, &format!("==> {text}"));
        self.line(&text);
    }

    fn line(&mut self, text: &str) {
        self.erase();
        self.terminal.line(text);
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            self.terminal.raw(b"\r\x1b[2K");
        }
    }

    /// On a terminal: how every task stands, in one line.
    fn progress(&mut self, known: &Known) {
        if !self.terminal.interactive() {
            return;
        }
        self.erase();
        let mut parts = Vec::new();
        for task in &self.tasks {
            let mut states: Vec<&str> = known
                .allocs
                .values()
                .filter_map(|a| a.tasks.get(task))
                .map(|t| if t.failed { "failed" } else { t.state.as_str() })
                .collect();
            states.sort_unstable();
            states.dedup();
            parts.push(format!("{task} {}", if states.is_empty() { "pending".to_string() } else { states.join("+") }));
        }
        let text = self.terminal.paint(Colour::Grey, &format!("{}: {}", self.job, parts.join(" · ")));
        self.terminal.raw(text.as_bytes());
        self.drawn = true;
    }

    /// Waits for the last lines of logs.
    pub async fn drain(
        &mut self,
        known: &mut Known,
        seen: &mut Receiver<Seen>,
        client: &Client,
        sender: &Sender<Seen>,
    ) {
        let end = tokio::time::Instant::now() + LOG_PATIENCE;
        while self.open_logs > 0 {
            match tokio::time::timeout_at(end, seen.recv()).await {
                Ok(Some(one)) => self.show(known, one, client, sender),
                _ => break,
            }
        }
    }

    /// The last word: what became of each task.
    pub fn finish(&mut self, known: &Known, exit: u8) {
        self.erase();
        for (id, alloc) in &known.allocs {
            let short: String = id.chars().take(8).collect();
            let failed: Vec<&str> = alloc.tasks.iter().filter(|(_, t)| t.failed).map(|(n, _)| n.as_str()).collect();
            let why = if failed.is_empty() { String::new() } else { format!(", failed: {}", failed.join(", ")) };
            self.terminal.line(format!("allocation {short}: {}{why}", alloc.status));
        }
        let (colour, word) = if exit == 0 { (Colour::Green, "succeeded") } else { (Colour::Red, "did not succeed") };
        let word = self.terminal.paint(colour, word);
        self.terminal.line(format!("job {:?} {word}", self.job));
    }
}

/// How an allocation stands; one that no node has looked at yet has no description.
fn standing(short: &str, word: &str, description: &str) -> String {
    let why = if description.is_empty() { String::new() } else { format!(" ({description})") };
    format!("allocation {short} on this node: {word}{why}")
}

impl TaskSeen {
    /// It has run at some time.
    fn started(&self) -> bool {
        matches!(self.state.as_str(), "running" | "dead" | "restarting") && self.events > 0
    }
}

#[cfg(test)]
mod tests {
    use super::standing;

    #[test]
    fn an_allocation_without_a_description_has_no_brackets() {
        assert_eq!(standing("1a2b", "pending", ""), "allocation 1a2b on this node: pending");
        let told = "allocation 1a2b on this node: running (Tasks are running)";
        assert_eq!(standing("1a2b", "running", "Tasks are running"), told);
    }
}
