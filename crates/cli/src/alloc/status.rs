//! `alloc status`. Source: `goldens/cli/105-alloc-status.txt` and neighbours.

use super::group_of;
use crate::command::{Attempt, Call, Failure};
use crate::format::{Times, bytes, id, mebibytes};
use crate::placement;
use crate::terminal::{Colour, cell, columns, pairs};
use crate::view::{View, or_none};
use herdsman_client::{Client, Query, encode_segment};
use serde_json::{Value, json};

/// `alloc status`.
pub async fn status(call: &mut Call<'_>) -> Result<u8, Failure> {
    if call.flags.words.is_empty() && call.wants_data() {
        let client = call.client()?;
        let (all, _): (Value, _) =
            client.get("/v1/allocations", &Query::none()).await.attempt("Error querying allocations")?;
        call.formatted(&all)?;
        return Ok(0);
    }
    let word = call.one_word()?.to_string();
    show(call, &word).await
}

/// Shows one allocation.
///
/// # Errors
/// There is none such, or the agent cannot be asked.
pub async fn show(call: &mut Call<'_>, word: &str) -> Result<u8, Failure> {
    let client = call.client()?;
    let allocation = call.find_allocation(&client, word).await?;
    if call.wants_data() {
        call.formatted(&crate::shape::one(&allocation, crate::shape::ALLOCATION))?;
        return Ok(0);
    }
    let (times, full) = (call.times(), call.verbose());
    if call.flags.on("short") {
        call.terminal.line(short_head(&allocation, &times, full));
        call.section("Tasks", &short_tasks(&allocation, &times));
        return Ok(0);
    }
    call.terminal.line(head(&allocation, &times, full));
    if let Some((title, text)) = addresses(&allocation) {
        call.section(&title, &text);
    }
    if let Some(text) = checks(&client, &allocation).await {
        call.section("Nomad Service Checks:", &text);
    }
    if let Some(text) = reschedule_attempts(&allocation) {
        call.section("Reschedule Attempts", &text);
    }
    let usage = usage(call, &client, &allocation).await;
    tasks(call, &allocation, &usage, &times);
    if full {
        let scores = placement::scores(allocation.at("Metrics"), full);
        if !scores.is_empty() {
            call.section("Placement Metrics", &columns(&scores));
        }
    }
    Ok(0)
}

fn short_head(a: &Value, times: &Times, full: bool) -> String {
    pairs(&[
        format!("ID|{}", a.text("ID")),
        format!("Name|{}", a.text("Name")),
        format!("Created|{}", times.when(a.int("CreateTime"), full)),
        format!("Modified|{}", times.when(a.int("ModifyTime"), full)),
    ])
}

fn head(a: &Value, times: &Times, full: bool) -> String {
    let mut lines = vec![
        format!("ID|{}", a.text("ID")),
        format!("Eval ID|{}", id(a.text("EvalID"), full)),
        format!("Name|{}", a.text("Name")),
        format!("Node ID|{}", id(a.text("NodeID"), full)),
        format!("Node Name|{}", a.text("NodeName")),
        format!("Job ID|{}", a.text("JobID")),
        format!("Job Version|{}", a.at("Job").int("Version")),
        format!("Client Status|{}", a.text("ClientStatus")),
        format!("Client Description|{}", a.text("ClientDescription")),
        format!("Desired Status|{}", a.text("DesiredStatus")),
        format!("Desired Description|{}", a.text("DesiredDescription")),
        format!("Created|{}", times.when(a.int("CreateTime"), full)),
        format!("Modified|{}", times.when(a.int("ModifyTime"), full)),
    ];
    if !a.text("DeploymentID").is_empty() {
        lines.push(format!("Deployment ID|{}", id(a.text("DeploymentID"), full)));
        let health = match a.at("DeploymentStatus").at("Healthy").as_bool() {
            None => "unset",
            Some(true) => "healthy",
            Some(false) => "unhealthy",
        };
        lines.push(format!("Deployment Health|{health}"));
        if a.at("DeploymentStatus").on("Canary") {
            lines.push("Canary|true".to_string());
        }
    }
    for (key, name) in [("NextAllocation", "Replacement Alloc ID"), ("PreemptedByAllocation", "Preempted by Alloc ID")]
    {
        if !a.text(key).is_empty() {
            lines.push(format!("{name}|{}", id(a.text(key), full)));
        }
    }
    if !a.text("FollowupEvalID").is_empty() && a.text("NextAllocation").is_empty() {
        lines.push(format!("Reschedule Evaluation|{}", id(a.text("FollowupEvalID"), full)));
    }
    if full {
        let m = a.at("Metrics");
        lines.push(format!("Evaluated Nodes|{}", m.int("NodesEvaluated")));
        lines.push(format!("Filtered Nodes|{}", m.int("NodesFiltered")));
        lines.push(format!("Exhausted Nodes|{}", m.int("NodesExhausted")));
        lines.push(format!("Allocation Time|{}", herdsman_expr::duration::format(m.int("AllocationTime"))));
        lines.push(format!("Failures|{}", m.int("CoalescedFailures")));
    }
    pairs(&lines)
}

