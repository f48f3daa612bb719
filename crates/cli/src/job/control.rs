//! Changing jobs that exist: stop, start, evaluate, revert, promote, scale, dispatch, launch, tag.

use crate::command::{Attempt, Call, Failure, read_file};
use crate::find::FoundJob;
use crate::format::id;
use crate::monitor::follow;
use crate::view::View;
use base64::Engine as _;
use herdsman_client::{Client, encode_segment};
use serde_json::{Map, Value, json};

/// How long `job dispatch -wait` waits. Source: `compat/cli.tsv`.
const DISPATCH_WAIT_SECONDS: u64 = 5 * 60;

/// Finds the job a command is about to change, and asks when only the beginning of its id was given.
async fn find_to_change(
    call: &mut Call<'_>,
    client: &Client,
    word: &str,
    verb: &str,
) -> Result<Option<FoundJob>, Failure> {
    let found = call.find_job(client, word).await?;
    let sure = found.exact || call.flags.on("yes") || call.flags.on("auto-approve");
    if !sure && !call.confirm(&format!("Are you sure you want to {verb} job {:?}?", found.id)).await? {
        call.terminal.line(format!("Cancelling job {verb}"));
        return Ok(None);
    }
    Ok(Some(found))
}

/// Prints the id of an evaluation, or watches it.
///
/// # Errors
/// The agent cannot be asked.
pub async fn finish(call: &mut Call<'_>, client: &Client, evaluation: &str, done: &str) -> Result<u8, Failure> {
    if call.flags.on("detach") || evaluation.is_empty() {
        if !done.is_empty() {
            call.terminal.line(done);
        }
        if !evaluation.is_empty() {
            call.terminal.line(format!("Evaluation ID: {evaluation}"));
        }
        return Ok(0);
    }
    call.monitor(client, evaluation).await
}

/// `job stop`.
pub async fn stop(call: &mut Call<'_>) -> Result<u8, Failure> {
    if call.flags.words.is_empty() {
        return Err(call.usage("This command takes at least one argument: <job>"));
    }
    let client = call.client()?;
    let mut evaluations = Vec::new();
    for word in call.flags.words.clone() {
        let Some(found) = find_to_change(call, &client, &word, "stop").await? else { continue };
        let mut query = found.query().with("purge", call.flags.on("purge").to_string());
        for (flag, name) in [("global", "global"), ("no-shutdown-delay", "no_shutdown_delay")] {
            if call.flags.on(flag) {
                query = query.with(name, "true");
            }
        }
        if let Some(priority) = call.number("eval-priority") {
            query = query.with("eval_priority", priority.to_string());
        }
        let (answer, _): (Value, _) = client.delete(&found.path(), &query).await.attempt("Error deregistering job")?;
        evaluations.push(answer.text("EvalID").to_string());
    }
    let mut exit = 0;
    for evaluation in evaluations.iter().filter(|e| !e.is_empty()) {
        if call.flags.on("detach") {
            call.terminal.line(evaluation);
            continue;
        }
        let one = call.monitor(&client, evaluation).await?;
        exit = if exit == 0 { one } else { exit };
    }
    Ok(exit)
}

/// `job start`: registers the stopped job again, as it was.
pub async fn start(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let Some(found) = find_to_change(call, &client, &word, "start").await? else { return Ok(0) };
    let (mut job, _): (Value, _) = client.get(&found.path(), &found.query()).await.attempt("Error querying job")?;
    if !job.on("Stop") {
        return Err(Failure::new(format!("Job {:?} is not stopped: its status is {}", found.id, job.text("Status"))));
    }
    let query = found.query().with("version", job.int("Version").to_string());
    let source: Option<Value> = client.get(&format!("{}/submission", found.path()), &query).await.ok().map(|(s, _)| s);
    let index = job.int("JobModifyIndex");
    if let Some(object) = job.as_object_mut() {
        object.insert("Stop".to_string(), json!(false));
    }
    let mut body = json!({ "Job": job, "EnforceIndex": true, "JobModifyIndex": index });
    if let (Some(source), Some(object)) = (source.filter(Value::is_object), body.as_object_mut()) {
        object.insert("Submission".to_string(), source);
    }
    let (answer, _): (Value, _) = client.put("/v1/jobs", &found.query(), &body).await.attempt("Error starting job")?;
    finish(call, &client, answer.text("EvalID"), "Job start successful").await
}

