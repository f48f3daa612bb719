//! What is recorded of a job: inspect, history, deployments, allocations, scaling events.

use super::control::{allocations_of, versions_of};
use super::diff::Differ;
use crate::command::{Attempt, Call, Failure};
use crate::deployment;
use crate::terminal::{columns, pairs};
use crate::view::{View, members, pretty};
use herdsman_client::Query;
use serde_json::{Value, json};

/// `job inspect`.
pub async fn inspect(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    if call.flags.words.is_empty() && call.wants_data() {
        let (jobs, _): (Value, _) = client.get("/v1/jobs", &Query::none()).await.attempt("Error querying jobs")?;
        call.formatted(&jobs)?;
        return Ok(0);
    }
    let word = call.one_word()?.to_string();
    let found = call.find_job(&client, &word).await?;
    if call.flags.on("hcl") {
        return inspect_source(call, &client, &found).await;
    }
    let job: Value = match call.flags.text("version") {
        None => client.get(&found.path(), &found.query()).await.attempt("Error inspecting job")?.0,
        Some(text) => version_of(&client, &found, text).await?,
    };
    let job = crate::shape::one(&job, crate::shape::JOB);
    if call.flags.text("t").is_some() || call.flags.on("json") {
        call.formatted(&job)?;
        return Ok(0);
    }
    call.terminal.line(pretty(&json!({ "Job": job })));
    Ok(0)
}

async fn version_of(
    client: &herdsman_client::Client,
    found: &crate::find::FoundJob,
    text: &str,
) -> Result<Value, Failure> {
    let versions = versions_of(client, found).await?;
    versions
        .list("Versions")
        .iter()
        .find(|v| v.int("Version").to_string() == text || v.at("VersionTag").text("Name") == text)
        .cloned()
        .ok_or_else(|| Failure::new(format!("job {:?} with version {text:?} couldn't be found", found.id)))
}

async fn inspect_source(
    call: &mut Call<'_>,
    client: &herdsman_client::Client,
    found: &crate::find::FoundJob,
) -> Result<u8, Failure> {
    let version = match call.flags.text("version") {
        Some(text) => text.to_string(),
        None => {
            let (job, _): (Value, _) =
                client.get(&found.path(), &found.query()).await.attempt("Error inspecting job")?;
            job.int("Version").to_string()
        }
    };
    let query = found.query().with("version", version);
    let (source, _): (Value, _) =
        client.get(&format!("{}/submission", found.path()), &query).await.attempt("Error retrieving job source")?;
    if call.flags.on("with-vars") {
        for (name, value) in source.entries("VariableFlags") {
            call.terminal.line(format!("{name} = {}", value.plain()));
        }
        if !source.text("Variables").is_empty() {
            call.terminal.line(source.text("Variables"));
        }
    }
    call.terminal.line(source.text("Source"));
    Ok(0)
}

/// `job history`.
pub async fn history(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    if (call.flags.on("json") || call.flags.text("t").is_some()) && (call.flags.on("p") || call.flags.on("full")) {
        return Err(Failure::new("-json and -t cannot be used with -p and -full"));
    }
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    let mut query = found.query().with("diffs", (call.flags.on("p") || call.flags.on("full")).to_string());
    for (flag, name) in [("diff-tag", "diff_tag"), ("diff-version", "diff_version")] {
        if let Some(text) = call.flags.text(flag) {
            query = query.with(name, text);
        }
    }
    let (answer, _): (Value, _) =
        client.get(&format!("{}/versions", found.path()), &query).await.attempt("Error retrieving job versions")?;
    let versions = answer.list("Versions");
    let diffs = answer.list("Diffs");
    if let Some(wanted) = call.flags.text("version").map(str::to_string) {
        let Some(at) = versions.iter().position(|v| v.int("Version").to_string() == wanted) else {
            return Err(Failure::new(format!("Job version {wanted} of {:?} is not kept", found.id)));
        };
        let (Some(version), diff) = (versions.get(at), diffs.get(at)) else { return Ok(1) };
        if call.formatted(version)? {
            return Ok(0);
        }
        let text = version_text(call, version, diff);
        call.terminal.line(text);
        return Ok(0);
    }
    if call.formatted(answer.at("Versions"))? {
        return Ok(0);
    }
    let blocks: Vec<String> =
        versions.iter().enumerate().map(|(at, version)| version_text(call, version, diffs.get(at))).collect();
    call.terminal.line(blocks.join("\n\n"));
    Ok(0)
}

