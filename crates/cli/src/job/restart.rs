//! `job restart`: restarts or reschedules the allocations of a job in batches.

use super::control::allocations_of;
use crate::command::{Attempt, Call, Failure};
use crate::find::FoundJob;
use crate::format::id;
use crate::monitor::follow;
use crate::view::{View, members};
use herdsman_client::{Client, encode_segment};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a replacement may take before the restart of its batch counts as failed.
const REPLACEMENT_WAIT: Duration = Duration::from_secs(10 * 60);

/// What is done when an allocation cannot be restarted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnError {
    Ask,
    Fail,
}

/// What a call asks for.
struct Plan {
    batch: usize,
    /// Pause between batches; none: ask.
    wait: Option<Duration>,
    on_error: OnError,
    reschedule: bool,
}

/// `job restart`.
pub async fn restart(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    if call.flags.on("all-tasks") && !call.flags.texts("task").is_empty() {
        return Err(Failure::new("The -all-tasks option is not allowed when -task is used"));
    }
    if call.flags.on("reschedule") && (call.flags.on("all-tasks") || !call.flags.texts("task").is_empty()) {
        return Err(Failure::new(
            "The -reschedule option restarts whole allocations: -task and -all-tasks do not go with it",
        ));
    }
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    if !found.exact && !call.flags.on("yes") {
        let question = format!("Are you sure you want to restart job {:?}?", found.id);
        if !call.confirm(&question).await? {
            call.terminal.line("Job restart canceled.");
            return Ok(0);
        }
    }
    let targets = targets(call, &client, &found).await?;
    if targets.is_empty() {
        call.terminal.line("No allocations to restart");
        return Ok(0);
    }
    let plan = plan(call, targets.len())?;
    let time = call.times().stamp();
    let plural = if targets.len() == 1 { "" } else { "s" };
    call.terminal.line(format!("==> {time}: Restarting {} allocation{plural}", targets.len()));
    let failures = run(call, &client, &found, &targets, &plan).await?;
    let time = call.times().stamp();
    if failures.is_empty() {
        call.terminal.line(format!("==> {time}: Job restart finished\n\nJob restarted successfully!"));
        return Ok(0);
    }
    call.terminal.line(format!("==> {time}: Job restart finished with errors"));
    let list: Vec<String> = failures.iter().map(|f| format!("* {f}")).collect();
    let plural = if list.len() == 1 { "error" } else { "errors" };
    Err(Failure::new(format!("\n{} {plural} occurred while restarting job:\n{}", list.len(), list.join("\n"))))
}

fn plan(call: &Call<'_>, total: usize) -> Result<Plan, Failure> {
    let text = call.flags.text("batch-size").unwrap_or("1");
    let batch = match text.strip_suffix('%') {
        Some(percent) => {
            percent.trim().parse::<usize>().ok().filter(|p| (1..=100).contains(p)).map(|p| (total * p).div_ceil(100))
        }
        None => text.parse::<usize>().ok(),
    };
    let batch = batch.filter(|b| *b > 0).ok_or_else(|| {
        Failure::new(format!("Invalid -batch-size value {text:?}: it is a number above 0, or a part such as 25%"))
    })?;
    let wait = match call.flags.text("batch-wait").unwrap_or("0s") {
        "ask" if call.flags.on("yes") => Some(Duration::ZERO),
        "ask" => None,
        text => {
            let span = herdsman_expr::duration::parse(text)
                .map_err(|e| Failure::new(format!("Invalid -batch-wait value {text:?}: {e}")))?;
            Some(Duration::from_nanos(u64::try_from(span).unwrap_or(0)))
        }
    };
    let on_error = match call.flags.text("on-error").unwrap_or("ask") {
        "ask" if call.flags.on("yes") => OnError::Fail,
        "ask" => OnError::Ask,
        "fail" => OnError::Fail,
        other => return Err(Failure::new(format!("Invalid -on-error value {other:?}: it is ask or fail"))),
    };
    Ok(Plan { batch, wait, on_error, reschedule: call.flags.on("reschedule") })
}

/// The allocations that are to be restarted.
async fn targets(call: &Call<'_>, client: &Client, found: &FoundJob) -> Result<Vec<Value>, Failure> {
    let (job, _): (Value, _) = client.get(&found.path(), &found.query()).await.attempt("Error querying job")?;
    for group in call.flags.texts("group") {
        if !job.list("TaskGroups").iter().any(|g| g.text("Name") == group) {
            return Err(Failure::new(format!("Invalid -group value: job {:?} has no group {group:?}", found.id)));
        }
    }
    for task in call.flags.texts("task") {
        let known = job.list("TaskGroups").iter().any(|g| g.list("Tasks").iter().any(|t| t.text("Name") == task));
        if !known {
            return Err(Failure::new(format!("Invalid -task value: job {:?} has no task {task:?}", found.id)));
        }
    }
    let list = allocations_of(client, found, false).await?;
    let groups = call.flags.texts("group");
    let mut kept: Vec<Value> = members(&list)
        .iter()
        .filter(|a| groups.is_empty() || groups.iter().any(|g| g == a.text("TaskGroup")))
        .filter(|a| a.text("DesiredStatus") == "run" && a.text("ClientStatus") == "running")
        .cloned()
        .collect();
    kept.sort_by_key(|a| a.text("Name").to_string());
    Ok(kept)
}

