//! `node status`. Source: `goldens/cli/131-node-status.txt` to `138`.

use crate::command::{Attempt, Call, Failure};
use crate::format::{bytes, id, mebibytes, nanoseconds_of};
use crate::terminal::{cell, columns, pairs};
use crate::view::{View, members, or_none};
use herdsman_client::{Client, Query, encode_segment};
use serde_json::Value;
use std::collections::BTreeMap;

/// Columns of the list that are not always there.
#[derive(Debug, Default)]
pub struct Columns {
    pub os: bool,
    /// Running allocations by node.
    pub running: Option<BTreeMap<String, usize>>,
    /// Without the pool, where all are of one.
    pub without_pool: bool,
}

/// `node status`.
pub async fn status(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    if call.flags.words.is_empty() && !call.flags.on("self") {
        return list(call, &client).await;
    }
    let node = super::named(call, &client).await?;
    show(call, &client, &node).await
}

/// Shows one node, named by the beginning of its id.
///
/// # Errors
/// There is none such, or the agent cannot be asked.
pub async fn show_named(call: &mut Call<'_>, word: &str) -> Result<u8, Failure> {
    let client = call.client()?;
    let node = call.find_node(&client, word).await?;
    show(call, &client, &node).await
}

/// Nodes as a table.
pub fn list_text(nodes: &[Value], full: bool, extra: &Columns) -> String {
    let pool = |text: &str| if extra.without_pool { String::new() } else { format!("|{text}") };
    let mut header = format!("ID{}|DC|Name|Class", pool("Node Pool"));
    if extra.os {
        header.push_str("|OS");
    }
    if full {
        header.push_str("|Address|Version");
    }
    header.push_str("|Drain|Eligibility|Status");
    if extra.running.is_some() {
        header.push_str("|Running Allocs");
    }
    let mut lines = vec![header];
    for node in nodes {
        let mut line = format!(
            "{}{}|{}|{}|{}",
            id(node.text("ID"), full),
            pool(node.text("NodePool")),
            node.text("Datacenter"),
            node.text("Name"),
            or_none(node.text("NodeClass"))
        );
        if extra.os {
            line.push_str(&format!("|{}", node.at("Attributes").text("os.name")));
        }
        if full {
            line.push_str(&format!("|{}|{}", node.text("Address"), node.text("Version")));
        }
        let draining = node.on("Drain") || node.at("DrainStrategy").is_object();
        line.push_str(&format!("|{draining}|{}|{}", node.text("SchedulingEligibility"), node.text("Status")));
        if let Some(running) = &extra.running {
            line.push_str(&format!("|{}", running.get(node.text("ID")).copied().unwrap_or(0)));
        }
        lines.push(line);
    }
    columns(&lines)
}

async fn list(call: &mut Call<'_>, client: &Client) -> Result<u8, Failure> {
    let mut query = call.paged();
    if call.flags.on("os") {
        query = query.with("os", "true");
    }
    let (nodes, meta): (Value, _) = client.get("/v1/nodes", &query).await.attempt("Error querying node status")?;
    if call.formatted(&nodes)? {
        return Ok(0);
    }
    if call.flags.on("quiet") {
        for node in members(&nodes) {
            call.terminal.line(id(node.text("ID"), call.flags.on("verbose")));
        }
        return Ok(0);
    }
    if members(&nodes).is_empty() {
        call.terminal.line("No nodes registered");
        return Ok(0);
    }
    let running = if call.flags.on("allocs") { Some(running_by_node(client).await?) } else { None };
    let extra = Columns { os: call.flags.on("os"), running, without_pool: false };
    let text = list_text(members(&nodes), call.verbose(), &extra);
    call.terminal.line(text);
    crate::eval::next_page(call, &meta.next_token);
    Ok(0)
}

async fn running_by_node(client: &Client) -> Result<BTreeMap<String, usize>, Failure> {
    let query = Query { namespace: Some("*".to_string()), ..Query::none() }.with("task_states", "false");
    let (all, _): (Value, _) =
        client.get("/v1/allocations", &query).await.attempt("Error querying node allocations")?;
    let mut counts = BTreeMap::new();
    for allocation in members(&all).iter().filter(|a| a.text("ClientStatus") == "running") {
        *counts.entry(allocation.text("NodeID").to_string()).or_insert(0) += 1;
    }
    Ok(counts)
}

