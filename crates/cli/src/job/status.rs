//! `job status`: the list of jobs, and one job with what belongs to it.

use crate::alloc;
use crate::command::{Attempt, Call, Failure};
use crate::deployment;
use crate::find::FoundJob;
use crate::format::Times;
use crate::placement;
use crate::terminal::{columns, pairs};
use crate::view::{View, join, members};
use herdsman_client::{Client, Query};
use serde_json::{Value, json};

/// `job status`.
pub async fn status(call: &mut Call<'_>) -> Result<u8, Failure> {
    match call.flags.words.as_slice() {
        [] => list(call).await,
        [word] => {
            let word = word.clone();
            show(call, &word).await
        }
        _ => Err(call.usage("This command takes either no arguments or one: <job>")),
    }
}

/// Jobs as a table.
pub fn list_text(jobs: &[Value], times: &Times, namespaces: bool) -> String {
    let space = |text: &str| if namespaces { format!("{text}|") } else { String::new() };
    let mut lines = vec![format!("ID|{}Type|Priority|Status|Submit Date", space("Namespace"))];
    for job in jobs {
        lines.push(format!(
            "{}|{}{}|{}|{}|{}",
            job.text("ID"),
            space(job.text("Namespace")),
            type_of(job),
            job.int("Priority"),
            status_of(job),
            times.show(job.int("SubmitTime"))
        ));
    }
    columns(&lines)
}

fn type_of(job: &Value) -> String {
    let mut text = job.text("Type").to_string();
    // A list shows truth values here, a whole job shows blocks.
    let is = |key: &str| job.on(key) || job.at(key).is_object();
    if is("Periodic") {
        text.push_str("/periodic");
    }
    if is("ParameterizedJob") && !job.on("Dispatched") {
        text.push_str("/parameterized");
    }
    text
}

fn status_of(job: &Value) -> String {
    let stopped = if job.on("Stop") { " (stopped)" } else { "" };
    format!("{}{stopped}", job.text("Status"))
}

/// The list of all jobs.
///
/// # Errors
/// The agent cannot be asked.
pub async fn list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (jobs, _): (Value, _) = client.get("/v1/jobs", &Query::none()).await.attempt("Error querying jobs")?;
    if call.wants_data() {
        let mut all = Vec::new();
        for job in members(&jobs) {
            let found = FoundJob { id: job.text("ID").into(), namespace: job.text("Namespace").into(), exact: true };
            all.push(data(&client, &found).await?);
        }
        call.formatted(&Value::Array(all))?;
        return Ok(0);
    }
    if members(&jobs).is_empty() {
        call.terminal.line("No running jobs");
        return Ok(0);
    }
    let text = list_text(members(&jobs), &call.times(), client.options().namespace == "*");
    call.terminal.line(text);
    Ok(0)
}

/// What belongs to a job.
struct Parts {
    summary: Value,
    allocations: Value,
    evaluations: Value,
    /// The latest deployment; null where there is none.
    latest: Value,
}

/// Reads what belongs to a job, with the allocations of earlier jobs of its id when asked for.
async fn parts(client: &Client, job: &FoundJob, earlier: bool) -> Result<Parts, Failure> {
    let read = |tail: &str| format!("{}/{tail}", job.path());
    let query = job.query();
    let (summary, _): (Value, _) = client.get(&read("summary"), &query).await.attempt("Error querying job summary")?;
    let all = if earlier { query.clone().with("all", "true") } else { query.clone() };
    let (allocations, _): (Value, _) =
        client.get(&read("allocations"), &all).await.attempt("Error querying job allocations")?;
    let (evaluations, _): (Value, _) =
        client.get(&read("evaluations"), &query).await.attempt("Error querying job evaluations")?;
    let (latest, _): (Value, _) =
        client.get(&read("deployment"), &query).await.attempt("Error querying latest job deployment")?;
    Ok(Parts { summary, allocations, evaluations, latest })
}

