//! `alloc logs` and `alloc fs`.

use super::stream::{DEFAULT_TAIL, Form, From, Output, Printing, print};
use crate::command::{Attempt, Call, Failure};
use crate::find::{in_space_of, task_of};
use crate::format::{bytes, nanoseconds_of};
use crate::terminal::columns;
use crate::view::{View, members};
use herdsman_client::{Client, encode_segment};
use serde_json::Value;

/// The allocation that the first word names: by its id, or with `-job` a running one of the job.
///
/// # Errors
/// There is none.
pub async fn allocation(call: &Call<'_>, client: &Client, word: &str) -> Result<Value, Failure> {
    if !call.flags.on("job") {
        return call.find_allocation(client, word).await;
    }
    let found = call.find_job(client, word).await?;
    let group = call.flags.text("group").map(str::to_string);
    running_of(client, &found, group.as_deref(), None).await
}

/// A running allocation of a job, of a group and with a task where they are named.
///
/// # Errors
/// There is none.
pub async fn running_of(
    client: &Client,
    found: &crate::find::FoundJob,
    group: Option<&str>,
    task: Option<&str>,
) -> Result<Value, Failure> {
    let list = crate::job::control::allocations_of(client, found, false).await?;
    let fits = |a: &&Value| {
        group.is_none_or(|g| a.text("TaskGroup") == g) && task.is_none_or(|t| a.at("TaskStates").get(t).is_some())
    };
    let chosen =
        members(&list).iter().filter(fits).max_by_key(|a| (a.text("ClientStatus") == "running", a.int("CreateIndex")));
    let Some(chosen) = chosen else {
        let of = group.map(|g| format!(" in group {g:?}")).unwrap_or_default();
        return Err(Failure::new(format!("No allocations of job {:?}{of} found", found.id)));
    };
    let path = format!("/v1/allocation/{}", encode_segment(chosen.text("ID")));
    let (value, _) = client.get(&path, &found.query()).await.attempt("Error querying allocation")?;
    Ok(value)
}

fn beginning(call: &Call<'_>) -> Result<From, Failure> {
    let number = |flag: &str| call.number(flag).map(|n| usize::try_from(n).unwrap_or(0));
    if !(call.flags.on("tail") || call.flags.given("n") || call.flags.given("c")) {
        return Ok(From::Start);
    }
    match (number("n"), number("c")) {
        (Some(_), Some(_)) => Err(Failure::new("Only one of -n and -c says how much is shown")),
        (_, Some(count)) => Ok(From::Bytes(count)),
        (lines, None) => Ok(From::Lines(lines.unwrap_or(DEFAULT_TAIL))),
    }
}

/// `alloc logs`.
pub async fn logs(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (word, second) = match call.flags.words.as_slice() {
        [word] => (word.clone(), None),
        [word, task] => (word.clone(), Some(task.clone())),
        _ => return Err(call.usage("This command takes one or two arguments: <allocation> [task]")),
    };
    let from = beginning(call)?;
    let client = call.client()?;
    let allocation = allocation(call, &client, &word).await?;
    let named = call.flags.text("task").map(str::to_string).or(second);
    let task = task_of(&allocation, named.as_deref())
        .map_err(|f| Failure::new(format!("Failed to validate task: {}", f.message)))?;
    let kinds: Vec<(&str, Output)> = match (call.flags.on("stdout"), call.flags.on("stderr")) {
        (true, true) => vec![("stdout", Output::Standard), ("stderr", Output::Error)],
        (false, true) => vec![("stderr", Output::Standard)],
        _ => vec![("stdout", Output::Standard)],
    };
    let path = format!("/v1/client/fs/logs/{}", encode_segment(allocation.text("ID")));
    let mut open = Vec::new();
    for (kind, output) in kinds {
        let query = in_space_of(&allocation)
            .with("task", task.clone())
            .with("type", kind)
            .with("follow", call.flags.on("f").to_string());
        open.push(Printing::open(&client, &path, query, from, output, Form::Plain).await?);
    }
    print_all(call, open).await
}

