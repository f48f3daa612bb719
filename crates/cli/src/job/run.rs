//! Submitting jobs: `job run`, `job validate`, `job plan`.

use super::diff::Differ;
use crate::command::{Attempt, Call, Failure};
use crate::format::Times;
use crate::jobfile;
use crate::placement;
use crate::terminal::Colour;
use crate::view::{View, pretty};
use herdsman_client::{Client, Query, encode_segment};
use serde_json::{Map, Value, json};

/// Exit status of a plan that would change something. Source: `compat/cli.tsv`.
const EXIT_CHANGES: u8 = 1;
/// Exit status of a plan that could not be made.
const EXIT_PLAN_FAILED: u8 = 255;

/// A client and query for the region and namespace of a job, which win over flags.
fn target(client: &Client, job: &Value) -> (Client, Query) {
    let mut options = client.options().clone();
    let region = job.text("Region");
    if !region.is_empty() && region != "global" {
        options.region = region.to_string();
    }
    let mut query = Query::none();
    if !job.text("Namespace").is_empty() {
        query.namespace = Some(job.text("Namespace").to_string());
    }
    (client.with_options(options), query)
}

/// Prints what the server and the reader of the file want the user to know.
fn print_warnings(call: &mut Call<'_>, text: &str) {
    if text.is_empty() {
        return;
    }
    let title = call.terminal.paint(Colour::Yellow, "Job Warnings:");
    call.terminal.line(format!("{title}\n{text}\n"));
}

fn print_file_warnings(call: &mut Call<'_>, warnings: &[herdsman_jobspec::Diagnostic]) {
    for warning in warnings {
        let text = jobfile::show_fault(call, warning);
        call.terminal.error(format!("Warning: {text}"));
    }
}

/// `job run`.
pub async fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let path = call.one_word()?.to_string();
    let file = jobfile::read(call, &path).await?;
    if call.flags.on("output") {
        call.terminal.line(pretty(&json!({ "Job": file.job })));
        return Ok(0);
    }
    print_file_warnings(call, &file.warnings);
    let (client, query) = target(&call.client()?, &file.job);
    let body = register_body(call, &file)?;
    let answer: Value = match client.put("/v1/jobs", &query, &body).await {
        Ok((answer, _)) => answer,
        Err(error) => {
            if let Some(conflict) =
                error.message().and_then(|m| m.find("Enforcing job modify index").and_then(|at| m.get(at..)))
            {
                return Err(Failure::new(format!("{conflict}\nJob not updated")));
            }
            return Err(Failure::of("Error submitting job", &error));
        }
    };
    print_warnings(call, answer.text("Warnings"));
    let evaluation = answer.text("EvalID").to_string();
    if call.flags.on("detach") || evaluation.is_empty() {
        call.terminal.line("Job registration successful");
        if let Some(next) = next_launch(&file.job, &call.times()) {
            call.terminal.line(format!("Approximate next launch time: {next}"));
        }
        if !evaluation.is_empty() {
            call.terminal.line(format!("Evaluation ID: {evaluation}"));
        }
        return Ok(0);
    }
    call.monitor(&client, &evaluation).await
}

fn register_body(call: &Call<'_>, file: &jobfile::JobFile) -> Result<Value, Failure> {
    let mut body = Map::new();
    body.insert("Job".to_string(), file.job.clone());
    if let Some(submission) = &file.submission {
        body.insert("Submission".to_string(), submission.clone());
    }
    if let Some(text) = call.flags.text("check-index") {
        let index: u64 = text.parse().map_err(|_| {
            Failure::new(format!("Error parsing check-index value {text:?}: it is a whole number from 0 on"))
        })?;
        body.insert("EnforceIndex".to_string(), json!(true));
        body.insert("JobModifyIndex".to_string(), json!(index));
    }
    for (flag, key) in [
        ("policy-override", "PolicyOverride"),
        ("preserve-counts", "PreserveCounts"),
        ("preserve-resources", "PreserveResources"),
    ] {
        if call.flags.on(flag) {
            body.insert(key.to_string(), json!(true));
        }
    }
    if let Some(priority) = call.number("eval-priority") {
        body.insert("EvalPriority".to_string(), json!(priority));
    }
    Ok(Value::Object(body))
}

