//! Deployments: how they look, and the commands about them.

use crate::command::{Attempt, Call, Command, DETACH, FILTER, Failure, JSON, TEMPLATE, UI, VERBOSE};
use crate::flags::Flag;
use crate::format::{Times, id};
use crate::monitor::Monitor;
use crate::terminal::{columns, pairs};
use crate::view::{View, members};
use herdsman_client::{Query, encode_segment};
use serde_json::{Value, json};

/// The commands about deployments.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "deployment fail",
        aliases: &[],
        arguments: "<deployment id>",
        synopsis: "Mark a deployment as failed",
        about: "Ends a running deployment as failed. Where the job says auto_revert, the last stable version comes back.",
        general: true,
        flags: &[DETACH, VERBOSE],
        run: |call| Box::pin(fail(call)),
    },
    Command {
        name: "deployment list",
        aliases: &[],
        arguments: "",
        synopsis: "List deployments",
        about: "Lists all deployments.",
        general: true,
        flags: &[VERBOSE, JSON, FILTER, TEMPLATE],
        run: |call| Box::pin(list(call)),
    },
    Command {
        name: "deployment pause",
        aliases: &[],
        arguments: "<deployment id>",
        synopsis: "Pause a deployment",
        about: "Pauses a deployment: nothing new is placed and no deadline counts until it is resumed.",
        general: true,
        flags: &[VERBOSE],
        run: |call| Box::pin(pause(call)),
    },
    Command {
        name: "deployment promote",
        aliases: &[],
        arguments: "<deployment id>",
        synopsis: "Promote the canaries of a deployment",
        about: "Makes the healthy canaries the new version, and lets the rest of the old one be replaced. All groups, or \
                those that -group names.",
        general: true,
        flags: &[
            Flag::texts("group", "<name>", "Promote this group only; may be given several times."),
            DETACH,
            VERBOSE,
        ],
        run: |call| Box::pin(promote(call)),
    },
    Command {
        name: "deployment resume",
        aliases: &[],
        arguments: "<deployment id>",
        synopsis: "Resume a paused deployment",
        about: "Lets a paused deployment go on.",
        general: true,
        flags: &[DETACH, VERBOSE],
        run: |call| Box::pin(resume(call)),
    },
    Command {
        name: "deployment status",
        aliases: &[],
        arguments: "<deployment id>",
        synopsis: "Show one deployment",
        about: "Shows how far a deployment is. On a terminal a running one is watched to its end.",
        general: true,
        flags: &[
            VERBOSE,
            JSON,
            Flag::switch("monitor", "Watch it to its end; the default on a terminal."),
            TEMPLATE,
            Flag::duration("wait", "Accepted for old scripts: the watch prints each change as it happens."),
            UI,
        ],
        run: |call| Box::pin(status(call)),
    },
    Command {
        name: "deployment unblock",
        aliases: &[],
        arguments: "<deployment id>",
        synopsis: "Unblock a blocked deployment",
        about: "Lets a deployment of a multiregion job go on without waiting for the other regions.",
        general: true,
        flags: &[DETACH, VERBOSE],
        run: |call| Box::pin(unblock(call)),
    },
];

/// A deployment as text. Source: `goldens/cli/098-deployment-status.txt`.
pub fn describe(deployment: &Value, full: bool, times: &Times) -> String {
    let mut head = vec![
        format!("ID|{}", id(deployment.text("ID"), full)),
        format!("Job ID|{}", deployment.text("JobID")),
        format!("Job Version|{}", deployment.int("JobVersion")),
    ];
    head.extend(state_lines(deployment));
    format!("{}\n\n{}", pairs(&head), groups(deployment, times))
}

/// The latest deployment of a job, as `job status` shows it.
pub fn describe_latest(deployment: &Value, full: bool, times: &Times) -> String {
    let mut head = vec![format!("ID|{}", id(deployment.text("ID"), full))];
    head.extend(state_lines(deployment));
    format!("{}\n\n{}", pairs(&head), groups(deployment, times))
}

fn state_lines(deployment: &Value) -> [String; 2] {
    [format!("Status|{}", deployment.text("Status")), format!("Description|{}", deployment.text("StatusDescription"))]
}

/// The table of task groups. Columns that would say nothing are left out.
fn groups(deployment: &Value, times: &Times) -> String {
    let groups = deployment.entries("TaskGroups");
    let any = |test: &dyn Fn(&Value) -> bool| groups.iter().any(|(_, g)| test(g));
    let revert = any(&|g| g.on("AutoRevert"));
    let canaries = any(&|g| g.int("DesiredCanaries") > 0);
    let deadline = any(&|g| g.int("ProgressDeadline") != 0);
    let mut header = vec!["Task Group"];
    let choose = |header: &mut Vec<&str>, on: bool, name: &'static str| {
        if on {
            header.push(name);
        }
    };
    choose(&mut header, revert, "Auto Revert");
    choose(&mut header, canaries, "Promoted");
    header.push("Desired");
    choose(&mut header, canaries, "Canaries");
    header.extend(["Placed", "Healthy", "Unhealthy"]);
    choose(&mut header, deadline, "Progress Deadline");
    let mut lines = vec![header.join("|")];
    for (name, group) in &groups {
        let wanted = group.int("DesiredCanaries") > 0;
        let mut row = vec![(*name).clone()];
        if revert {
            row.push(group.on("AutoRevert").to_string());
        }
        if canaries {
            row.push(if wanted { group.on("Promoted").to_string() } else { "N/A".to_string() });
        }
        row.push(group.int("DesiredTotal").to_string());
        if canaries {
            row.push(if wanted { group.int("DesiredCanaries").to_string() } else { "N/A".to_string() });
        }
        for key in ["PlacedAllocs", "HealthyAllocs", "UnhealthyAllocs"] {
            row.push(group.int(key).to_string());
        }
        if deadline {
            row.push(times.shown(group.text("RequireProgressBy")));
        }
        lines.push(row.join("|"));
    }
    format!("Deployed\n{}", columns(&lines))
}

