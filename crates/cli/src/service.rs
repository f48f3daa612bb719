//! The commands about services of the native provider.

use crate::command::{Attempt, Call, Command, FILTER, Failure, JSON, PAGE_TOKEN, PER_PAGE, TEMPLATE, VERBOSE};
use crate::flags::Flag;
use crate::format::id;
use crate::terminal::{cell, columns, pairs};
use crate::view::{View, members};
use herdsman_client::{Query, encode_segment};
use serde_json::Value;

/// The commands about services.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "service delete",
        aliases: &[],
        arguments: "<service_name> <service_id>",
        synopsis: "Deregister a registered service",
        about: "Removes one registration of a service.",
        general: true,
        flags: &[],
        run: |call| Box::pin(delete(call)),
    },
    Command {
        name: "service info",
        aliases: &[],
        arguments: "<service_name>",
        synopsis: "Display an individual service registration",
        about: "Lists where a service is.",
        general: true,
        flags: &[JSON, VERBOSE, TEMPLATE, FILTER, PER_PAGE, PAGE_TOKEN],
        run: |call| Box::pin(info(call)),
    },
    Command {
        name: "service list",
        aliases: &[],
        arguments: "",
        synopsis: "Display all registered services",
        about: "Lists the registered services.",
        general: true,
        flags: &[Flag::text("name", "<name>", "Only this service."), JSON, TEMPLATE],
        run: |call| Box::pin(list(call)),
    },
];

fn tags(of: &Value) -> String {
    let mut all: Vec<String> = of.list("Tags").iter().map(View::plain).collect();
    all.sort();
    format!("[{}]", cell(&all.join(",")))
}

/// All services with their namespaces.
fn flat(answer: &Value) -> Vec<(&str, &Value)> {
    let mut all: Vec<(&str, &Value)> = members(answer)
        .iter()
        .flat_map(|space| space.list("Services").iter().map(|s| (space.text("Namespace"), s)))
        .collect();
    all.sort_by_key(|(space, s)| (s.text("ServiceName").to_string(), *space));
    all
}

fn list_text(services: &[(&str, &Value)], namespaces: bool) -> String {
    let mut lines = vec![if namespaces { "Service Name|Namespace|Tags" } else { "Service Name|Tags" }.to_string()];
    for (space, service) in services {
        let space = if namespaces { format!("|{space}") } else { String::new() };
        lines.push(format!("{}{space}|{}", service.text("ServiceName"), tags(service)));
    }
    columns(&lines)
}

async fn list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (answer, _): (Value, _) =
        client.get("/v1/services", &Query::none()).await.attempt("Error listing service registrations")?;
    if call.formatted(&answer)? {
        return Ok(0);
    }
    let wanted = call.flags.text("name").map(str::to_string);
    let mut all = flat(&answer);
    all.retain(|(_, s)| wanted.as_ref().is_none_or(|w| s.text("ServiceName") == w));
    let text = if all.is_empty() {
        "No service registrations found".to_string()
    } else {
        list_text(&all, client.options().namespace == "*")
    };
    call.terminal.line(text);
    Ok(0)
}

async fn info(call: &mut Call<'_>) -> Result<u8, Failure> {
    let name = call.one_word()?.to_string();
    let client = call.client()?;
    let (answer, _): (Value, _) =
        client.get("/v1/services", &Query::none()).await.attempt("Error listing service registrations")?;
    let all = flat(&answer);
    let found: Vec<_> = all.iter().filter(|(_, s)| s.text("ServiceName") == name).collect();
    let found = if found.is_empty() {
        all.iter().filter(|(_, s)| s.text("ServiceName").starts_with(&name)).collect()
    } else {
        found
    };
    let (space, service) = match found.as_slice() {
        [one] => **one,
        [] => return Err(Failure::new(format!("No service registrations with name or prefix {name:?} found"))),
        several => {
            let several: Vec<(&str, &Value)> = several.iter().map(|f| **f).collect();
            let table = list_text(&several, client.options().namespace == "*");
            return Err(Failure::new(format!("Prefix matched multiple services\n\n{table}")));
        }
    };
    let query = Query { namespace: Some(space.to_string()), ..call.paged() };
    let path = format!("/v1/service/{}", encode_segment(service.text("ServiceName")));
    let (instances, meta): (Value, _) =
        client.get(&path, &query).await.attempt("Error listing service registrations")?;
    if call.formatted(&instances)? {
        return Ok(0);
    }
    let text = if call.verbose() { verbose_text(members(&instances)) } else { short_text(members(&instances)) };
    call.terminal.line(if members(&instances).is_empty() {
        "No service registrations found".to_string()
    } else {
        text
    });
    crate::eval::next_page(call, &meta.next_token);
    Ok(0)
}

fn address(s: &Value) -> String {
    match s.int("Port") {
        0 => s.text("Address").to_string(),
        port if s.text("Address").contains(':') => format!("[{}]:{port}", s.text("Address")),
        port => format!("{}:{port}", s.text("Address")),
    }
}

fn in_order(s: &Value) -> String {
    format!("[{}]", cell(&crate::view::join(s.list("Tags"), ",")))
}

fn short_text(instances: &[Value]) -> String {
    let mut lines = vec!["Job ID|Address|Tags|Node ID|Alloc ID".to_string()];
    for s in instances {
        lines.push(format!(
            "{}|{}|{}|{}|{}",
            s.text("JobID"),
            address(s),
            in_order(s),
            id(s.text("NodeID"), false),
            id(s.text("AllocID"), false)
        ));
    }
    columns(&lines)
}

fn verbose_text(instances: &[Value]) -> String {
    let blocks: Vec<String> = instances
        .iter()
        .map(|s| {
            pairs(&[
                format!("ID|{}", s.text("ID")),
                format!("Service Name|{}", s.text("ServiceName")),
                format!("Namespace|{}", s.text("Namespace")),
                format!("Job ID|{}", s.text("JobID")),
                format!("Alloc ID|{}", s.text("AllocID")),
                format!("Node ID|{}", s.text("NodeID")),
                format!("Datacenter|{}", s.text("Datacenter")),
                format!("Address|{}", address(s)),
                format!("Tags|{}", in_order(s)),
            ])
        })
        .collect();
    blocks.join("\n\n")
}

async fn delete(call: &mut Call<'_>) -> Result<u8, Failure> {
    let [name, id] = call.flags.words.as_slice() else {
        return Err(call.usage("This command takes two arguments: <service_name> and <service_id>"));
    };
    let client = call.client()?;
    let path = format!("/v1/service/{}/{}", encode_segment(name), encode_segment(id));
    let _: (Value, _) = client.delete(&path, &Query::none()).await.attempt("Error deleting service registration")?;
    call.terminal.line("Successfully deleted service registration");
    Ok(0)
}