async fn show(call: &mut Call<'_>, client: &Client, node: &Value) -> Result<u8, Failure> {
    if call.formatted(node)? {
        return Ok(0);
    }
    let full = call.verbose();
    let path = format!("/v1/node/{}/allocations", encode_segment(node.text("ID")));
    let (allocations, _): (Value, _) =
        client.get(&path, &Query::none()).await.attempt("Error querying node allocations")?;
    let stats = machine_stats(call, client, node).await;
    let text = head(node, &stats, full, call.flags.on("short"));
    call.terminal.line(text);
    if !call.flags.on("short") {
        if full {
            call.section("Host Volumes", &volumes_text(node));
            call.section("Drivers", &drivers_text(call, node));
        }
        call.section("Node Events", &events_text(call, node, full));
        resources(call, client, node, members(&allocations), &stats).await;
    }
    let text = match members(&allocations) {
        [] => "No allocations placed".to_string(),
        some => allocations_text(call, some, full),
    };
    call.section("Allocations", &text);
    if full {
        let map = |key: &str, skip: &str| {
            let lines: Vec<String> = node
                .entries(key)
                .iter()
                .map(|(name, value)| format!("{}|{}", name.strip_prefix(skip).unwrap_or(name), cell(&value.plain())))
                .collect();
            pairs(&lines)
        };
        let (attributes, meta) = (map("Attributes", "attr."), map("Meta", ""));
        call.section("Attributes", &attributes);
        call.section("Meta", &meta);
    }
    Ok(0)
}

fn allocations_text(call: &Call<'_>, allocations: &[Value], full: bool) -> String {
    let text = crate::alloc::list_text(allocations, full, &call.times());
    if !full {
        return text;
    }
    // Every allocation is of this node: its name would say nothing.
    let mut sorted: Vec<&Value> = allocations.iter().collect();
    sorted.sort_by_key(|a| std::cmp::Reverse(a.int("CreateIndex")));
    let times = call.times();
    let mut lines = vec!["ID|Eval ID|Node ID|Task Group|Version|Desired|Status|Created|Modified".to_string()];
    for a in sorted {
        lines.push(format!(
            "{}|{}|{}|{}|{}|{}|{}|{}|{}",
            a.text("ID"),
            a.text("EvalID"),
            a.text("NodeID"),
            a.text("TaskGroup"),
            version_of(a),
            a.text("DesiredStatus"),
            a.text("ClientStatus"),
            times.show(a.int("CreateTime")),
            times.show(a.int("ModifyTime"))
        ));
    }
    columns(&lines)
}

fn version_of(a: &Value) -> i64 {
    if a.get("JobVersion").is_some() { a.int("JobVersion") } else { a.at("Job").int("Version") }
}

/// What the machine says of itself; null where it cannot be asked.
async fn machine_stats(call: &mut Call<'_>, client: &Client, node: &Value) -> Value {
    if node.text("Status") != "ready" {
        return Value::Null;
    }
    let query = Query::none().with("node_id", node.text("ID"));
    let answer: Result<(Value, _), _> = client.get("/v1/client/stats", &query).await;
    match answer {
        Ok((stats, _)) => stats,
        Err(error) => {
            if call.flags.on("stats") {
                call.terminal.error(format!("error fetching node stats: {error}"));
            }
            Value::Null
        }
    }
}

