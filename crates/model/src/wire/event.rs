//! Task events as the API shows them: type, texts for people, the details map and the flat fields of older clients.

use crate::event::{TaskEvent, TaskFact};
use crate::values::{Nanos, duration_text};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The reason that a restart within the policy gives; it is not repeated in the text for people.
pub const RESTART_WITHIN_POLICY: &str = "Restart within policy";

/// A task event on the wire. Source: `compat/lifecycle.md` section 7; runs of the peer where they say more.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct EventView<'a> {
    #[serde(rename = "Type")]
    pub kind: &'static str,
    pub time: Nanos,
    pub message: Cow<'a, str>,
    pub display_message: Cow<'a, str>,
    pub details: BTreeMap<&'static str, Cow<'a, str>>,
    pub fails_task: bool,
    pub disk_limit: i64,
    pub download_error: &'a str,
    pub driver_error: &'a str,
    pub driver_message: &'a str,
    pub exit_code: i32,
    pub failed_sibling: &'a str,
    pub generic_source: &'a str,
    pub kill_error: &'a str,
    pub kill_reason: &'a str,
    pub kill_timeout: Nanos,
    pub restart_reason: &'a str,
    pub setup_error: &'a str,
    pub signal: i32,
    pub start_delay: Nanos,
    pub task_signal: &'a str,
    pub task_signal_reason: &'a str,
    pub validation_error: &'a str,
    pub vault_error: &'a str,
}

impl<'a> EventView<'a> {
    fn detail(&mut self, key: &'static str, text: impl Into<Cow<'a, str>>) {
        let text = text.into();
        if !text.is_empty() {
            self.details.insert(key, text);
        }
    }

    fn shown(mut self, text: impl Into<Cow<'a, str>>) -> Self {
        self.display_message = text.into();
        self
    }

    fn failing(mut self) -> Self {
        self.fails_task = true;
        self.detail("fails_task", "true");
        self
    }

    /// A message that is flat field, detail and display text at once.
    fn messaged(mut self, message: &'a str, fallback: &'static str) -> Self {
        self.message = message.into();
        self.detail("message", message);
        self.shown(or(message, fallback))
    }
}

fn or<'a>(text: &'a str, fallback: &'a str) -> &'a str {
    if text.is_empty() { fallback } else { text }
}

impl TaskFact {
    /// The peer's name of this kind of event.
    pub fn kind(&self) -> &'static str {
        match self {
            TaskFact::Received => "Received",
            TaskFact::TaskSetup { .. } => "Task Setup",
            TaskFact::SetupFailure { .. } => "Setup Failure",
            TaskFact::DriverFailure { .. } => "Driver Failure",
            TaskFact::Driver { .. } => "Driver",
            TaskFact::FailedValidation { .. } => "Failed Validation",
            TaskFact::Started => "Started",
            TaskFact::Terminated { .. } => "Terminated",
            TaskFact::Killing { .. } => "Killing",
            TaskFact::Killed { .. } => "Killed",
            TaskFact::Restarting { .. } => "Restarting",
            TaskFact::NotRestarting { .. } => "Not Restarting",
            TaskFact::RestartSignaled { .. } => "Restart Signaled",
            TaskFact::Signaling { .. } => "Signaling",
            TaskFact::DownloadingArtifacts => "Downloading Artifacts",
            TaskFact::FailedArtifactDownload { .. } => "Failed Artifact Download",
            TaskFact::DiskExceeded { .. } => "Disk Resources Exceeded",
            TaskFact::SiblingFailed { .. } => "Sibling Task Failed",
            TaskFact::LeaderDead => "Leader Task Dead",
            TaskFact::MainDead => "Main Tasks Dead",
            TaskFact::HookFailed { .. } => "Task hook failed",
            TaskFact::HookMessage { .. } => "Task hook message",
            TaskFact::FailedRestore { .. } => "Failed Restoring Task",
            TaskFact::PluginHealthy { .. } => "Plugin became healthy",
            TaskFact::PluginUnhealthy { .. } => "Plugin became unhealthy",
            TaskFact::Reconnected => "Reconnected",
            TaskFact::WaitingShutdownDelay { .. } => "Waiting for shutdown delay",
            TaskFact::SkippingShutdownDelay => "Skipping shutdown delay",
            TaskFact::Template { .. } => "Template",
            TaskFact::AllocUnhealthy { .. } => "Alloc Unhealthy",
            TaskFact::PoststopNotRun { .. } => "Poststop Not Run",
            TaskFact::EventsElided { .. } => "Events Elided",
        }
    }
}