/// `job eval`.
pub async fn evaluate(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    let body = json!({ "JobID": found.id, "EvalOptions": { "ForceReschedule": call.flags.on("force-reschedule") } });
    let (answer, _): (Value, _) = client
        .put(&format!("{}/evaluate", found.path()), &found.query(), &body)
        .await
        .attempt("Error evaluating job")?;
    if call.flags.on("detach") {
        let short = id(answer.text("EvalID"), call.verbose()).to_string();
        call.terminal.line(format!("Created eval ID: {short:?} "));
        return Ok(0);
    }
    call.monitor(&client, answer.text("EvalID")).await
}

/// `job revert`.
pub async fn revert(call: &mut Call<'_>) -> Result<u8, Failure> {
    let [word, version] = call.flags.words.as_slice() else {
        return Err(call.usage("This command takes two arguments: <job> <version|tag>"));
    };
    let (word, version) = (word.clone(), version.clone());
    let client = call.client()?;
    let Some(found) = find_to_change(call, &client, &word, "revert").await? else { return Ok(0) };
    let number = match version.parse::<u64>() {
        Ok(number) => number,
        Err(_) => tagged_version(&client, &found, &version).await?,
    };
    let body = json!({ "JobID": found.id, "JobVersion": number });
    let (answer, _): (Value, _) = client
        .put(&format!("{}/revert", found.path()), &found.query(), &body)
        .await
        .attempt("Error retrieving job versions")?;
    finish(call, &client, answer.text("EvalID"), "").await
}

/// The versions of a job, under `Versions`.
///
/// # Errors
/// The agent cannot be asked.
pub async fn versions_of(client: &Client, found: &FoundJob) -> Result<Value, Failure> {
    let path = format!("{}/versions", found.path());
    let (versions, _) = client.get(&path, &found.query()).await.attempt("Error retrieving job versions")?;
    Ok(versions)
}

/// The number of the version that carries a tag.
async fn tagged_version(client: &Client, found: &FoundJob, tag: &str) -> Result<u64, Failure> {
    let versions = versions_of(client, found).await?;
    versions
        .list("Versions")
        .iter()
        .find(|v| v.at("VersionTag").text("Name") == tag)
        .and_then(|v| u64::try_from(v.int("Version")).ok())
        .ok_or_else(|| {
            Failure::new(format!("Error retrieving job versions: no version of job {:?} has the tag {tag:?}", found.id))
        })
}

/// `job promote`.
pub async fn promote(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    let (latest, _): (Value, _) = client
        .get(&format!("{}/deployment", found.path()), &found.query())
        .await
        .attempt("Error retrieving latest deployment")?;
    if !latest.is_object() {
        return Err(Failure::new(format!("Job {:?} has no deployment to promote", found.id)));
    }
    let deployment = latest.text("ID");
    let groups = call.flags.texts("group");
    let body = if groups.is_empty() {
        json!({ "DeploymentID": deployment, "All": true })
    } else {
        json!({ "DeploymentID": deployment, "Groups": groups })
    };
    let path = format!("/v1/deployment/promote/{}", encode_segment(deployment));
    let (answer, _): (Value, _) = client
        .put(&path, &found.query(), &body)
        .await
        .attempt(&format!("Error promoting deployment {deployment:?} for job {:?}", found.id))?;
    finish(call, &client, answer.text("EvalID"), "").await
}