fn head(node: &Value, stats: &Value, full: bool, short: bool) -> String {
    let names = |key: &str| {
        let names: Vec<&str> = node.entries(key).into_iter().map(|(n, _)| n.as_str()).collect();
        names.join(",")
    };
    let draining = match node.at("DrainStrategy") {
        Value::Object(_) => drain_text(node.at("DrainStrategy")),
        _ => "false".to_string(),
    };
    let mut lines = vec![
        format!("ID|{}", node.text("ID")),
        format!("Name|{}", node.text("Name")),
        format!("Node Pool|{}", node.text("NodePool")),
        format!("Class|{}", node.text("NodeClass")),
        format!("DC|{}", node.text("Datacenter")),
        format!("Drain|{draining}"),
        format!("Eligibility|{}", node.text("SchedulingEligibility")),
        format!("Status|{}", node.text("Status")),
        format!("CSI Controllers|{}", names("CSIControllerPlugins")),
        format!("CSI Drivers|{}", names("CSINodePlugins")),
    ];
    if stats.is_object() {
        let up = herdsman_expr::duration::format(stats.int("Uptime").saturating_mul(1_000_000_000));
        lines.push(format!("Uptime|{up}"));
    }
    if !full && !short {
        lines.push(format!("Host Volumes|{}", names("HostVolumes")));
        let networks: Vec<&str> = node.entries("HostNetworks").into_iter().map(|(n, _)| n.as_str()).collect();
        lines.push(format!("Host Networks|{}", networks.join(",")));
        lines.push("CSI Volumes|".to_string());
        lines.push(format!("Driver Status|{}", driver_summary(node)));
    }
    pairs(&lines)
}

fn drain_text(strategy: &Value) -> String {
    match strategy.int("Deadline") {
        n if n < 0 => "true; force drain".to_string(),
        0 => "true; no deadline".to_string(),
        n => format!("true; {} deadline", herdsman_expr::duration::format(n)),
    }
}

fn driver_summary(node: &Value) -> String {
    let mut parts = Vec::new();
    for (name, driver) in node.entries("Drivers") {
        if !driver.on("Detected") {
            continue;
        }
        let unhealthy = if driver.on("Healthy") { "" } else { " (unhealthy)" };
        parts.push(format!("{name}{unhealthy}"));
    }
    parts.join(",")
}

fn volumes_text(node: &Value) -> String {
    let mut lines = vec!["Name|ReadOnly|Source".to_string()];
    for (name, volume) in node.entries("HostVolumes") {
        lines.push(format!("{name}|{}|{}", volume.on("ReadOnly"), cell(volume.text("Path"))));
    }
    columns(&lines)
}

fn drivers_text(call: &Call<'_>, node: &Value) -> String {
    let times = call.times();
    let mut lines = vec!["Driver|Detected|Healthy|Message|Time".to_string()];
    for (name, driver) in node.entries("Drivers") {
        lines.push(format!(
            "{name}|{}|{}|{}|{}",
            driver.on("Detected"),
            driver.on("Healthy"),
            cell(driver.text("HealthDescription")),
            times.shown(driver.text("UpdateTime"))
        ));
    }
    columns(&lines)
}

fn events_text(call: &Call<'_>, node: &Value, full: bool) -> String {
    let times = call.times();
    let mut lines = vec![if full { "Time|Subsystem|Message|Details" } else { "Time|Subsystem|Message" }.to_string()];
    for event in node.list("Events").iter().rev() {
        let when = times.show(nanoseconds_of(event.text("Timestamp")));
        let mut line = format!("{when}|{}|{}", event.text("Subsystem"), cell(event.text("Message")));
        if full {
            let details: Vec<String> =
                event.entries("Details").iter().map(|(n, v)| format!("{n}: {}", cell(&v.plain()))).collect();
            line.push_str(&format!("|{}", details.join(" ")));
        }
        lines.push(line);
    }
    columns(&lines)
}

async fn resources(call: &mut Call<'_>, client: &Client, node: &Value, allocations: &[Value], stats: &Value) {
    let total = Totals::of(node);
    let live: Vec<&Value> =
        allocations.iter().filter(|a| !matches!(a.text("ClientStatus"), "complete" | "failed" | "lost")).collect();
    call.section("Allocated Resources", &allocated_text(&live, &total));
    if stats.is_object() {
        let text = used_text(client, &live, &total).await;
        call.section("Allocation Resource Utilization", &text);
        call.section("Host Resource Utilization", &host_text(stats, &total));
        if call.flags.on("stats") {
            detailed_stats(call, stats);
        }
    } else if node.text("Status") == "ready" {
        call.terminal.line("\nActual resource usage not present");
    }
}

/// What a node has for allocations.
struct Totals {
    cpu: i64,
    memory: i64,
    disk: i64,
}

