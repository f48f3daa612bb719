//! The commands about servers, the agent that is asked, and the system.

use crate::command::{Attempt, Call, Command, Failure, JSON, TEMPLATE, UI, VERBOSE};
use crate::flags::Flag;
use crate::format::id;
use crate::terminal::{cell, columns};
use crate::view::{View, entries_of, members};
use herdsman_client::{Client, Query, encode_segment};
use serde_json::Value;

const MEMBERS_FLAGS: &[Flag] = &[Flag::switch("detailed", "The same as -verbose."), VERBOSE, JSON, TEMPLATE, UI];

/// The commands about servers and agents.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "agent-info",
        aliases: &[],
        arguments: "",
        synopsis: "Display status information about the local agent",
        about: "Shows figures about the agent that is asked.",
        general: true,
        flags: &[JSON, TEMPLATE],
        run: |call| Box::pin(agent_info(call)),
    },
    Command {
        name: "server members",
        aliases: &["server-members"],
        arguments: "",
        synopsis: "Display a list of known servers and their status",
        about: "Lists the servers and which of them leads.",
        general: true,
        flags: MEMBERS_FLAGS,
        run: |call| Box::pin(server_members(call)),
    },
    Command {
        name: "server join",
        aliases: &["server-join"],
        arguments: "<address> [address...]",
        synopsis: "Join server nodes together",
        about: "Lets the server that is asked join others.",
        general: true,
        flags: &[],
        run: |call| Box::pin(server_join(call)),
    },
    Command {
        name: "server force-leave",
        aliases: &["server-force-leave"],
        arguments: "<node>",
        synopsis: "Force a server into the 'left' state",
        about: "Counts a server that does not answer as gone.",
        general: true,
        flags: &[Flag::switch("prune", "Forget it altogether.")],
        run: |call| Box::pin(server_force_leave(call)),
    },
    Command {
        name: "system gc",
        aliases: &[],
        arguments: "",
        synopsis: "Run the system garbage collection process",
        about: "Forgets at once what is over: jobs, evaluations, allocations, nodes, deployments.",
        general: true,
        flags: &[],
        run: |call| Box::pin(system_gc(call)),
    },
    Command {
        name: "system reconcile summaries",
        aliases: &[],
        arguments: "",
        synopsis: "Reconciles the summaries of all registered jobs",
        about: "Counts the summaries of all jobs anew.",
        general: true,
        flags: &[],
        run: |call| Box::pin(reconcile(call)),
    },
    Command {
        name: "monitor",
        aliases: &[],
        arguments: "",
        synopsis: "Stream logs from an agent",
        about: "Prints the log of an agent as it is written, until Ctrl-C.",
        general: true,
        flags: &[
            Flag::text("log-level", "<level>", "The least level; default INFO."),
            Flag::switch("log-include-location", "With the place in the program."),
            Flag::text("node-id", "<id>", "The agent of this node."),
            Flag::text("server-id", "<name>", "The agent of this server."),
            Flag::switch("json", "Each line as JSON."),
        ],
        run: |call| Box::pin(monitor(call)),
    },
    Command {
        name: "scaling policy list",
        aliases: &[],
        arguments: "",
        synopsis: "Display all scaling policies",
        about: "Lists the scaling policies.",
        general: true,
        flags: &[
            VERBOSE,
            JSON,
            TEMPLATE,
            Flag::text("type", "<type>", "Only of this type."),
            Flag::text("job", "<id>", "Only of this job."),
        ],
        run: |call| Box::pin(scaling_list(call)),
    },
    Command {
        name: "scaling policy info",
        aliases: &[],
        arguments: "<policy>",
        synopsis: "Display an individual scaling policy",
        about: "Shows a scaling policy.",
        general: true,
        flags: &[VERBOSE, JSON, TEMPLATE],
        run: |call| Box::pin(scaling_info(call)),
    },
];

async fn own(client: &Client) -> Result<Value, Failure> {
    let (agent, _) = client.get("/v1/agent/self", &Query::none()).await.attempt("Error querying agent info")?;
    Ok(agent)
}

async fn agent_info(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let agent = own(&client).await?;
    if call.formatted(&agent)? {
        return Ok(0);
    }
    for (section, figures) in agent.entries("stats") {
        call.terminal.line(section);
        for (name, value) in entries_of(figures) {
            call.terminal.line(format!("  {name} = {}", value.plain()));
        }
    }
    Ok(0)
}

