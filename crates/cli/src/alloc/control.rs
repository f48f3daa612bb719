//! Acting on one allocation: signal, restart, stop; and its checks.

use crate::command::{Attempt, Call, Failure};
use crate::find::in_space_of;
use crate::terminal::pairs;
use crate::view::{View, entries_of};
use herdsman_client::{Client, encode_segment};
use serde_json::{Value, json};

/// The allocation of the first word, and the task of the second word or of `-task`; none: all tasks.
async fn target(call: &Call<'_>, client: &Client) -> Result<(Value, Option<String>), Failure> {
    let (word, second) = match call.flags.words.as_slice() {
        [word] => (word.clone(), None),
        [word, task] => (word.clone(), Some(task.clone())),
        _ => return Err(call.usage("This command takes one or two arguments: <alloc-id> <task>")),
    };
    let allocation = call.find_allocation(client, &word).await?;
    let task = call.flags.text("task").map(str::to_string).or(second);
    if let Some(task) = &task {
        crate::find::task_of(&allocation, Some(task))?;
    }
    Ok((allocation, task))
}

/// `alloc signal`.
pub async fn signal(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (allocation, task) = target(call, &client).await?;
    let signal = call.flags.text("s").unwrap_or("SIGKILL");
    let path = format!("/v1/client/allocation/{}/signal", encode_segment(allocation.text("ID")));
    let body = json!({ "Signal": signal, "Task": task.unwrap_or_default() });
    let _: (Value, _) =
        client.put(&path, &in_space_of(&allocation), &body).await.attempt("Error signalling allocation")?;
    Ok(0)
}

/// `alloc restart`.
pub async fn restart(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (allocation, task) = target(call, &client).await?;
    if task.is_some() && call.flags.on("all-tasks") {
        return Err(Failure::new("The -all-tasks option is not allowed when a task is named"));
    }
    let path = format!("/v1/client/allocation/{}/restart", encode_segment(allocation.text("ID")));
    let body = json!({ "TaskName": task.unwrap_or_default(), "AllTasks": call.flags.on("all-tasks") });
    let _: (Value, _) =
        client.put(&path, &in_space_of(&allocation), &body).await.attempt("Failed to restart allocation")?;
    Ok(0)
}

/// `alloc stop`.
pub async fn stop(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let allocation = call.find_allocation(&client, &word).await?;
    let mut query = in_space_of(&allocation);
    if call.flags.on("no-shutdown-delay") {
        query = query.with("no_shutdown_delay", "true");
    }
    let path = format!("/v1/allocation/{}/stop", encode_segment(allocation.text("ID")));
    let (answer, _): (Value, _) = client.put(&path, &query, &json!({})).await.attempt("Error stopping allocation")?;
    if call.flags.on("detach") {
        call.terminal.line(answer.text("EvalID"));
        return Ok(0);
    }
    call.monitor(&client, answer.text("EvalID")).await
}

/// `alloc checks`.
pub async fn checks(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let allocation = call.find_allocation(&client, &word).await?;
    let path = format!("/v1/client/allocation/{}/checks", encode_segment(allocation.text("ID")));
    let (found, _): (Value, _) =
        client.get(&path, &in_space_of(&allocation)).await.attempt("Error querying service checks")?;
    if call.formatted(&found)? {
        return Ok(0);
    }
    let checks = entries_of(&found);
    if checks.is_empty() {
        call.terminal.line("No Nomad service checks");
        return Ok(0);
    }
    call.terminal.line(format!("Status of {} Nomad Service Checks\n", checks.len()));
    let times = call.times();
    for (_, check) in checks {
        let text = |key: &str| crate::terminal::cell(check.text(key));
        let task = match check.text("Task") {
            "" => "(group)".to_string(),
            task => task.to_string(),
        };
        let mut lines = vec![
            format!("ID|{}", text("ID")),
            format!("Name|{}", text("Check")),
            format!("Group|{}", text("Group")),
            format!("Task|{task}"),
            format!("Service|{}", text("Service")),
            format!("Status|{}", text("Status")),
        ];
        if check.int("StatusCode") > 0 {
            lines.push(format!("StatusCode|{}", check.int("StatusCode")));
        }
        lines.push(format!("Mode|{}", text("Mode")));
        lines.push(format!("Timestamp|{}", times.show(check.int("Timestamp").saturating_mul(1_000_000_000))));
        lines.push(format!("Output|{}", text("Output")));
        // This table alone has two blanks round its equals signs; scripts cut by them.
        let shown: Vec<String> = pairs(&lines).lines().map(|l| l.replacen(" = ", "  =  ", 1)).collect();
        call.terminal.line(shown.join("\n"));
        call.terminal.line("");
    }
    Ok(0)
}