impl Totals {
    fn of(node: &Value) -> Totals {
        let (all, kept) = (node.at("NodeResources"), node.at("ReservedResources"));
        Totals {
            cpu: all.at("Cpu").int("CpuShares").saturating_sub(kept.at("Cpu").int("CpuShares")),
            memory: all.at("Memory").int("MemoryMB").saturating_sub(kept.at("Memory").int("MemoryMB")),
            disk: all.at("Disk").int("DiskMB").saturating_sub(kept.at("Disk").int("DiskMB")),
        }
    }
}

fn allocated_text(live: &[&Value], total: &Totals) -> String {
    let (mut cpu, mut memory, mut disk) = (0_i64, 0_i64, 0_i64);
    for allocation in live {
        let held = allocation.at("AllocatedResources");
        for (_, task) in held.entries("Tasks") {
            cpu = cpu.saturating_add(task.at("Cpu").int("CpuShares"));
            memory = memory.saturating_add(task.at("Memory").int("MemoryMB"));
        }
        disk = disk.saturating_add(held.at("Shared").int("DiskMB"));
    }
    columns(&[
        "CPU|Memory|Disk|Alloc Count".to_string(),
        format!(
            "{cpu}/{} MHz|{}/{}|{}/{}|{}",
            total.cpu,
            mebibytes(memory),
            mebibytes(total.memory),
            mebibytes(disk),
            mebibytes(total.disk),
            live.len()
        ),
    ])
}

async fn used_text(client: &Client, live: &[&Value], total: &Totals) -> String {
    let (mut cpu, mut memory) = (0.0_f64, 0_i64);
    for allocation in live.iter().filter(|a| a.text("ClientStatus") == "running") {
        let path = format!("/v1/client/allocation/{}/stats", encode_segment(allocation.text("ID")));
        let answer: Result<(Value, _), _> = client.get(&path, &Query::none()).await;
        // An allocation that just ended cannot be asked; the sum is of the others.
        let Ok((stats, _)) = answer else { continue };
        let usage = stats.at("ResourceUsage");
        cpu += usage.at("CpuStats").float("TotalTicks");
        let held = usage.at("MemoryStats");
        memory = memory.saturating_add(held.int("RSS").max(held.int("Usage")));
    }
    columns(&[
        "CPU|Memory".to_string(),
        format!("{:.0}/{} MHz|{}/{}", cpu.floor(), total.cpu, bytes(memory), mebibytes(total.memory)),
    ])
}

fn host_text(stats: &Value, total: &Totals) -> String {
    let memory = stats.at("Memory");
    let disk = stats.at("AllocDirStats");
    let ticks = stats.float("CPUTicksConsumed");
    columns(&[
        "CPU|Memory|Disk".to_string(),
        format!(
            "{:.0}/{} MHz|{}/{}|{}/{}",
            ticks.floor(),
            total.cpu,
            bytes(memory.int("Used")),
            bytes(memory.int("Total")),
            bytes(disk.int("Used")),
            bytes(disk.int("Size"))
        ),
    ])
}

fn detailed_stats(call: &mut Call<'_>, stats: &Value) {
    let cpus: Vec<String> = stats
        .list("CPU")
        .iter()
        .map(|c| {
            pairs(&[
                format!("CPU|{}", c.text("CPU")),
                format!("User|{:.2}%", c.float("User")),
                format!("System|{:.2}%", c.float("System")),
                format!("Idle|{:.2}%", c.float("Idle")),
            ])
        })
        .collect();
    call.section("CPU Stats", &cpus.join("\n\n"));
    let memory = stats.at("Memory");
    let lines: Vec<String> =
        ["Total", "Available", "Used", "Free"].iter().map(|k| format!("{k}|{}", bytes(memory.int(k)))).collect();
    call.section("Memory Stats", &pairs(&lines));
    let disks: Vec<String> = stats
        .list("DiskStats")
        .iter()
        .map(|d| {
            pairs(&[
                format!("Device|{}", cell(d.text("Device"))),
                format!("MountPoint|{}", cell(d.text("Mountpoint"))),
                format!("Size|{}", bytes(d.int("Size"))),
                format!("Used|{}", bytes(d.int("Used"))),
                format!("Available|{}", bytes(d.int("Available"))),
                format!("Used Percent|{:.2}%", d.float("UsedPercent")),
                format!("Inodes Percent|{:.2}%", d.float("InodesUsedPercent")),
            ])
        })
        .collect();
    call.section("Disk Stats", &disks.join("\n\n"));
}
