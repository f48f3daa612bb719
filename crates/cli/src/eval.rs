//! The commands about evaluations.

use crate::command::{Attempt, Call, Command, FILTER, Failure, JSON, PAGE_TOKEN, PER_PAGE, TEMPLATE, UI, VERBOSE};
use crate::flags::Flag;
use crate::format::id;
use crate::placement;
use crate::terminal::{cell, columns, pairs};
use crate::view::{View, members};
use herdsman_client::{Query, encode_segment};
use serde_json::{Value, json};

/// The commands about evaluations.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "eval delete",
        aliases: &[],
        arguments: "<evaluation>",
        synopsis: "Delete evaluations",
        about: "Deletes one evaluation, or all that -filter selects. The broker must be paused before: \
                operator scheduler set-config -pause-eval-broker=true.",
        general: true,
        flags: &[FILTER, Flag::switch("yes", "Do not ask.")],
        run: |call| Box::pin(delete(call)),
    },
    Command {
        name: "eval list",
        aliases: &[],
        arguments: "",
        synopsis: "List the set of evaluations tracked",
        about: "Lists evaluations.",
        general: true,
        flags: &[
            VERBOSE,
            JSON,
            TEMPLATE,
            UI,
            PER_PAGE,
            PAGE_TOKEN,
            FILTER,
            Flag::text("job", "<id>", "Only of this job."),
            Flag::text("status", "<status>", "Only with this status."),
        ],
        run: |call| Box::pin(list(call)),
    },
    Command {
        name: "eval status",
        aliases: &["eval-status"],
        arguments: "<evaluation>",
        synopsis: "Display evaluation status and placement failures",
        about: "Shows an evaluation: what made it, what it planned, what it could not place and why.",
        general: true,
        flags: &[Flag::switch("monitor", "Watch it to its end."), VERBOSE, JSON, TEMPLATE, UI],
        run: |call| Box::pin(status(call)),
    },
];

/// Whether an evaluation left something unplaced, as text.
pub fn failures_of(eval: &Value) -> String {
    match eval.text("Status") {
        "blocked" | "pending" => "N/A - In Progress".to_string(),
        _ => (!eval.entries("FailedTGAllocs").is_empty()).to_string(),
    }
}

/// Evaluations as a table.
pub fn list_text(evals: &[Value], full: bool) -> String {
    let mut lines = vec!["ID|Priority|Triggered By|Job ID|Namespace|Node ID|Status|Placement Failures".to_string()];
    for e in evals {
        lines.push(format!(
            "{}|{}|{}|{}|{}|{}|{}|{}",
            id(e.text("ID"), full),
            e.int("Priority"),
            e.text("TriggeredBy"),
            e.text("JobID"),
            e.text("Namespace"),
            id(e.text("NodeID"), full),
            e.text("Status"),
            failures_of(e)
        ));
    }
    columns(&lines)
}

async fn list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let mut query = call.paged();
    for (flag, name) in [("job", "job"), ("status", "status")] {
        if let Some(text) = call.flags.text(flag) {
            query = query.with(name, text);
        }
    }
    let (all, meta): (Value, _) = client.get("/v1/evaluations", &query).await.attempt("Error querying evaluations")?;
    if call.wants_data() {
        call.formatted(&crate::shape::all(&all, crate::shape::EVALUATION))?;
        return Ok(0);
    }
    if members(&all).is_empty() {
        call.terminal.line("No evals found");
        return Ok(0);
    }
    let text = list_text(members(&all), call.verbose());
    call.terminal.line(text);
    next_page(call, &meta.next_token);
    Ok(0)
}

