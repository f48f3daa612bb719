//! The commands about namespaces.

use crate::command::{Attempt, Call, Command, Failure, JSON, TEMPLATE};
use crate::flags::Flag;
use crate::terminal::{cell, columns, pairs};
use crate::view::{View, join, members, pretty};
use herdsman_client::{Client, Query, encode_segment};
use serde_json::{Map, Value, json};

/// The commands about namespaces.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "namespace apply",
        aliases: &[],
        arguments: "<input>",
        synopsis: "Create or update a namespace",
        about: "Creates or changes a namespace: one of this name, or the one that a file describes, or standard input for \
                \"-\".",
        general: true,
        flags: &[
            Flag::text("description", "<text>", "What it is for."),
            Flag::text("quota", "<name>", "The quota it is bound to."),
            Flag::switch("json", "The input is JSON."),
        ],
        run: |call| Box::pin(apply(call)),
    },
    Command {
        name: "namespace delete",
        aliases: &[],
        arguments: "<namespace>",
        synopsis: "Delete a namespace",
        about: "Deletes a namespace that no job uses.",
        general: true,
        flags: &[],
        run: |call| Box::pin(delete(call)),
    },
    Command {
        name: "namespace inspect",
        aliases: &[],
        arguments: "<namespace>",
        synopsis: "Inspect a namespace",
        about: "Prints a namespace as JSON.",
        general: true,
        flags: &[TEMPLATE],
        run: |call| Box::pin(inspect(call)),
    },
    Command {
        name: "namespace list",
        aliases: &[],
        arguments: "",
        synopsis: "List namespaces",
        about: "Lists the namespaces.",
        general: true,
        flags: &[JSON, TEMPLATE],
        run: |call| Box::pin(list(call)),
    },
    Command {
        name: "namespace status",
        aliases: &[],
        arguments: "<namespace>",
        synopsis: "Display a namespace's status",
        about: "Shows a namespace.",
        general: true,
        flags: &[JSON, TEMPLATE],
        run: |call| Box::pin(status(call)),
    },
];

fn list_text(namespaces: &[Value]) -> String {
    let mut sorted: Vec<&Value> = namespaces.iter().collect();
    sorted.sort_by_key(|n| n.text("Name").to_string());
    let mut lines = vec!["Name|Description".to_string()];
    lines.extend(sorted.iter().map(|n| format!("{}|{}", n.text("Name"), cell(n.text("Description")))));
    columns(&lines)
}

/// The namespace with this name, or the only one whose name begins so.
async fn find(client: &Client, prefix: &str) -> Result<Value, Failure> {
    let query = Query { prefix: prefix.to_string(), ..Query::none() };
    let (all, _): (Value, _) = client.get("/v1/namespaces", &query).await.attempt("Error retrieving namespaces")?;
    if let Some(whole) = members(&all).iter().find(|n| n.text("Name") == prefix) {
        return Ok(whole.clone());
    }
    match members(&all) {
        [one] => Ok(one.clone()),
        [] => Err(Failure::new(format!("Error retrieving namespaces: Namespace {prefix:?} matched no namespaces"))),
        several => Err(Failure::new(format!("Prefix matched multiple namespaces\n\n{}", list_text(several)))),
    }
}

async fn list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (all, _): (Value, _) =
        client.get("/v1/namespaces", &Query::none()).await.attempt("Error retrieving namespaces")?;
    if call.formatted(&all)? {
        return Ok(0);
    }
    let text = if members(&all).is_empty() { "No namespaces found".to_string() } else { list_text(members(&all)) };
    call.terminal.line(text);
    Ok(0)
}

async fn inspect(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let mut namespace = find(&client, &word).await?;
    if let Some(object) = namespace.as_object_mut() {
        // Its own check sum is of use to servers only.
        object.remove("Hash");
    }
    if call.flags.text("t").is_some() {
        call.formatted(&namespace)?;
    } else {
        call.terminal.line(pretty(&namespace));
    }
    Ok(0)
}

async fn status(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let namespace = find(&client, &word).await?;
    if call.formatted(&namespace)? {
        return Ok(0);
    }
    let rules = namespace.at("Capabilities");
    let listed = |key: &str, all: &str| match rules.list(key) {
        [] => all.to_string(),
        some => join(some, ","),
    };
    let mut lines = vec![
        format!("Name|{}", namespace.text("Name")),
        format!("Description|{}", cell(namespace.text("Description"))),
        format!("Quota|{}", namespace.text("Quota")),
        format!("Enabled Drivers|{}", listed("EnabledTaskDrivers", "*")),
        format!("Disabled Drivers|{}", listed("DisabledTaskDrivers", "")),
        format!("Enabled Network Modes|{}", listed("EnabledNetworkModes", "*")),
        format!("Disabled Network Modes|{}", listed("DisabledNetworkModes", "")),
    ];
    let pools = namespace.at("NodePoolConfiguration");
    if pools.is_object() {
        lines.push(format!("Default Node Pool|{}", pools.text("Default")));
    }
    let mut text = pairs(&lines);
    let meta: Vec<String> =
        namespace.entries("Meta").iter().map(|(name, value)| format!("{name}|{}", cell(&value.plain()))).collect();
    if !meta.is_empty() {
        text.push_str(&format!("\n\nMetadata\n{}", pairs(&meta)));
    }
    call.terminal.line(text);
    Ok(0)
}