async fn server_members(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (answer, _): (Value, _) =
        client.get("/v1/agent/members", &Query::none()).await.attempt("Error querying servers")?;
    let leaders = leaders(&client, answer.list("Members")).await;
    let mut all = answer.list("Members").to_vec();
    all.sort_by_key(|m| m.text("Name").to_string());
    if call.wants_data() {
        for member in &mut all {
            let leads = (leaders.contains(&rpc_address(member))).to_string();
            if let Some(tags) = member.get_mut("Tags").and_then(Value::as_object_mut) {
                tags.insert("Leader".to_string(), Value::String(leads));
            }
        }
        call.formatted(&Value::Array(all))?;
        return Ok(0);
    }
    if all.is_empty() {
        call.terminal.line("No known servers");
        return Ok(0);
    }
    let detailed = call.verbose() || call.flags.on("detailed");
    call.terminal.line(members_text(&all, &leaders, detailed));
    if leaders.is_empty() {
        return Err(Failure::new("\nError determining leaders: no server of a known region names one"));
    }
    Ok(0)
}

fn rpc_address(member: &Value) -> String {
    let tags = member.at("Tags");
    let host = match tags.text("rpc_addr") {
        "" => member.text("Addr"),
        host => host,
    };
    if host.contains(':') { format!("[{host}]:{}", tags.text("port")) } else { format!("{host}:{}", tags.text("port")) }
}

/// The addresses of the leaders of all regions that members are of.
async fn leaders(client: &Client, members: &[Value]) -> Vec<String> {
    let mut regions: Vec<&str> = members.iter().map(|m| m.at("Tags").text("region")).collect();
    regions.sort_unstable();
    regions.dedup();
    let mut found = Vec::new();
    for region in regions {
        let query = Query { region: Some(region.to_string()), ..Query::none() };
        let leader: Result<(Value, _), _> = client.get("/v1/status/leader", &query).await;
        if let Ok((Value::String(leader), _)) = leader {
            found.push(leader);
        }
    }
    found
}

fn members_text(members: &[Value], leaders: &[String], detailed: bool) -> String {
    let mut lines = vec![
        if detailed {
            "Name|Address|Port|Status|Leader|Protocol|Raft Version|Build|Datacenter|Region|Tags"
        } else {
            "Name|Address|Port|Status|Leader|Raft Version|Build|Datacenter|Region"
        }
        .to_string(),
    ];
    for member in members {
        let tags = member.at("Tags");
        let protocol = if detailed { format!("{}|", member.int("ProtocolCur")) } else { String::new() };
        let all = if detailed {
            let all: Vec<String> = member.entries("Tags").iter().map(|(n, v)| format!("{n}={}", v.plain())).collect();
            format!("|{}", cell(&all.join(",")))
        } else {
            String::new()
        };
        lines.push(format!(
            "{}|{}|{}|{}|{}|{protocol}{}|{}|{}|{}{all}",
            member.text("Name"),
            member.text("Addr"),
            member.int("Port"),
            member.text("Status"),
            leaders.contains(&rpc_address(member)),
            tags.text("raft_vsn"),
            tags.text("build"),
            tags.text("dc"),
            tags.text("region")
        ));
    }
    columns(&lines)
}

async fn server_join(call: &mut Call<'_>) -> Result<u8, Failure> {
    if call.flags.words.is_empty() {
        return Err(call.usage("One or more server addresses are needed"));
    }
    let client = call.client()?;
    let mut query = Query::none();
    for address in &call.flags.words {
        query = query.with("address", address.clone());
    }
    let (bytes, _) = client.raw("PUT", "/v1/agent/join", &query, None).await.attempt("Error joining")?;
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    if !answer.text("error").is_empty() {
        return Err(Failure::new(format!("Error joining: {}", answer.text("error"))));
    }
    call.terminal.line(format!("Joined {} servers successfully", answer.int("num_joined")));
    Ok(0)
}

async fn server_force_leave(call: &mut Call<'_>) -> Result<u8, Failure> {
    let name = call.one_word()?.to_string();
    let client = call.client()?;
    let query = Query::none().with("node", name).with("prune", call.flags.on("prune").to_string());
    client.raw("PUT", "/v1/agent/force-leave", &query, None).await.attempt("Error force-leaving server")?;
    Ok(0)
}