fn addresses(a: &Value) -> Option<(String, String)> {
    let mut lines = vec!["Label|Dynamic|Address".to_string()];
    let shared = a.at("AllocatedResources").at("Shared");
    let mode = shared.list("Networks").first().map(|n| n.text("Mode").to_string()).unwrap_or_default();
    let reserved: Vec<&str> =
        shared.list("Networks").iter().flat_map(|n| n.list("ReservedPorts")).map(|p| p.text("Label")).collect();
    for port in shared.list("Ports") {
        let label = port.text("Label");
        let dynamic = if reserved.contains(&label) { "no" } else { "yes" };
        let to = match port.int("To") {
            0 => String::new(),
            to => format!(" -> {to}"),
        };
        let host = port.text("HostIP");
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
        lines.push(format!("*{label}|{dynamic}|{host}:{}{to}", port.int("Value")));
    }
    if lines.len() == 1 {
        return None;
    }
    let mode = if mode.is_empty() || mode == "host" { String::new() } else { format!(" (mode = {mode:?})") };
    Some((format!("Allocation Addresses{mode}:"), columns(&lines)))
}

async fn checks(client: &Client, a: &Value) -> Option<String> {
    if a.text("ClientStatus") != "running" {
        return None;
    }
    let path = format!("/v1/client/allocation/{}/checks", encode_segment(a.text("ID")));
    let (found, _): (Value, _) = client.get(&path, &Query::none()).await.ok()?;
    let object = json!({ "all": found });
    let mut lines = vec!["Service|Task|Name|Mode|Status".to_string()];
    for (_, check) in object.entries("all") {
        let task = match check.text("Task") {
            "" => "(group)",
            task => task,
        };
        lines.push(format!(
            "{}|{task}|{}|{}|{}",
            check.text("Service"),
            check.text("Check"),
            check.text("Mode"),
            check.text("Status")
        ));
    }
    (lines.len() > 1).then(|| columns(&lines))
}

fn reschedule_attempts(a: &Value) -> Option<String> {
    let made = a.at("RescheduleTracker").list("Events").len();
    let policy = group_of(a).at("ReschedulePolicy").clone();
    if made == 0 || !policy.is_object() {
        return None;
    }
    let allowed = if policy.on("Unlimited") { "unlimited".to_string() } else { policy.int("Attempts").to_string() };
    Some(format!("Attempts = {made}/{allowed}"))
}

/// What the tasks use; null where nobody can say.
async fn usage(call: &mut Call<'_>, client: &Client, a: &Value) -> Value {
    if a.text("ClientStatus") != "running" {
        return Value::Null;
    }
    let path = format!("/v1/client/allocation/{}/stats", encode_segment(a.text("ID")));
    let answer: Result<(Value, _), _> = client.get(&path, &Query::none()).await;
    match answer {
        Ok((stats, _)) => stats,
        Err(error) if call.flags.on("stats") => {
            call.terminal.error(format!("Couldn't retrieve stats: {error}"));
            Value::Null
        }
        Err(_) => Value::Null,
    }
}

/// The tasks in the order they live: prestart, main, poststart, poststop; by name within.
fn ordered(a: &Value) -> Vec<&Value> {
    let mut tasks: Vec<&Value> = group_of(a).list("Tasks").iter().collect();
    let rank = |t: &Value| match (t.at("Lifecycle").text("Hook"), t.at("Lifecycle").on("Sidecar")) {
        ("prestart", false) => 0,
        ("prestart", true) => 1,
        ("poststart", _) => 3,
        ("prestop", _) => 4,
        ("poststop", _) => 5,
        _ => 2,
    };
    tasks.sort_by(|x, y| rank(x).cmp(&rank(y)).then_with(|| x.text("Name").cmp(y.text("Name"))));
    tasks
}

/// What a task is for: `main`, `prestart`, `prestart sidecar`.
fn lifecycle(task: &Value) -> String {
    match (task.at("Lifecycle").text("Hook"), task.at("Lifecycle").on("Sidecar")) {
        ("", _) => "main".to_string(),
        (hook, true) => format!("{hook} sidecar"),
        (hook, false) => hook.to_string(),
    }
}

fn short_tasks(a: &Value, times: &Times) -> String {
    let mut lines = vec!["Name|State|Last Event|Time|Lifecycle".to_string()];
    for task in ordered(a) {
        let name = task.text("Name");
        let state = a.at("TaskStates").at(name);
        let (event, time) = match state.list("Events").last() {
            Some(event) => (event.text("Type"), times.show(event.int("Time"))),
            None => ("", String::new()),
        };
        lines.push(format!("{name}|{}|{event}|{time}|{}", state.text("State"), lifecycle(task)));
    }
    columns(&lines)
}

