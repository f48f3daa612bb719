//! The commands about nodes.

pub mod drain;
pub mod meta;
pub mod pool;
pub mod status;

pub use status::{Columns, list_text};

use crate::command::{Attempt, Call, Command, FILTER, Failure, JSON, PAGE_TOKEN, PER_PAGE, TEMPLATE, UI, VERBOSE};
use crate::find::read_node;
use crate::flags::Flag;
use crate::view::View;
use herdsman_client::{Client, Query};
use serde_json::Value;

const SELF: Flag = Flag::switch("self", "The node of the agent that is asked.");

const DRAIN_FLAGS: &[Flag] = &[
    Flag::switch("enable", "Begin to drain the node."),
    Flag::switch("disable", "End the drain; the node takes allocations again."),
    Flag::text("deadline", "<duration>", "After this, what is still there is stopped; default 1h."),
    Flag::switch("detach", "Do not watch."),
    Flag::switch("force", "Stop everything at once."),
    Flag::switch("no-deadline", "Wait for as long as it takes."),
    Flag::switch("ignore-system", "Leave allocations of system jobs."),
    Flag::switch("keep-ineligible", "With -disable: the node stays ineligible."),
    Flag::switch("monitor", "Only watch a drain that goes on."),
    Flag::text("m", "<message>", "Why."),
    Flag::texts("meta", "<name=value>", "Recorded with the drain; may be given several times."),
    SELF,
    Flag::switch("yes", "Do not ask."),
];

const STATUS_FLAGS: &[Flag] = &[
    SELF,
    Flag::switch("stats", "What the machine uses, in detail."),
    Flag::switch("allocs", "In the list: how many allocations run."),
    Flag::switch("short", "Only the head and the allocations."),
    Flag::switch("os", "In the list: the operating system."),
    Flag::switch("quiet", "In the list: only ids."),
    VERBOSE,
    PER_PAGE,
    PAGE_TOKEN,
    FILTER,
    JSON,
    TEMPLATE,
    UI,
];

/// The commands about nodes, without pools.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "node status",
        aliases: &["node-status"],
        arguments: "[node]",
        synopsis: "Display status information about nodes",
        about: "Lists all nodes, or shows one with its drivers, events, resources and allocations.",
        general: true,
        flags: STATUS_FLAGS,
        run: |call| Box::pin(status::status(call)),
    },
    Command {
        name: "node drain",
        aliases: &["node-drain"],
        arguments: "<node>",
        synopsis: "Toggle drain mode on a given node",
        about: "Moves what runs on a node elsewhere, keeping to each group's migrate block, and watches that until it is \
                done. Ctrl-C ends the watch, not the drain.",
        general: true,
        flags: DRAIN_FLAGS,
        run: |call| Box::pin(drain::drain(call)),
    },
    Command {
        name: "node eligibility",
        aliases: &[],
        arguments: "<node>",
        synopsis: "Toggle scheduling eligibility for a given node",
        about: "Says whether a node takes new allocations. What runs there stays.",
        general: true,
        flags: &[Flag::switch("enable", "It takes new allocations."), Flag::switch("disable", "It takes none."), SELF],
        run: |call| Box::pin(drain::eligibility(call)),
    },
    Command {
        name: "node config",
        aliases: &[],
        arguments: "[server address...]",
        synopsis: "View or modify client configuration details",
        about: "Shows the servers that a client agent knows, or gives it others.",
        general: true,
        flags: &[
            Flag::switch("servers", "Show the known servers."),
            Flag::switch("update-servers", "Replace them by the arguments."),
        ],
        run: |call| Box::pin(meta::config(call)),
    },
    Command {
        name: "node meta apply",
        aliases: &[],
        arguments: "<name=value> ...",
        synopsis: "Modify node metadata",
        about: "Sets or removes metadata of a node while it runs; it outlives restarts of the agent.",
        general: true,
        flags: &[
            Flag::text("node-id", "<id>", "The node; default: that of the agent that is asked."),
            Flag::text("unset", "<name,...>", "Names to remove, separated by commas."),
        ],
        run: |call| Box::pin(meta::apply(call)),
    },
    Command {
        name: "node meta read",
        aliases: &[],
        arguments: "",
        synopsis: "Read node metadata",
        about: "Shows the metadata of a node: all, what was set while it runs, and what its configuration says.",
        general: true,
        flags: &[Flag::text("node-id", "<id>", "The node; default: that of the agent that is asked."), JSON, TEMPLATE],
        run: |call| Box::pin(meta::read(call)),
    },
];

/// The node that a call names by a word or by `-self`.
async fn named(call: &Call<'_>, client: &Client) -> Result<Value, Failure> {
    match (call.flags.on("self"), call.flags.words.as_slice()) {
        (true, []) => own(client).await,
        (false, [word]) => {
            let word = word.clone();
            call.find_node(client, &word).await
        }
        _ => Err(call.usage("Node ID must be specified if -self isn't being used")),
    }
}

/// The node of the agent that is asked.
async fn own(client: &Client) -> Result<Value, Failure> {
    let (agent, _): (Value, _) = client.get("/v1/agent/self", &Query::none()).await.attempt("Error querying agent")?;
    match agent.at("stats").at("client").text("node_id") {
        "" => Err(Failure::new("The agent that was asked is no client: it has no node. Leave -self away and name one")),
        id => read_node(client, id).await,
    }
}
