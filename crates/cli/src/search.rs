//! `status`: whatever an id begins with, shown by the command for its kind.

use crate::command::{Attempt, Call, Command, Failure, UI, VERBOSE};
use crate::flags::Flag;
use crate::format::id_prefix;
use crate::view::View;
use herdsman_client::{Client, Query};
use serde_json::{Value, json};

/// The command.
pub const COMMANDS: &[Command] = &[Command {
    name: "status",
    aliases: &[],
    arguments: "[identifier]",
    synopsis: "Display the status output for a resource",
    about: "Shows a job, allocation, node, evaluation, deployment, node pool or namespace by the beginning of its id; \
            without one, the list of jobs.",
    general: true,
    flags: &[VERBOSE, UI, Flag::switch("json", "As JSON."), Flag::text("t", "<template>", "Through a Go template.")],
    run: |call| Box::pin(status(call)),
}];

async fn status(call: &mut Call<'_>) -> Result<u8, Failure> {
    if call.flags.words.is_empty() {
        return crate::job::status::list(call).await;
    }
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let kind = kind_of(&client, &word).await?;
    match kind.as_str() {
        "jobs" => crate::job::status::show(call, &word).await,
        "allocs" => crate::alloc::status::show(call, &word).await,
        "nodes" => crate::node::status::show_named(call, &word).await,
        "evals" => crate::eval::show(call, &word).await,
        "deployment" => crate::deployment::show(call, &word).await,
        other => Err(Failure::new(format!(
            "Unable to resolve ID {word:?}: it names something among {other}, which no status shows"
        ))),
    }
}

/// What kind of thing an id begins with.
async fn kind_of(client: &Client, word: &str) -> Result<String, Failure> {
    let matches = search(client, word).await?;
    let kinds: Vec<(String, Vec<String>)> = matches
        .entries("Matches")
        .into_iter()
        .map(|(kind, ids)| (kind.clone(), ids.as_array().into_iter().flatten().map(View::plain).collect::<Vec<_>>()))
        .filter(|(_, ids)| !ids.is_empty())
        .collect();
    let exact: Vec<&String> = kinds.iter().filter(|(_, ids)| ids.iter().any(|i| i == word)).map(|(k, _)| k).collect();
    match (kinds.as_slice(), exact.as_slice()) {
        ([], _) => Err(Failure::new(format!("Unable to resolve ID: {word:?}"))),
        ([(only, _)], _) => Ok(only.clone()),
        (_, [only]) => Ok((*only).clone()),
        _ => {
            let mut text = "Multiple matches found for id:\n".to_string();
            for (kind, ids) in &kinds {
                text.push_str(&format!("\n{}:\n", kind));
                text.push_str(&ids.iter().map(|i| format!("  {i}")).collect::<Vec<_>>().join("\n"));
            }
            Err(Failure::new(text))
        }
    }
}

async fn search(client: &Client, word: &str) -> Result<Value, Failure> {
    let ask = |prefix: String| {
        let client = client.clone();
        async move {
            let body = json!({ "Prefix": prefix, "Context": "all" });
            client.put::<_, Value>("/v1/search", &Query::none(), &body).await.attempt("Error querying search with id")
        }
    };
    let (answer, _) = ask(word.to_string()).await?;
    let found = answer.entries("Matches").iter().any(|(_, ids)| ids.as_array().is_some_and(|a| !a.is_empty()));
    let even = id_prefix(word);
    if found || even == word || even.is_empty() {
        return Ok(answer);
    }
    // An id in hexadecimal digits is searched by whole bytes; the last digit is compared here.
    let (mut answer, _) = ask(even).await?;
    if let Some(matches) = answer.get_mut("Matches").and_then(Value::as_object_mut) {
        for ids in matches.values_mut().filter_map(Value::as_array_mut) {
            ids.retain(|i| i.as_str().is_some_and(|i| i.starts_with(word)));
        }
    }
    Ok(answer)
}