/// `job scale`.
pub async fn scale(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (word, group, count) = match call.flags.words.as_slice() {
        [job, count] => (job.clone(), None, count.clone()),
        [job, group, count] => (job.clone(), Some(group.clone()), count.clone()),
        _ => return Err(call.usage("This command takes two or three arguments: <job> [<group>] <count>")),
    };
    let count: i64 =
        count.parse().ok().filter(|n| *n >= 0).ok_or_else(|| {
            Failure::new(format!("Failed to convert count: {count:?} is not a whole number from 0 on"))
        })?;
    let client = call.client()?;
    let Some(found) = find_to_change(call, &client, &word, "scale").await? else { return Ok(0) };
    let group = match group {
        Some(group) => group,
        None => only_group(&client, &found).await?,
    };
    let mut body = json!({
        "Count": count,
        "Target": { "Job": found.id, "Group": group },
        "Message": "scaled from the command line",
        "PolicyOverride": false,
    });
    if let (Some(index), Some(object)) = (call.number("check-index"), body.as_object_mut()) {
        object.insert("EnforceIndex".to_string(), json!(true));
        object.insert("JobModifyIndex".to_string(), json!(index));
    }
    let (answer, _): (Value, _) = client
        .put(&format!("{}/scale", found.path()), &found.query(), &body)
        .await
        .attempt("Error submitting scaling request")?;
    if !answer.text("Warnings").is_empty() {
        let text = format!("Job Warnings:\n{}\n", answer.text("Warnings"));
        call.terminal.line(text);
    }
    finish(call, &client, answer.text("EvalID"), "Job scale successful").await
}

async fn only_group(client: &Client, found: &FoundJob) -> Result<String, Failure> {
    let (status, _): (Value, _) = client
        .get(&format!("{}/scale", found.path()), &found.query())
        .await
        .attempt("Error querying job scale status")?;
    match status.entries("TaskGroups").as_slice() {
        [(only, _)] => Ok((*only).clone()),
        several => {
            let names: Vec<&str> = several.iter().map(|(n, _)| n.as_str()).collect();
            Err(Failure::new(format!(
                "Job {:?} has several task groups: name the one to scale ({})",
                found.id,
                names.join(", ")
            )))
        }
    }
}

/// `job periodic force`.
pub async fn periodic_force(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    let (answer, _): (Value, _) = client
        .put(&format!("{}/periodic/force", found.path()), &found.query(), &json!({}))
        .await
        .attempt(&format!("Error forcing periodic job {:?}", found.id))?;
    finish(call, &client, answer.text("EvalID"), "Force periodic successful").await
}

/// `job dispatch`.
pub async fn dispatch(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (word, payload) = match call.flags.words.as_slice() {
        [job] => (job.clone(), None),
        [job, path] => (job.clone(), Some(path.clone())),
        _ => return Err(call.usage("This command takes one or two arguments: <parameterized job> [input source]")),
    };
    let payload = match payload.as_deref() {
        None => Vec::new(),
        Some("-") => call.input().await?,
        Some(path) => read_file(path).map_err(|e| Failure::new(format!("Error reading input data: {path}: {e}")))?,
    };
    let mut meta = Map::new();
    for given in call.flags.texts("meta") {
        let Some((name, value)) = given.split_once('=') else {
            return Err(Failure::new(format!("Error parsing meta value {given:?}: it reads name=value")));
        };
        meta.insert(name.to_string(), json!(value));
    }
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    let mut body = json!({
        "JobID": found.id,
        "Payload": base64_of(&payload),
        "Meta": meta,
        "IdPrefixTemplate": call.flags.text_or_empty("id-prefix-template"),
    });
    if let (Some(priority), Some(object)) = (call.number("priority"), body.as_object_mut()) {
        object.insert("Priority".to_string(), json!(priority));
    }
    let mut query = found.query();
    if let Some(token) = call.flags.text("idempotency-token") {
        query = query.with("idempotency_token", token);
    }
    let (answer, _): (Value, _) =
        client.put(&format!("{}/dispatch", found.path()), &query, &body).await.attempt("Failed to dispatch job")?;
    report_dispatch(call, &client, &found, &answer).await
}