/// Deployments as a table.
pub fn list_text(deployments: &[Value], full: bool, namespaces: bool) -> String {
    let mut lines = vec![if namespaces {
        "ID|Job ID|Namespace|Job Version|Status|Description".to_string()
    } else {
        "ID|Job ID|Job Version|Status|Description".to_string()
    }];
    for d in deployments {
        let space = if namespaces { format!("{}|", d.text("Namespace")) } else { String::new() };
        lines.push(format!(
            "{}|{}|{space}{}|{}|{}",
            id(d.text("ID"), full),
            d.text("JobID"),
            d.int("JobVersion"),
            d.text("Status"),
            d.text("StatusDescription")
        ));
    }
    columns(&lines)
}

async fn list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (all, _): (Value, _) =
        client.get("/v1/deployments", &call.paged()).await.attempt("Error retrieving deployments")?;
    if call.formatted(&all)? {
        return Ok(0);
    }
    if members(&all).is_empty() {
        call.terminal.line("No deployments found");
        return Ok(0);
    }
    // Newest first, as a reader wants them.
    let mut sorted: Vec<Value> = members(&all).to_vec();
    sorted.sort_by_key(|d| std::cmp::Reverse(d.int("CreateIndex")));
    let text = list_text(&sorted, call.verbose(), client.options().namespace == "*");
    call.terminal.line(text);
    Ok(0)
}

async fn status(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    if call.flags.words.is_empty() && call.wants_data() {
        let (all, _): (Value, _) =
            client.get("/v1/deployments", &Query::none()).await.attempt("Error retrieving deployments")?;
        call.formatted(&all)?;
        return Ok(0);
    }
    let word = call.one_word()?.to_string();
    show(call, &word).await
}

/// Shows one deployment, as `deployment status` does.
///
/// # Errors
/// There is none such, or the agent cannot be asked.
pub async fn show(call: &mut Call<'_>, word: &str) -> Result<u8, Failure> {
    let client = call.client()?;
    let deployment = call.find_deployment(&client, word).await?;
    if call.formatted(&deployment)? {
        return Ok(0);
    }
    let watched = call.flags.on_or("monitor", call.terminal.interactive());
    if watched && matches!(deployment.text("Status"), "running" | "paused" | "pending" | "blocked") {
        let times = call.times();
        let verbose = call.verbose();
        let mut monitor = Monitor { client: &client, times, verbose, terminal: call.terminal };
        monitor.deployment(deployment.text("ID")).await?;
        return Ok(0);
    }
    let text = describe(&deployment, call.verbose(), &call.times());
    call.terminal.line(text);
    Ok(0)
}

async fn change(call: &mut Call<'_>, verb: &str, doing: &str, body: Value) -> Result<(Value, Value), Failure> {
    let client = call.client()?;
    let word = call.one_word()?.to_string();
    let deployment = call.find_deployment(&client, &word).await?;
    let mut body = body;
    if let Some(object) = body.as_object_mut() {
        object.insert("DeploymentID".to_string(), deployment.at("ID").clone());
    }
    let path = format!("/v1/deployment/{verb}/{}", encode_segment(deployment.text("ID")));
    let (answer, _): (Value, _) =
        client.put(&path, &Query::none(), &body).await.attempt(&format!("Error {doing} deployment"))?;
    Ok((deployment, answer))
}

async fn fail(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (deployment, answer) = change(call, "fail", "failing", json!({})).await?;
    let short = id(deployment.text("ID"), call.verbose()).to_string();
    if answer.at("RevertedJobVersion").is_null() {
        call.terminal.line(format!("Deployment {short:?} failed"));
    } else {
        let version = answer.int("RevertedJobVersion");
        call.terminal.line(format!("Deployment {short:?} failed. Auto-reverted to job version {version}."));
    }
    after(call, &answer).await
}

async fn pause(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (deployment, _) = change(call, "pause", "pausing", json!({ "Pause": true })).await?;
    let short = id(deployment.text("ID"), call.verbose()).to_string();
    call.terminal.line(format!("Deployment {short:?} paused"));
    Ok(0)
}

async fn resume(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (deployment, answer) = change(call, "pause", "resuming", json!({ "Pause": false })).await?;
    let short = id(deployment.text("ID"), call.verbose()).to_string();
    call.terminal.line(format!("Deployment {short:?} resumed"));
    after(call, &answer).await
}

async fn unblock(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (deployment, answer) = change(call, "unblock", "unblocking", json!({})).await?;
    let short = id(deployment.text("ID"), call.verbose()).to_string();
    call.terminal.line(format!("Deployment {short:?} unblocked"));
    after(call, &answer).await
}

async fn promote(call: &mut Call<'_>) -> Result<u8, Failure> {
    let groups = call.flags.texts("group").to_vec();
    let body = if groups.is_empty() { json!({ "All": true }) } else { json!({ "Groups": groups }) };
    let (_, answer) = change(call, "promote", "promoting", body).await?;
    after(call, &answer).await
}

/// Prints the id of the evaluation a change made, or watches it.
async fn after(call: &mut Call<'_>, answer: &Value) -> Result<u8, Failure> {
    let client = call.client()?;
    crate::job::control::finish(call, &client, answer.text("EvalID"), "").await
}