fn version_text(call: &Call<'_>, version: &Value, diff: Option<&Value>) -> String {
    let mut lines = vec![
        format!("Version|{}", version.int("Version")),
        format!("Stable|{}", version.on("Stable")),
        format!("Submit Date|{}", call.times().show(version.int("SubmitTime"))),
    ];
    let tag = version.at("VersionTag");
    if tag.is_object() {
        lines.push(format!("Tag Name|{}", tag.text("Name")));
        if !tag.text("Description").is_empty() {
            lines.push(format!("Tag Description|{}", tag.text("Description")));
        }
    }
    let mut out = pairs(&lines);
    if let Some(diff) = diff.filter(|d| d.is_object()) {
        let differ = Differ { terminal: call.terminal, verbose: true };
        let width = if tag.is_object() { "Tag Description".len() } else { "Submit Date".len() };
        out.push_str(&format!("\n{:width$} = \n{}", "Diff", differ.job(diff).trim_end_matches('\n')));
    }
    if call.flags.on("full") {
        out.push_str(&format!("\n{:11} = \n{}", "Full", pretty(version)));
    }
    out
}

/// `job deployments`.
pub async fn deployments(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    if call.flags.on("latest") {
        let (latest, _): (Value, _) = client
            .get(&format!("{}/deployment", found.path()), &found.query())
            .await
            .attempt("Error retrieving deployments")?;
        if call.formatted(&latest)? {
            return Ok(0);
        }
        let text = if latest.is_object() {
            deployment::describe(&latest, call.verbose(), &call.times())
        } else {
            "No deployment found".to_string()
        };
        call.terminal.line(text);
        return Ok(0);
    }
    let query = found.query().with("all", call.flags.on("all").to_string());
    let (all, _): (Value, _) =
        client.get(&format!("{}/deployments", found.path()), &query).await.attempt("Error retrieving deployments")?;
    if call.formatted(&all)? {
        return Ok(0);
    }
    let mut sorted = members(&all).to_vec();
    sorted.sort_by_key(|d| std::cmp::Reverse(d.int("CreateIndex")));
    let text = if sorted.is_empty() {
        "No deployments found".to_string()
    } else {
        deployment::list_text(&sorted, call.verbose(), false)
    };
    call.terminal.line(text);
    Ok(0)
}

/// `job allocs`.
pub async fn allocs(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    let all = allocations_of(&client, &found, call.flags.on("all")).await?;
    if call.formatted(&all)? {
        return Ok(0);
    }
    let text = match members(&all) {
        [] => "No allocations placed".to_string(),
        some => crate::alloc::list_text(some, call.verbose(), &call.times()),
    };
    call.terminal.line(text);
    Ok(0)
}

/// `job scaling-events`.
pub async fn scaling_events(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    let (status, _): (Value, _) =
        client.get(&format!("{}/scale", found.path()), &found.query()).await.attempt("Error listing scaling events")?;
    let mut events: Vec<(&String, &Value)> = Vec::new();
    for (group, state) in status.entries("TaskGroups") {
        events.extend(state.list("Events").iter().map(|e| (group, e)));
    }
    if events.is_empty() {
        call.terminal.line("No events found");
        return Ok(0);
    }
    events.sort_by_key(|(_, e)| std::cmp::Reverse(e.int("Time")));
    let full = call.verbose();
    let mut header = "Task Group|Count|PrevCount".to_string();
    header.push_str(if full { "|Error|Message|Eval ID|Date" } else { "|Date" });
    let mut lines = vec![header];
    let times = call.times();
    for (group, event) in events {
        let count = match event.at("Count") {
            Value::Null => "<none>".to_string(),
            count => count.plain(),
        };
        let more = if full {
            let evaluation = crate::view::or_none(event.text("EvalID")).to_string();
            format!("|{}|{}|{evaluation}", event.on("Error"), event.text("Message").replace('|', "/"))
        } else {
            String::new()
        };
        lines.push(format!("{group}|{count}|{}{more}|{}", event.int("PreviousCount"), times.show(event.int("Time"))));
    }
    call.terminal.line(columns(&lines));
    Ok(0)
}