/// When a periodic job runs next and how far away that is; none for other jobs.
pub fn next_launch(job: &Value, times: &Times) -> Option<String> {
    let periodic = job.at("Periodic");
    if periodic.is_null() || periodic.get("Enabled").and_then(Value::as_bool) == Some(false) {
        return None;
    }
    let zone = match periodic.text("TimeZone") {
        "" => "UTC",
        name => name,
    };
    let mut specs: Vec<&str> = periodic.list("Specs").iter().filter_map(Value::as_str).collect();
    if !periodic.text("Spec").is_empty() {
        specs.push(periodic.text("Spec"));
    }
    let now = times.now() / 1_000_000_000;
    let next = specs
        .iter()
        .filter_map(|spec| herdsman_expr::cron::Cron::parse(spec).ok())
        .filter_map(|cron| cron.next(now, zone))
        .min()?;
    let away = herdsman_expr::duration::format(next.saturating_sub(now).saturating_mul(1_000_000_000));
    let shown = times.in_zone(zone, next.saturating_mul(1_000_000_000));
    Some(format!("{shown} ({away} from now)"))
}

/// `job validate`.
pub async fn validate(call: &mut Call<'_>) -> Result<u8, Failure> {
    let path = call.one_word()?.to_string();
    let file = jobfile::read(call, &path).await?;
    print_file_warnings(call, &file.warnings);
    let (client, query) = target(&call.client()?, &file.job);
    let body = json!({ "Job": file.job });
    let (answer, _): (Value, _) =
        client.put("/v1/validate/job", &query, &body).await.attempt("Error validating job")?;
    print_warnings(call, answer.text("Warnings"));
    if !answer.text("Error").is_empty() || !answer.list("ValidationErrors").is_empty() {
        let text = match answer.text("Error") {
            "" => crate::view::join(answer.list("ValidationErrors"), "\n"),
            text => text.to_string(),
        };
        return Err(Failure::new(format!("Job validation errors:\n{}", text.trim_end())));
    }
    call.terminal.line("Job validation successful");
    Ok(0)
}

/// `job plan`.
pub async fn plan(call: &mut Call<'_>) -> Result<u8, Failure> {
    plan_inner(call).await.map_err(|f| Failure::with_exit(EXIT_PLAN_FAILED, f.message))
}

async fn plan_inner(call: &mut Call<'_>) -> Result<u8, Failure> {
    let path = call.one_word()?.to_string();
    let file = jobfile::read(call, &path).await?;
    print_file_warnings(call, &file.warnings);
    let (client, query) = target(&call.client()?, &file.job);
    let body = json!({
        "Job": file.job,
        "Diff": call.flags.on_or("diff", true),
        "PolicyOverride": call.flags.on("policy-override"),
    });
    let route = format!("/v1/job/{}/plan", encode_segment(file.job.text("ID")));
    let (plan, _): (Value, _) = client.put(&route, &query, &body).await.attempt("Error during plan")?;
    let exit = exit_of(&plan);
    if call.flags.on("json-output") {
        call.terminal.line(pretty(&plan));
        return Ok(exit);
    }
    if let Some(template) = call.flags.text("t").map(str::to_string) {
        call.templated(&template, &plan)?;
        return Ok(exit);
    }
    print_plan(call, &plan, &file.job, &path);
    Ok(exit)
}