/// Says how to get the next page, when there is one. Source: `goldens/cli/127-eval-list.txt`.
pub fn next_page(call: &mut Call<'_>, token: &str) {
    if token.is_empty() {
        return;
    }
    let mut flags = String::new();
    for name in ["filter", "job", "status", "per-page"] {
        if let Some(value) = call.flags.text(name) {
            let value = if value.contains(' ') { format!("'{value}'") } else { value.to_string() };
            flags.push_str(&format!(" -{name} {value}"));
        }
    }
    let words = call.flags.words.iter().map(|w| format!(" {w}")).collect::<String>();
    let (program, name) = (call.terminal.program().to_string(), call.command.name);
    call.terminal.line(format!(
        "\nResults have been paginated. To get the next page run:\n\n{program} {name}{flags} -page-token {token}{words}"
    ));
}

async fn status(call: &mut Call<'_>) -> Result<u8, Failure> {
    if call.flags.words.is_empty() && call.wants_data() {
        return list(call).await;
    }
    let word = call.one_word()?.to_string();
    show(call, &word).await
}

/// Shows one evaluation.
///
/// # Errors
/// There is none such, or the agent cannot be asked.
pub async fn show(call: &mut Call<'_>, word: &str) -> Result<u8, Failure> {
    let client = call.client()?;
    let eval = call.find_evaluation(&client, word).await?;
    if call.flags.on("monitor") {
        return call.monitor(&client, eval.text("ID")).await;
    }
    if call.wants_data() {
        call.formatted(&crate::shape::one(&eval, crate::shape::EVALUATION))?;
        return Ok(0);
    }
    let text = head(call, &eval);
    call.terminal.line(text);
    if let Some(text) = related(&eval, call.verbose()) {
        call.terminal.line(format!("\nRelated Evaluations\n{text}"));
    }
    if let Some(text) = annotations(&eval) {
        call.terminal.line(format!("\nPlan Annotations\n{text}"));
    }
    placed(call, &client, &eval).await?;
    if !eval.entries("FailedTGAllocs").is_empty() {
        call.terminal.line(format!("\nFailed Placements\n{}", placement::failures(&eval)));
        if !eval.text("BlockedEval").is_empty() {
            let blocked = id(eval.text("BlockedEval"), call.verbose()).to_string();
            call.terminal.line(format!("\nEvaluation {blocked:?} waiting for additional capacity to place remainder"));
        }
    }
    Ok(0)
}

fn head(call: &Call<'_>, eval: &Value) -> String {
    let (times, full) = (call.times(), call.verbose());
    let description = match eval.text("StatusDescription") {
        "" => eval.text("Status"),
        text => text,
    };
    let mut lines = vec![
        format!("ID|{}", id(eval.text("ID"), full)),
        format!("Create Time|{}", times.when(eval.int("CreateTime"), full)),
        format!("Modify Time|{}", times.when(eval.int("ModifyTime"), full)),
        format!("Status|{}", eval.text("Status")),
        format!("Status Description|{}", cell(description)),
        format!("Type|{}", eval.text("Type")),
        format!("TriggeredBy|{}", eval.text("TriggeredBy")),
    ];
    if !eval.text("NodeID").is_empty() {
        lines.push(format!("Node ID|{}", id(eval.text("NodeID"), full)));
    } else {
        lines.push(format!("Job ID|{}", eval.text("JobID")));
    }
    lines.push(format!("Namespace|{}", eval.text("Namespace")));
    lines.push(format!("Priority|{}", eval.int("Priority")));
    if !eval.text("WaitUntil").is_empty() && times.shown(eval.text("WaitUntil")) != "N/A" {
        lines.push(format!("Wait Until|{}", times.shown(eval.text("WaitUntil"))));
    }
    lines.push(format!("Placement Failures|{}", failures_of(eval)));
    for (name, key) in [("Previous Eval", "PreviousEval"), ("Next Eval", "NextEval"), ("Blocked Eval", "BlockedEval")] {
        lines.push(format!("{name}|{}", id(eval.text(key), full)));
    }
    pairs(&lines)
}