impl TaskEvent {
    /// This event as the API shows it.
    pub fn view(&self) -> EventView<'_> {
        let start = EventView { kind: self.fact.kind(), time: self.time, ..EventView::default() };
        match &self.fact {
            TaskFact::Killing { .. } | TaskFact::Killed { .. } | TaskFact::Terminated { .. } => {
                ending(start, &self.fact)
            }
            TaskFact::Restarting { .. } | TaskFact::NotRestarting { .. } | TaskFact::RestartSignaled { .. } => {
                restarting(start, &self.fact)
            }
            TaskFact::SetupFailure { .. }
            | TaskFact::DriverFailure { .. }
            | TaskFact::FailedValidation { .. }
            | TaskFact::FailedArtifactDownload { .. }
            | TaskFact::HookFailed { .. }
            | TaskFact::FailedRestore { .. }
            | TaskFact::DiskExceeded { .. } => failing(start, &self.fact),
            _ => telling(start, &self.fact),
        }
    }

    /// This event as the JSON of the API.
    pub fn wire(&self) -> serde_json::Value {
        serde_json::to_value(self.view()).unwrap_or_default()
    }

    /// The text that people read.
    pub fn display_message(&self) -> String {
        self.view().display_message.into_owned()
    }
}

/// Events of the end of a process.
fn ending<'a>(mut v: EventView<'a>, fact: &'a TaskFact) -> EventView<'a> {
    match fact {
        TaskFact::Terminated { exit_code, signal, message, oom_killed } => {
            v.exit_code = *exit_code;
            v.signal = *signal;
            v.message = message.as_str().into();
            v.detail("exit_code", exit_code.to_string());
            v.detail("signal", signal.to_string());
            v.detail("oom_killed", oom_killed.to_string());
            v.detail("exit_message", message.as_str());
            let mut text = format!("Exit Code: {exit_code}");
            if *signal != 0 {
                text.push_str(&format!(", Signal: {signal}"));
            }
            if !message.is_empty() {
                text.push_str(&format!(", Exit Message: {message:?}"));
            }
            v.shown(text)
        }
        TaskFact::Killing { reason, kill_timeout, fails_task } => {
            if *kill_timeout != 0 {
                v.kill_timeout = *kill_timeout;
                v.detail("kill_timeout", duration_text(*kill_timeout));
            }
            let v = if *fails_task { v.failing() } else { v };
            match (reason.is_empty(), *kill_timeout) {
                (false, _) => v.shown(reason.as_str()),
                (true, 0) => v.shown("Sent interrupt"),
                (true, t) => v.shown(format!("Sent interrupt. Waiting {} before force killing", duration_text(t))),
            }
        }
        TaskFact::Killed { error } => {
            v.kill_error = error;
            v.detail("kill_error", error.as_str());
            v.shown(or(error, "Task successfully killed"))
        }
        _ => v,
    }
}

/// Events of the restart policy.
fn restarting<'a>(mut v: EventView<'a>, fact: &'a TaskFact) -> EventView<'a> {
    match fact {
        TaskFact::Restarting { reason, delay } => {
            v.restart_reason = reason;
            v.start_delay = *delay;
            v.detail("restart_reason", reason.as_str());
            v.detail("start_delay", delay.to_string());
            let when = format!("Task restarting in {}", duration_text(*delay));
            if reason.is_empty() || reason == RESTART_WITHIN_POLICY {
                v.shown(when)
            } else {
                v.shown(format!("{reason} - {when}"))
            }
        }
        TaskFact::NotRestarting { reason } => {
            v.restart_reason = reason;
            v.detail("restart_reason", reason.as_str());
            v.failing().shown(or(reason, "Task exceeded restart policy"))
        }
        TaskFact::RestartSignaled { reason } => {
            v.restart_reason = reason;
            v.detail("restart_reason", reason.as_str());
            v.shown(or(reason, "Task signaled to restart"))
        }
        _ => v,
    }
}