/// Prints streams side by side until all have ended, or the user has seen enough.
async fn print_all(call: &mut Call<'_>, mut open: Vec<Printing>) -> Result<u8, Failure> {
    while !open.is_empty() {
        let (result, at, _) = {
            let waits = open.iter_mut().map(|p| Box::pin(p.next()));
            let all = futures::future::select_all(waits);
            tokio::select! {
                done = all => done,
                _ = tokio::signal::ctrl_c() => return Ok(0),
            }
        };
        match result? {
            Some(piece) => {
                let output = open.get(at).map_or(Output::Standard, Printing::output);
                print(call.terminal, output, &piece);
            }
            None => {
                open.remove(at);
            }
        }
    }
    Ok(0)
}

/// `alloc fs`.
pub async fn fs(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (word, path) = match call.flags.words.as_slice() {
        [word] => (word.clone(), "/".to_string()),
        [word, path] => (word.clone(), path.clone()),
        _ => return Err(call.usage("This command takes one or two arguments: <allocation> [path]")),
    };
    let from = beginning(call)?;
    let client = call.client()?;
    let allocation = allocation(call, &client, &word).await?;
    let id = encode_segment(allocation.text("ID"));
    let query = in_space_of(&allocation).with("path", path.clone());
    let (stat, _): (Value, _) =
        client.get(&format!("/v1/client/fs/stat/{id}"), &query).await.map_err(|e| Failure::new(e.to_string()))?;
    if call.flags.on("stat") {
        let text = stat_text(call, &stat);
        call.terminal.line(text);
        return Ok(0);
    }
    if stat.on("IsDir") {
        let (list, _): (Value, _) =
            client.get(&format!("/v1/client/fs/ls/{id}"), &query).await.map_err(|e| Failure::new(e.to_string()))?;
        let text = list_text(call, members(&list));
        call.terminal.line(text);
        return Ok(0);
    }
    let follow = call.flags.on("f");
    if from == From::Start && !follow {
        let mut stream = client
            .stream("GET", &format!("/v1/client/fs/cat/{id}"), &query, None)
            .await
            .map_err(|e| Failure::new(e.to_string()))?;
        while let Some(piece) = stream.next().await.attempt("Error reading file")? {
            call.terminal.raw(&piece);
        }
        return Ok(0);
    }
    let query = query.with("follow", follow.to_string());
    let path = format!("/v1/client/fs/stream/{id}");
    let open = Printing::open(&client, &path, query, from, Output::Standard, Form::Frames).await?;
    print_all(call, vec![open]).await
}

/// Size and time of a file, for people or in full.
fn size_and_time(call: &Call<'_>, file: &Value) -> (String, String) {
    if call.flags.on("H") {
        return (file.int("Size").to_string(), file.text("ModTime").to_string());
    }
    (bytes(file.int("Size")), call.times().show(nanoseconds_of(file.text("ModTime"))))
}

fn stat_text(call: &Call<'_>, file: &Value) -> String {
    let (size, time) = size_and_time(call, file);
    let name = shown_name(file);
    columns(&[
        "Mode|Size|Modified Time|Content Type|Name".to_string(),
        format!("{}|{size}|{time}|{}|{name}", file.text("FileMode"), file.text("ContentType")),
    ])
}

fn list_text(call: &Call<'_>, files: &[Value]) -> String {
    let mut lines = vec!["Mode|Size|Modified Time|Name".to_string()];
    for file in files {
        let (size, time) = size_and_time(call, file);
        lines.push(format!("{}|{size}|{time}|{}", file.text("FileMode"), shown_name(file)));
    }
    columns(&lines)
}

fn shown_name(file: &Value) -> String {
    let name = crate::terminal::cell(file.text("Name"));
    if file.on("IsDir") { format!("{name}/") } else { name }
}