fn tasks(call: &mut Call<'_>, a: &Value, usage: &Value, times: &Times) {
    for task in ordered(a) {
        let name = task.text("Name");
        let state = a.at("TaskStates").at(name);
        if !state.is_object() {
            continue;
        }
        let role = match lifecycle(task).as_str() {
            "main" => String::new(),
            role => format!(" ({role})"),
        };
        let failed = if state.on("Failed") && state.text("State") == "dead" { " (failed)" } else { "" };
        let title = format!("Task {name:?}{role} is {:?}{failed}", state.text("State"));
        let title = call.terminal.paint(Colour::Bold, &title);
        call.terminal.line(format!("\n{title}"));
        let used = usage.at("Tasks").at(name);
        call.terminal.line(format!("Task Resources:\n{}", resources(a, name, used)));
        if call.flags.on("stats") && used.is_object() {
            call.terminal.line(format!("\n{}", detailed(used)));
        }
        call.terminal.line(format!("\nTask Events:\n{}", facts(state, times)));
        call.terminal.line(format!("\nRecent Events:\n{}", events(state, times)));
    }
}

fn resources(a: &Value, task: &str, used: &Value) -> String {
    let all = a.at("AllocatedResources");
    let own = all.at("Tasks").at(task);
    let usage = used.at("ResourceUsage");
    let cpu = format!("{} MHz", own.at("Cpu").int("CpuShares"));
    let mut memory = mebibytes(own.at("Memory").int("MemoryMB"));
    let mut cpu_text = cpu;
    if usage.is_object() {
        cpu_text = format!("{:.0}/{cpu_text}", usage.at("CpuStats").float("TotalTicks"));
        let stats = usage.at("MemoryStats");
        let held =
            if stats.list("Measured").iter().any(|m| m == "RSS") { stats.int("RSS") } else { stats.int("Usage") };
        memory = format!("{}/{memory}", bytes(held));
    }
    if own.at("Memory").int("MemoryMaxMB") > 0 {
        memory = format!("{memory} Max: {}", mebibytes(own.at("Memory").int("MemoryMaxMB")));
    }
    let disk = mebibytes(all.at("Shared").int("DiskMB"));
    let ports: Vec<String> = own
        .list("Networks")
        .iter()
        .flat_map(|n| {
            let ip = n.text("IP").to_string();
            n.list("DynamicPorts")
                .iter()
                .chain(n.list("ReservedPorts"))
                .map(move |p| format!("{}: {ip}:{}", p.text("Label"), p.int("Value")))
                .collect::<Vec<_>>()
        })
        .collect();
    let rows = ["CPU|Memory|Disk|Addresses".to_string(), format!("{cpu_text}|{memory}|{disk}|-")];
    // No address leaves the last cell empty, which a table of cells would fill.
    let text = columns(&rows);
    let text = text.strip_suffix('-').map(str::to_string).unwrap_or(text);
    format!("{text}{}", ports.join(", "))
}

fn detailed(used: &Value) -> String {
    let memory = used.at("ResourceUsage").at("MemoryStats");
    let cpu = used.at("ResourceUsage").at("CpuStats");
    let mut blocks = Vec::new();
    let (mut names, mut cells) = (Vec::new(), Vec::new());
    for (measure, key) in [
        ("Cache", "Cache"),
        ("Kernel Max Usage", "KernelMaxUsage"),
        ("Kernel Usage", "KernelUsage"),
        ("Mapped File", "MappedFile"),
        ("Max Usage", "MaxUsage"),
        ("RSS", "RSS"),
        ("Swap", "Swap"),
        ("Usage", "Usage"),
    ] {
        if memory.list("Measured").iter().any(|m| m == measure) {
            names.push(measure);
            cells.push(bytes(memory.int(key)));
        }
    }
    if !names.is_empty() {
        blocks.push(format!("Memory Stats\n{}", columns(&[names.join("|"), cells.join("|")])));
    }
    let (mut names, mut cells) = (Vec::new(), Vec::new());
    for (measure, key) in [("Percent", "Percent"), ("System Mode", "SystemMode"), ("User Mode", "UserMode")] {
        if cpu.list("Measured").iter().any(|m| m == measure) {
            names.push(measure);
            cells.push(format!("{:.2}%", cpu.float(key)));
        }
    }
    for (measure, key) in [("Throttled Periods", "ThrottledPeriods"), ("Throttled Time", "ThrottledTime")] {
        if cpu.list("Measured").iter().any(|m| m == measure) {
            names.push(measure);
            cells.push(cpu.int(key).to_string());
        }
    }
    if !names.is_empty() {
        blocks.push(format!("CPU Stats\n{}", columns(&[names.join("|"), cells.join("|")])));
    }
    blocks.join("\n\n")
}

fn facts(state: &Value, times: &Times) -> String {
    pairs(&[
        format!("Started At|{}", times.shown(state.text("StartedAt"))),
        format!("Finished At|{}", times.shown(state.text("FinishedAt"))),
        format!("Total Restarts|{}", state.int("Restarts")),
        format!("Last Restart|{}", times.shown(state.text("LastRestart"))),
    ])
}

fn events(state: &Value, times: &Times) -> String {
    let mut lines = vec!["Time|Type|Description".to_string()];
    for event in state.list("Events").iter().rev() {
        let text = match event.text("DisplayMessage") {
            "" => event.text("Message"),
            text => text,
        };
        lines.push(format!("{}|{}|{}", times.show(event.int("Time")), event.text("Type"), cell(or_none(text))));
    }
    columns(&lines)
}