async fn report_dispatch(
    call: &mut Call<'_>,
    client: &Client,
    found: &FoundJob,
    answer: &Value,
) -> Result<u8, Failure> {
    let evaluation = answer.text("EvalID").to_string();
    let mut lines = vec![format!("Dispatched Job ID|{}", answer.text("DispatchedJobID"))];
    if !evaluation.is_empty() {
        lines.push(format!("Evaluation ID|{}", id(&evaluation, call.verbose())));
    }
    call.terminal.line(crate::terminal::pairs(&lines));
    if call.flags.on("detach") || evaluation.is_empty() {
        return Ok(0);
    }
    call.terminal.line("");
    let exit = call.monitor(client, &evaluation).await?;
    if !call.flags.on("wait") || exit != 0 {
        return Ok(exit);
    }
    let child =
        FoundJob { id: answer.text("DispatchedJobID").to_string(), namespace: found.namespace.clone(), exact: true };
    let deadline = std::time::Duration::from_secs(DISPATCH_WAIT_SECONDS);
    match tokio::time::timeout(deadline, wait_for_end(client, &child)).await {
        Ok(failed) => Ok(if failed? { crate::monitor::EXIT_NOT_PLACED } else { 0 }),
        Err(_) => Err(Failure::new(format!("Job {:?} did not end within 5 minutes", child.id))),
    }
}

/// Waits until a job is dead; whether an allocation of it failed.
async fn wait_for_end(client: &Client, job: &FoundJob) -> Result<bool, Failure> {
    follow(client, job, &job.path(), "Error querying job", &|now| now.text("Status") == "dead").await?;
    let (summary, _): (Value, _) =
        client.get(&format!("{}/summary", job.path()), &job.query()).await.attempt("Error querying job summary")?;
    Ok(summary.entries("Summary").iter().any(|(_, counts)| counts.int("Failed") > 0))
}

/// Standard base64, as JSON carries bytes.
fn base64_of(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// `job tag apply`.
pub async fn tag_apply(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let name = call.flags.text_or_empty("name").to_string();
    if name.is_empty() {
        return Err(call.usage("A version tag needs a name: -name"));
    }
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    let version = match call.flags.text("version") {
        Some(text) => text.parse::<u64>().map_err(|_| {
            Failure::new(format!("Error parsing version value {text:?}: it is a whole number from 0 on"))
        })?,
        None => {
            let (job, _): (Value, _) = client.get(&found.path(), &found.query()).await.attempt("Error querying job")?;
            u64::try_from(job.int("Version")).unwrap_or(0)
        }
    };
    let body = json!({ "Version": version, "Description": call.flags.text_or_empty("description"), "Name": name });
    let path = format!("{}/versions/{}/tag", found.path(), encode_segment(&name));
    let _: (Value, _) = client.put(&path, &found.query(), &body).await.attempt("Error tagging job version")?;
    call.terminal.line(format!("Job version {version} tagged with name {name:?}"));
    Ok(0)
}

/// `job tag unset`.
pub async fn tag_unset(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let name = call.flags.text_or_empty("name").to_string();
    if name.is_empty() {
        return Err(call.usage("Which tag goes is said by its name: -name"));
    }
    let client = call.client()?;
    let found = call.find_job(&client, &word).await?;
    let path = format!("{}/versions/{}/tag", found.path(), encode_segment(&name));
    let _: (Value, _) = client.delete(&path, &found.query()).await.attempt("Error removing tag from job version")?;
    call.terminal.line(format!("Tag {name:?} removed from job {:?}", found.id));
    Ok(0)
}

/// The job's allocations as a list, for commands that act on each.
///
/// # Errors
/// The agent cannot be asked.
pub async fn allocations_of(client: &Client, found: &FoundJob, all: bool) -> Result<Value, Failure> {
    let query = if all { found.query().with("all", "true") } else { found.query() };
    let (list, _) =
        client.get(&format!("{}/allocations", found.path()), &query).await.attempt("Error retrieving allocations")?;
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::base64_of;

    #[test]
    fn payloads_are_base64() {
        assert_eq!(base64_of(b"the payload"), "dGhlIHBheWxvYWQ=");
        assert_eq!(base64_of(b"a"), "YQ==");
        assert_eq!(base64_of(b""), "");
        assert_eq!(base64_of(&[255, 254, 253]), "//79");
    }
}