/// What `-json` and `-t` show of one job.
async fn data(client: &Client, job: &FoundJob) -> Result<Value, Failure> {
    let Parts { summary, allocations, evaluations, latest } = parts(client, job, false).await?;
    Ok(json!({
        "Summary": summary,
        "Allocations": allocations,
        "LatestDeployment": latest,
        "Evaluations": crate::shape::all(&evaluations, crate::shape::EVALUATION),
    }))
}

/// One job.
///
/// # Errors
/// There is none such, or the agent cannot be asked.
pub async fn show(call: &mut Call<'_>, word: &str) -> Result<u8, Failure> {
    let client = call.client()?;
    let found = call.find_job(&client, word).await?;
    if call.wants_data() {
        let one = data(&client, &found).await?;
        call.formatted(&Value::Array(vec![one]))?;
        return Ok(0);
    }
    let (job, _): (Value, _) = client.get(&found.path(), &found.query()).await.attempt("Error querying job")?;
    print_head(call, &job);
    if call.flags.on("short") {
        return Ok(0);
    }
    let periodic = job.at("Periodic").is_object();
    let parameterized = job.at("ParameterizedJob").is_object() && !job.on("Dispatched");
    if periodic || parameterized {
        return parent(call, &client, &found, &job, parameterized).await;
    }
    details(call, &client, &found, &job).await
}

fn print_head(call: &mut Call<'_>, job: &Value) {
    let times = call.times();
    let periodic = job.at("Periodic").is_object();
    let parameterized = job.at("ParameterizedJob").is_object() && !job.on("Dispatched");
    let mut lines = vec![
        format!("ID|{}", job.text("ID")),
        format!("Name|{}", job.text("Name")),
        format!("Submit Date|{}", times.show(job.int("SubmitTime"))),
        format!("Type|{}", job.text("Type")),
        format!("Priority|{}", job.int("Priority")),
        format!("Datacenters|{}", join(job.list("Datacenters"), ",")),
        format!("Namespace|{}", job.text("Namespace")),
        format!("Node Pool|{}", job.text("NodePool")),
        format!("Status|{}", status_of(job)),
        format!("Periodic|{periodic}"),
        format!("Parameterized|{parameterized}"),
    ];
    if !job.text("StatusDescription").is_empty() {
        lines.push(format!("Status Description|{}", job.text("StatusDescription")));
    }
    let runs_again = periodic && !parameterized && !job.on("Stop");
    if let Some(next) = super::run::next_launch(job, &times).filter(|_| runs_again) {
        lines.push(format!("Next Periodic Launch|{next}"));
    }
    call.terminal.line(pairs(&lines));
}

/// A job that makes other jobs: what it takes, and its children.
async fn parent(
    call: &mut Call<'_>,
    client: &Client,
    found: &FoundJob,
    job: &Value,
    parameterized: bool,
) -> Result<u8, Failure> {
    let (summary, _): (Value, _) =
        client.get(&format!("{}/summary", found.path()), &found.query()).await.attempt("Error querying job summary")?;
    if parameterized {
        let takes = job.at("ParameterizedJob");
        let lines = [
            format!("Payload|{}", if takes.text("Payload").is_empty() { "optional" } else { takes.text("Payload") }),
            format!("Required Metadata|{}", join(takes.list("MetaRequired"), ", ")),
            format!("Optional Metadata|{}", join(takes.list("MetaOptional"), ", ")),
        ];
        call.section("Parameterized Job", &pairs(&lines));
    }
    let children = summary.at("Children");
    let lines = [
        "Pending|Running|Dead".to_string(),
        format!("{}|{}|{}", children.int("Pending"), children.int("Running"), children.int("Dead")),
    ];
    let title = if parameterized { "Parameterized Job Summary" } else { "Children Job Summary" };
    call.section(title, &columns(&lines));
    let mark = if parameterized { "/dispatch-" } else { "/periodic-" };
    let query = Query { prefix: format!("{}{mark}", found.id), ..found.query() };
    let (jobs, _): (Value, _) = client.get("/v1/jobs", &query).await.attempt("Error querying child jobs")?;
    let mut lines = vec!["ID|Status".to_string()];
    lines.extend(
        members(&jobs)
            .iter()
            .filter(|j| j.text("ParentID") == found.id)
            .map(|j| format!("{}|{}", j.text("ID"), status_of(j))),
    );
    let title = if parameterized { "Dispatched Jobs" } else { "Previously Launched Jobs" };
    let text = match (lines.len(), parameterized) {
        (1, true) => "No dispatched instances of parameterized job found".to_string(),
        (1, false) => "No instances of periodic job found".to_string(),
        _ => columns(&lines),
    };
    call.section(title, &text);
    Ok(0)
}