async fn delete(call: &mut Call<'_>) -> Result<u8, Failure> {
    let name = call.one_word()?.to_string();
    let client = call.client()?;
    let path = format!("/v1/namespace/{}", encode_segment(&name));
    let _: (Value, _) = client.delete(&path, &Query::none()).await.attempt("Error deleting namespace")?;
    call.terminal.line(format!("Successfully deleted namespace {name:?}!"));
    Ok(0)
}

async fn apply(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let is_file = word == "-" || std::path::Path::new(&word).is_file();
    if is_file && (call.flags.given("description") || call.flags.given("quota")) {
        return Err(call.usage("-description and -quota change a namespace by its name; a file says both itself"));
    }
    let client = call.client()?;
    let namespace = if is_file {
        let text = call.file_or_input(&word).await?;
        if call.flags.on("json") || word.ends_with(".json") {
            serde_json::from_str(&text)
                .map_err(|e| Failure::new(format!("Failed to parse namespace specification: {e}")))?
        } else {
            from_hcl(&word, &text).map_err(|e| Failure::new(format!("Failed to parse namespace specification: {e}")))?
        }
    } else {
        named(call, &client, &word).await?
    };
    let name = namespace.text("Name").to_string();
    if name.is_empty() {
        return Err(Failure::new("Failed to parse namespace specification: it needs a name"));
    }
    let _: (Value, _) =
        client.put("/v1/namespace", &Query::none(), &namespace).await.attempt("Error applying namespace")?;
    call.terminal.line(format!("Successfully applied namespace {name:?}!"));
    Ok(0)
}

/// The namespace of this name as it is, or a new one, with what flags change.
async fn named(call: &Call<'_>, client: &Client, name: &str) -> Result<Value, Failure> {
    let path = format!("/v1/namespace/{}", encode_segment(name));
    let known: Result<(Value, _), _> = client.get(&path, &Query::none()).await;
    let mut namespace = match known {
        Ok((known, _)) => known,
        Err(error) if error.code() == Some(404) => json!({ "Name": name }),
        Err(error) => return Err(Failure::of("Error looking up namespace", &error)),
    };
    if let Some(object) = namespace.as_object_mut() {
        for (flag, key) in [("description", "Description"), ("quota", "Quota")] {
            if let Some(text) = call.flags.text(flag) {
                object.insert(key.to_string(), json!(text));
            }
        }
    }
    Ok(namespace)
}

fn from_hcl(file: &str, text: &str) -> Result<Value, String> {
    let spec = crate::spec::read(file, text)?;
    let mut out = Map::new();
    for (key, value) in spec.attributes {
        let wire = match key.as_str() {
            "name" => "Name",
            "description" => "Description",
            "quota" => "Quota",
            "meta" => "Meta",
            other => return Err(format!("an argument {other:?} is not known: name, description, quota and meta are")),
        };
        out.insert(wire.to_string(), value);
    }
    for block in spec.blocks {
        let content = Value::Object(block.content);
        let (wire, keys): (&str, &[(&str, &str)]) = match block.kind.as_str() {
            "meta" => {
                out.insert("Meta".to_string(), content);
                continue;
            }
            "capabilities" => (
                "Capabilities",
                &[
                    ("enabled_task_drivers", "EnabledTaskDrivers"),
                    ("disabled_task_drivers", "DisabledTaskDrivers"),
                    ("enabled_network_modes", "EnabledNetworkModes"),
                    ("disabled_network_modes", "DisabledNetworkModes"),
                ],
            ),
            "node_pool_config" => {
                ("NodePoolConfiguration", &[("default", "Default"), ("allowed", "Allowed"), ("denied", "Denied")])
            }
            "vault" => ("VaultConfiguration", &[("default", "Default"), ("allowed", "Allowed"), ("denied", "Denied")]),
            "consul" => {
                ("ConsulConfiguration", &[("default", "Default"), ("allowed", "Allowed"), ("denied", "Denied")])
            }
            other => return Err(format!("a block {other:?} is not known here")),
        };
        let mut inner = Map::new();
        for (key, value) in content.as_object().into_iter().flatten() {
            let Some((_, name)) = keys.iter().find(|(known, _)| known == key) else {
                return Err(format!("{} has {key:?}, which is not known", block.kind));
            };
            inner.insert((*name).to_string(), value.clone());
        }
        out.insert(wire.to_string(), Value::Object(inner));
    }
    Ok(Value::Object(out))
}