/// 1 when something would be placed, stopped, moved or replaced.
fn exit_of(plan: &Value) -> u8 {
    let changes = plan.at("Annotations").entries("DesiredTGUpdates").iter().any(|(_, updates)| {
        ["Place", "Stop", "Migrate", "Canary", "DestructiveUpdate"].iter().any(|key| updates.int(key) > 0)
    });
    if changes { EXIT_CHANGES } else { 0 }
}

fn print_plan(call: &mut Call<'_>, plan: &Value, job: &Value, path: &str) {
    if plan.at("Diff").is_object() && call.flags.on_or("diff", true) {
        let differ = Differ { terminal: call.terminal, verbose: call.flags.on("verbose") };
        let text = differ.job(plan.at("Diff"));
        call.terminal.line(text.trim_end_matches('\n'));
        call.terminal.line("");
    }
    let title = call.terminal.paint(Colour::Bold, "Scheduler dry-run:");
    call.terminal.line(title);
    for line in dry_run(call, plan, job) {
        call.terminal.line(line);
    }
    call.terminal.line("");
    print_warnings(call, plan.text("Warnings"));
    print_preemptions(call, plan);
    print_how_to_submit(call, plan, path);
}

fn dry_run(call: &Call<'_>, plan: &Value, job: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let failures = plan.entries("FailedTGAllocs");
    if failures.is_empty() {
        lines.push(call.terminal.paint(Colour::Green, "- All tasks successfully allocated."));
    } else {
        lines.push(call.terminal.paint(Colour::Yellow, "- WARNING: Failed to place all allocations."));
        for (position, (group, metric)) in failures.into_iter().enumerate() {
            if position > 0 {
                lines.push(String::new());
            }
            lines.push(format!("  {}", placement::heading(group, metric)));
            lines.extend(placement::reasons(metric, "    "));
        }
    }
    if job.at("Periodic").is_object() {
        let next = plan.text("NextPeriodicLaunch");
        if !next.is_empty() && !next.starts_with("0001-") {
            let at = crate::format::nanoseconds_of(next);
            let whole = (at / 1_000_000_000).saturating_sub(call.environment.now() / 1_000_000_000);
            let away = herdsman_expr::duration::format(whole.saturating_mul(1_000_000_000));
            lines.push(format!("- If submitted now, next periodic launch would be at {next} ({away} from now)."));
        }
    }
    lines
}

fn print_preemptions(call: &mut Call<'_>, plan: &Value) {
    let stopped = plan.at("Annotations").list("PreemptedAllocs");
    if stopped.is_empty() {
        return;
    }
    let mut lines = vec!["Alloc ID|Job ID|Task Group".to_string()];
    let full = call.verbose();
    lines.extend(
        stopped
            .iter()
            .map(|a| format!("{}|{}|{}", crate::format::id(a.text("ID"), full), a.text("JobID"), a.text("TaskGroup"))),
    );
    let title = call.terminal.paint(Colour::Bold, "Preemptions:");
    call.terminal.line(format!("{title}\n\n{}\n", crate::terminal::columns(&lines)));
}

fn print_how_to_submit(call: &mut Call<'_>, plan: &Value, path: &str) {
    let index = plan.int("JobModifyIndex");
    let program = call.terminal.program().to_string();
    let mut flags = String::new();
    for text in call.flags.texts("var") {
        flags.push_str(&format!("-var={} ", shell_quoted(text)));
    }
    for text in call.flags.texts("var-file") {
        flags.push_str(&format!("-var-file={} ", shell_quoted(text)));
    }
    if !call.flags.text_or_empty("namespace").is_empty() {
        flags.push_str(&format!("-namespace={} ", shell_quoted(call.flags.text_or_empty("namespace"))));
    }
    call.terminal.line(format!(
        "Job Modify Index: {index}\nTo submit the job with version verification run:\n\n\
         {program} job run -check-index {index} {flags}{path}\n\n\
         With -check-index the job is only run if nobody changed it since this plan; else\n\
         what is shown above may no longer hold, and nothing is submitted."
    ));
}

fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "=_-./:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_string()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