/// Events of something that went wrong.
fn failing<'a>(mut v: EventView<'a>, fact: &'a TaskFact) -> EventView<'a> {
    match fact {
        TaskFact::SetupFailure { error } => {
            v.setup_error = error;
            v.detail("setup_error", error.as_str());
            v.failing().shown(or(error, "Task setup failed"))
        }
        TaskFact::DriverFailure { error } => {
            v.driver_error = error;
            v.detail("driver_error", error.as_str());
            v.shown(or(error, "Failed to start task"))
        }
        TaskFact::FailedValidation { error } => {
            v.validation_error = error;
            v.detail("validation_error", error.as_str());
            v.shown(or(error, "Validation of task failed"))
        }
        TaskFact::FailedArtifactDownload { error } => {
            v.download_error = error;
            v.detail("download_error", error.as_str());
            v.shown(or(error, "Failed to download artifacts"))
        }
        TaskFact::HookFailed { hook, error } => {
            let text = format!("{hook}: {error}");
            v.message = text.clone().into();
            v.detail("message", text.clone());
            v.shown(text)
        }
        TaskFact::FailedRestore { error } => {
            v.message = error.as_str().into();
            v.detail("message", error.as_str());
            v.shown(or(error, "Failed to restore task"))
        }
        TaskFact::DiskExceeded { limit_bytes, message } => {
            v.disk_limit = *limit_bytes;
            v.detail("disk_limit", limit_bytes.to_string());
            v.messaged(message, "Task exceeded its disk limit")
        }
        _ => v,
    }
}

/// Every other event.
fn telling<'a>(mut v: EventView<'a>, fact: &'a TaskFact) -> EventView<'a> {
    match fact {
        TaskFact::Received => v.shown("Task received by client"),
        TaskFact::Started => v.shown("Task started by client"),
        TaskFact::DownloadingArtifacts => v.shown("Client is downloading artifacts"),
        TaskFact::LeaderDead => v.shown("Leader Task in Group dead"),
        TaskFact::MainDead => v.shown("Main tasks in the group died"),
        TaskFact::Reconnected => v.shown("Client reconnected"),
        TaskFact::TaskSetup { message } => v.messaged(message, "Task is being set up"),
        TaskFact::HookMessage { message } => v.messaged(message, "Task hook message"),
        TaskFact::PluginHealthy { message } => v.messaged(message, "Plugin became healthy"),
        TaskFact::PluginUnhealthy { message } => v.messaged(message, "Plugin became unhealthy"),
        TaskFact::AllocUnhealthy { message } => v.messaged(message, "Allocation is unhealthy"),
        TaskFact::PoststopNotRun { reason } => v.messaged(reason, "Poststop task could not run"),
        TaskFact::Driver { message } => {
            v.driver_message = message;
            v.shown(or(message, "Driver event"))
        }
        TaskFact::SiblingFailed { task } => {
            v.failed_sibling = task;
            v.detail("failed_sibling", &**task);
            if task.is_empty() {
                v.shown("Task's sibling failed")
            } else {
                v.shown(format!("Task's sibling \"{task}\" failed"))
            }
        }
        TaskFact::Signaling { signal, reason } => {
            v.detail("signal", signal.as_str());
            v.detail("task_signal_reason", reason.as_str());
            v.task_signal_reason = reason;
            if reason.is_empty() {
                v.shown("Task being sent a signal")
            } else {
                v.shown(format!("Task being sent signal {signal}: {reason}"))
            }
        }
        TaskFact::WaitingShutdownDelay { delay } => {
            v.shown(format!("Waiting for shutdown_delay of {} before killing the task.", duration_text(*delay)))
        }
        TaskFact::SkippingShutdownDelay => v.shown("Skipping shutdown_delay before killing the task."),
        TaskFact::Template { message, fails_task } => {
            let v = if *fails_task { v.failing() } else { v };
            v.shown(or(message, "Template event"))
        }
        TaskFact::EventsElided { count } => {
            v.detail("count", count.to_string());
            v.shown(format!("{count} events were counted here instead of kept"))
        }
        _ => v,
    }
}