async fn details(call: &mut Call<'_>, client: &Client, found: &FoundJob, job: &Value) -> Result<u8, Failure> {
    let (times, full) = (call.times(), call.verbose());
    let Parts { summary, allocations, evaluations, latest } = parts(client, found, call.flags.on("all-allocs")).await?;
    call.section("Summary", &summary_text(&summary));
    if full || call.flags.on("evals") {
        call.section("Evaluations", &evaluations_text(members(&evaluations), full));
    }
    if let Some(failure) = last_failure(members(&evaluations), job) {
        call.section("Placement Failure", &failure_text(failure));
    }
    if latest.is_object() {
        call.section("Latest Deployment", &deployment::describe_latest(&latest, full, &times));
    }
    if let Some(text) = actions_text(job) {
        call.section("Actions", &text);
    }
    let text = match members(&allocations) {
        [] => "No allocations placed".to_string(),
        some => alloc::list_text(some, full, &times),
    };
    call.section("Allocations", &text);
    Ok(0)
}

fn summary_text(summary: &Value) -> String {
    let mut lines = vec!["Task Group|Queued|Starting|Running|Failed|Complete|Lost|Unknown".to_string()];
    for (group, counts) in summary.entries("Summary") {
        let cells: Vec<String> = ["Queued", "Starting", "Running", "Failed", "Complete", "Lost", "Unknown"]
            .iter()
            .map(|key| counts.int(key).to_string())
            .collect();
        lines.push(format!("{group}|{}", cells.join("|")));
    }
    columns(&lines)
}

fn evaluations_text(evaluations: &[Value], full: bool) -> String {
    let mut sorted: Vec<&Value> = evaluations.iter().collect();
    sorted.sort_by_key(|e| std::cmp::Reverse(e.int("CreateIndex")));
    let mut lines = vec!["ID|Priority|Triggered By|Status|Placement Failures".to_string()];
    for e in sorted {
        lines.push(format!(
            "{}|{}|{}|{}|{}",
            crate::format::id(e.text("ID"), full),
            e.int("Priority"),
            e.text("TriggeredBy"),
            e.text("Status"),
            crate::eval::failures_of(e)
        ));
    }
    columns(&lines)
}

/// The newest finished evaluation, when it left something unplaced that is still wanted.
fn last_failure<'v>(evaluations: &'v [Value], job: &Value) -> Option<&'v Value> {
    if job.on("Stop") {
        return None;
    }
    let blocked = evaluations.iter().any(|e| e.text("Status") == "blocked");
    let newest = evaluations
        .iter()
        .filter(|e| e.text("Status") != "blocked" && !e.entries("FailedTGAllocs").is_empty())
        .max_by_key(|e| e.int("CreateIndex"))?;
    blocked.then_some(newest)
}

fn failure_text(evaluation: &Value) -> String {
    let mut blocks = Vec::new();
    for (group, metric) in evaluation.entries("FailedTGAllocs") {
        let lines = placement::reasons(metric, "  ");
        blocks.push(format!("Task Group {group:?}:\n{}", lines.join("\n")));
    }
    blocks.join("\n\n")
}

fn actions_text(job: &Value) -> Option<String> {
    let mut lines = vec!["Action Name|Task Group|Task".to_string()];
    for group in job.list("TaskGroups") {
        for task in group.list("Tasks") {
            for action in task.list("Actions") {
                lines.push(format!("{}|{}|{}", action.text("Name"), group.text("Name"), task.text("Name")));
            }
        }
    }
    (lines.len() > 1).then(|| columns(&lines))
}