async fn system_gc(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    client
        .raw("PUT", "/v1/system/gc", &Query::none(), None)
        .await
        .attempt("Error running system garbage-collection")?;
    Ok(0)
}

async fn reconcile(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    client
        .raw("PUT", "/v1/system/reconcile/summaries", &Query::none(), None)
        .await
        .attempt("Error running system summary reconciliation")?;
    Ok(0)
}

async fn monitor(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let mut query = Query::none()
        .with("log_level", call.flags.text("log-level").unwrap_or("INFO"))
        .with("log_json", call.flags.on("json").to_string())
        .with("log_include_location", call.flags.on("log-include-location").to_string())
        .with("plain", "true");
    if let Some(prefix) = call.flags.text("node-id") {
        let node = call.find_node(&client, prefix).await?;
        query = query.with("node_id", node.text("ID"));
    }
    if let Some(server) = call.flags.text("server-id") {
        query = query.with("server_id", server);
    }
    let mut stream = client.stream("GET", "/v1/agent/monitor", &query, None).await.attempt("Error starting monitor")?;
    let leave = tokio::signal::ctrl_c();
    tokio::pin!(leave);
    loop {
        tokio::select! {
            _ = &mut leave => return Ok(0),
            piece = stream.next() => match piece.attempt("Error monitoring logs")? {
                Some(piece) => call.terminal.raw(&piece),
                None => return Ok(0),
            },
        }
    }
}

fn target_text(policy: &Value) -> String {
    let target = policy.at("Target");
    ["Namespace", "Job", "Group", "Task"]
        .iter()
        .filter(|key| !target.text(key).is_empty())
        .map(|key| format!("{key}:{}", target.text(key)))
        .collect::<Vec<_>>()
        .join(",")
}

async fn scaling_list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let mut query = Query::none();
    for name in ["type", "job"] {
        if let Some(text) = call.flags.text(name) {
            query = query.with(name, text);
        }
    }
    let (all, _): (Value, _) =
        client.get("/v1/scaling/policies", &query).await.attempt("Error listing scaling policies")?;
    if call.formatted(&all)? {
        return Ok(0);
    }
    if members(&all).is_empty() {
        call.terminal.line("No policies found");
        return Ok(0);
    }
    let full = call.verbose();
    let mut sorted = members(&all).to_vec();
    sorted.sort_by_key(|p| p.text("ID").to_string());
    let mut lines = vec!["ID|Enabled|Type|Target".to_string()];
    lines.extend(
        sorted
            .iter()
            .map(|p| format!("{}|{}|{}|{}", id(p.text("ID"), full), p.on("Enabled"), p.text("Type"), target_text(p))),
    );
    call.terminal.line(columns(&lines));
    Ok(0)
}

async fn scaling_info(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (all, _): (Value, _) =
        client.get("/v1/scaling/policies", &Query::none()).await.attempt("Error querying scaling policies")?;
    if call.flags.words.is_empty() && call.wants_data() {
        call.formatted(&all)?;
        return Ok(0);
    }
    let word = call.one_word()?.to_string();
    let found: Vec<&Value> = members(&all).iter().filter(|p| p.text("ID").starts_with(&word)).collect();
    let stub = match found.as_slice() {
        [one] => *one,
        [] => return Err(Failure::new(format!("No scaling policies with prefix or ID {word:?} found"))),
        several => {
            let list: Vec<&str> = several.iter().map(|p| p.text("ID")).collect();
            return Err(Failure::new(format!("Prefix matched multiple scaling policies\n\n{}", list.join("\n"))));
        }
    };
    let path = format!("/v1/scaling/policy/{}", encode_segment(stub.text("ID")));
    let (policy, _): (Value, _) = client.get(&path, &Query::none()).await.attempt("Error querying scaling policy")?;
    if call.formatted(&policy)? {
        return Ok(0);
    }
    let lines = [
        format!("ID|{}", id(policy.text("ID"), call.verbose())),
        format!("Enabled|{}", policy.on("Enabled")),
        format!("Target|{}", target_text(&policy)),
        format!("Min|{}", policy.int("Min")),
        format!("Max|{}", policy.int("Max")),
    ];
    call.terminal.line(format!(
        "{}\nPolicy:\n{}",
        crate::terminal::pairs(&lines),
        crate::view::pretty(policy.at("Policy"))
    ));
    Ok(0)
}