fn related(eval: &Value, full: bool) -> Option<String> {
    let mut lines = vec!["ID|Priority|Triggered By|Node ID|Status|Description".to_string()];
    for e in eval.list("RelatedEvals") {
        lines.push(format!(
            "{}|{}|{}|{}|{}|{}",
            id(e.text("ID"), full),
            e.int("Priority"),
            e.text("TriggeredBy"),
            id(e.text("NodeID"), full),
            e.text("Status"),
            cell(e.text("StatusDescription"))
        ));
    }
    (lines.len() > 1).then(|| columns(&lines))
}

fn annotations(eval: &Value) -> Option<String> {
    let groups = eval.at("PlanAnnotations").entries("DesiredTGUpdates");
    let more = [
        ("Migrate", "Migrate"),
        ("Canary", "Canary"),
        ("Preemptions", "Preemptions"),
        ("Disconnect", "Disconnect"),
        ("Reconnect", "Reconnect"),
        ("RescheduleNow", "Reschedule Now"),
        ("RescheduleLater", "Reschedule Later"),
    ];
    // The rarer columns stand only where they say something.
    let more: Vec<_> = more.iter().filter(|(key, _)| groups.iter().any(|(_, u)| u.int(key) > 0)).collect();
    let mut header = "Task Group|Ignore|Place|Stop|InPlace|Destructive".to_string();
    for (_, name) in &more {
        header.push_str(&format!("|{name}"));
    }
    let mut lines = vec![header];
    for (group, updates) in &groups {
        let mut line = (*group).clone();
        let usual = ["Ignore", "Place", "Stop", "InPlaceUpdate", "DestructiveUpdate"];
        for key in usual.iter().chain(more.iter().map(|(key, _)| key)) {
            line.push_str(&format!("|{}", updates.int(key)));
        }
        lines.push(line);
    }
    (lines.len() > 1).then(|| columns(&lines))
}

/// The allocations that an evaluation placed.
async fn placed(call: &mut Call<'_>, client: &herdsman_client::Client, eval: &Value) -> Result<(), Failure> {
    if matches!(eval.text("Status"), "blocked" | "pending") {
        return Ok(());
    }
    let path = format!("/v1/evaluation/{}/allocations", encode_segment(eval.text("ID")));
    let (all, _): (Value, _) = client.get(&path, &Query::none()).await.attempt("Error querying allocations")?;
    if !members(&all).is_empty() {
        let text = crate::alloc::list_text(members(&all), call.verbose(), &call.times());
        call.terminal.line(format!("\nPlaced Allocations\n{text}"));
    }
    Ok(())
}

async fn delete(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let filter = call.flags.text_or_empty("filter").to_string();
    let body = match (call.flags.words.as_slice(), filter.as_str()) {
        ([word], "") => {
            let word = word.clone();
            let eval = call.find_evaluation(&client, &word).await?;
            json!({ "EvalIDs": [eval.text("ID")] })
        }
        ([], filter) if !filter.is_empty() => {
            let query = Query { filter: filter.to_string(), ..Query::none() };
            let (count, _): (Value, _) =
                client.get("/v1/evaluations/count", &query).await.attempt("Error querying evaluations")?;
            let count = count.int("Count");
            let question = format!("Are you sure you want to delete {count} evals?");
            if count == 0 || (!call.flags.on("yes") && !call.confirm(&question).await?) {
                call.terminal.line("No evals deleted");
                return Ok(0);
            }
            json!({ "Filter": filter })
        }
        _ => return Err(call.usage("Either one evaluation ID or a -filter says what is deleted")),
    };
    let bytes = body.to_string().into_bytes();
    let (answer, _) = client
        .raw("DELETE", "/v1/evaluations", &Query::none(), Some(bytes.into()))
        .await
        .attempt("Error deleting evaluations")?;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or(Value::Null);
    let count = answer.int("Count").max(i64::from(filter.is_empty()));
    call.terminal
        .line(format!("Successfully deleted {count} {}", if count == 1 { "evaluation" } else { "evaluations" }));
    Ok(0)
}