async fn run(
    call: &mut Call<'_>,
    client: &Client,
    found: &FoundJob,
    targets: &[Value],
    plan: &Plan,
) -> Result<Vec<String>, Failure> {
    let mut failures = Vec::new();
    for (number, batch) in targets.chunks(plan.batch).enumerate() {
        if number > 0 && !pause(call, plan).await? {
            break;
        }
        if let Some(why) = active_deployment(client, found).await? {
            failures.push(why);
            break;
        }
        for target in batch {
            if let Err(failure) = one(call, client, found, target, plan).await {
                failures.push(format!("Error restarting allocation {:?}: {}", target.text("ID"), failure.message));
            }
        }
        if failures.is_empty() {
            continue;
        }
        let go_on = plan.on_error == OnError::Ask && {
            let last = failures.last().cloned().unwrap_or_default();
            call.terminal.line(last);
            call.confirm("Restart the rest all the same?").await?
        };
        if !go_on {
            break;
        }
    }
    Ok(failures)
}

/// Waits between batches, or asks; false when it shall end here.
async fn pause(call: &mut Call<'_>, plan: &Plan) -> Result<bool, Failure> {
    match plan.wait {
        None => call.confirm("Proceed with the next batch?").await,
        Some(wait) => {
            if !wait.is_zero() {
                let (time, span) =
                    (call.times().stamp(), crate::format::span(i64::try_from(wait.as_secs()).unwrap_or(i64::MAX)));
                call.terminal.line(format!("==> {time}: Waiting {span} before the next batch"));
            }
            tokio::time::sleep(wait).await;
            Ok(true)
        }
    }
}

/// A deployment that is going on moves allocations by itself: a restart in between would disturb it.
async fn active_deployment(client: &Client, found: &FoundJob) -> Result<Option<String>, Failure> {
    let (latest, _): (Value, _) = client
        .get(&format!("{}/deployment", found.path()), &found.query())
        .await
        .attempt("Error retrieving latest deployment")?;
    let status = latest.text("Status");
    let active = matches!(status, "running" | "paused" | "pending" | "blocked" | "unblocking");
    Ok(active.then(|| format!("Deployment {:?} is {status:?}", id(latest.text("ID"), false))))
}

async fn one(
    call: &mut Call<'_>,
    client: &Client,
    found: &FoundJob,
    target: &Value,
    plan: &Plan,
) -> Result<(), Failure> {
    let (time, full) = (call.times().stamp(), call.verbose());
    let name = target.text("ID").to_string();
    let short = id(&name, full).to_string();
    let group = target.text("TaskGroup").to_string();
    if plan.reschedule {
        call.terminal.line(format!("    {time}: Rescheduling allocation {short:?} for group {group:?}"));
        return reschedule(call, client, found, &name).await;
    }
    let tasks = call.flags.texts("task").to_vec();
    let path = format!("/v1/client/allocation/{}/restart", encode_segment(&name));
    if tasks.is_empty() {
        let all = call.flags.on("all-tasks");
        let what = if all { "all tasks" } else { "running tasks" };
        call.terminal.line(format!("    {time}: Restarting {what} in allocation {short:?} for group {group:?}"));
        let body = json!({ "TaskName": "", "AllTasks": all });
        let _: (Value, _) = client.put(&path, &found.query(), &body).await.attempt("Failed to restart allocation")?;
        return Ok(());
    }
    for task in tasks {
        call.terminal.line(format!("    {time}: Restarting task {task:?} in allocation {short:?} for group {group:?}"));
        let body = json!({ "TaskName": task });
        let _: (Value, _) = client.put(&path, &found.query(), &body).await.attempt("Failed to restart task")?;
    }
    Ok(())
}

/// Stops an allocation and waits until its replacement runs.
async fn reschedule(call: &mut Call<'_>, client: &Client, found: &FoundJob, name: &str) -> Result<(), Failure> {
    let mut query = found.query();
    if call.flags.on("no-shutdown-delay") {
        query = query.with("no_shutdown_delay", "true");
    }
    let path = format!("/v1/allocation/{}", encode_segment(name));
    let (_, _): (Value, _) =
        client.put(&format!("{path}/stop"), &query, &json!({})).await.attempt("Failed to stop allocation")?;
    let wait = async {
        let next = follow(client, found, &path, "Error querying allocation", &|a| !a.text("NextAllocation").is_empty())
            .await?;
        let next = format!("/v1/allocation/{}", encode_segment(next.text("NextAllocation")));
        follow(client, found, &next, "Error querying allocation", &|a| a.text("ClientStatus") != "pending").await
    };
    let Ok(replacement) = tokio::time::timeout(REPLACEMENT_WAIT, wait).await else {
        return Err(Failure::new("no replacement runs after 10 minutes"));
    };
    let replacement = replacement?;
    let (time, short) = (call.times().stamp(), id(replacement.text("ID"), call.verbose()).to_string());
    match replacement.text("ClientStatus") {
        "running" | "complete" => {
            call.terminal.line(format!("    {time}: Allocation {:?} replaced by {short:?}", id(name, call.verbose())));
            Ok(())
        }
        status => Err(Failure::new(format!("its replacement {short:?} is {status}"))),
    }
}
