//! Reading the configuration again: SIGHUP and the API.

use crate::folder::Folder;
use crate::support::{Agent, eventually, stderr, stdout, task, write_config, write_job};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::path::Path;

/// An answer of the API as it is sent, with its headers.
fn answer(http: u16, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", http)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn log(config: &Path) -> String {
    std::fs::read_to_string(config.with_extension("log")).unwrap()
}

/// Replaces the configuration by the original with `more` behind it, and reads it again.
fn reload_with(agent: &Agent, config: &Path, original: &str, more: &str, word: &str) {
    std::fs::write(config, format!("{original}{more}")).unwrap();
    let before = log(config).matches(word).count();
    agent.signal(Signal::HUP);
    eventually(word, || (log(config).matches(word).count() > before).then_some(()));
}

const DONE: &str = "configuration read again";
const REFUSED: &str = "the configuration was not read again, the old one stays";

#[test]
fn keys_that_can_change_do_and_others_wait_for_a_restart() {
    let folder = Folder::new();
    let (config, http) = write_config(folder.path());
    let original = std::fs::read_to_string(&config).unwrap();
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    let sleeper = task("main", "", "/bin/sleep", &["3600"]);
    let job = write_job(folder.path(), "long", &format!("job \"long\" {{\n group \"g\" {{\n{sleeper}}}\n}}\n"));
    assert!(agent.command(&["job", "run", "-detach", &job]).status.success());
    let id = agent.allocs_in("long", "running").remove(0)["ID"].as_str().unwrap().to_string();
    let exec = || agent.command(&["alloc", "exec", "-t=false", &id, "/bin/true"]);
    assert!(exec().status.success(), "{}", stderr(&exec()));

    let more = r#"
log_json = true
leave_on_terminate = true
http_api_response_headers { "X-Told" = "again" }
server {
  num_schedulers   = 7
  job_max_priority = 200
}
client {
  disable_remote_exec = true
  node_max_allocs     = 3
  node_class          = "other"
}
"#;
    reload_with(&agent, &config, &original, more, DONE);
    assert!(answer(http, "/v1/agent/health").contains("x-told: again"), "{}", answer(http, "/v1/agent/health"));
    assert_eq!(agent.get("/v1/agent/schedulers/config")["num_schedulers"], 7);
    assert!(!exec().status.success(), "remote execution is off now");
    let urgent =
        std::fs::read_to_string(&job).unwrap().replace("group", "priority = 150\n group").replace("long", "urgent");
    let urgent = write_job(folder.path(), "urgent", &urgent);
    let run = agent.command(&["job", "run", "-detach", &urgent]);
    assert!(run.status.success(), "{}", stderr(&run));
    agent.allocs_in("urgent", "running");
    let node = agent.get("/v1/nodes")[0]["ID"].as_str().unwrap().to_string();
    eventually("the node's limit", || (agent.get(&format!("/v1/node/{node}"))["NodeMaxAllocs"] == 3).then_some(()));
    let last = log(&config).lines().rev().find(|l| l.contains(DONE)).unwrap().to_string();
    assert!(last.starts_with('{'), "the log is JSON now: {last}");
    assert!(last.contains("client.node_max_allocs") && !last.contains("node_class"), "{last}");
    assert!(log(&config).lines().any(|l| l.contains("needs a restart") && l.contains("client.node_class")));
    assert_eq!(agent.get(&format!("/v1/node/{node}"))["NodeClass"], "", "it waits for the restart");
    assert_eq!(agent.get("/v1/agent/self")["config"]["LeaveOnTerm"], true);

    // Back again: fewer schedulers, and the waiting key is no change any more.
    let warned = log(&config).matches("needs a restart").count();
    reload_with(&agent, &config, &original, "\nleave_on_terminate = true\n", DONE);
    assert_eq!(log(&config).matches("needs a restart").count(), warned);
    assert!(exec().status.success(), "{}", stderr(&exec()));
    assert!(agent.command(&["job", "stop", "-detach", "-purge", "long"]).status.success());
    assert!(agent.command(&["job", "stop", "-detach", "-purge", "urgent"]).status.success());
    eventually("the end of the tasks", || {
        let allocs = agent.try_get("/v1/allocations")?;
        allocs.as_array()?.iter().all(|a| a["ClientStatus"] == "complete").then_some(())
    });
    assert_eq!(agent.end(Signal::TERM), Some(0), "leaving was turned on by the reload");
}

#[test]
fn a_bad_file_leaves_the_running_configuration_in_place() {
    let folder = Folder::new();
    let (config, http) = write_config(folder.path());
    let original = std::fs::read_to_string(&config).unwrap();
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    let next = original.lines().count() + 2;
    for (wrong, named) in [
        ("bananas = 1", "bananas"),
        ("server { job_max_priority = 5 }", "job_max_priority"),
        ("acl { enabled = true }", "acl.enabled"),
        ("client {", "client"),
        ("region = foo()", "Only plain values"),
    ] {
        let more = format!("http_api_response_headers {{ \"X-Told\" = \"never\" }}\n{wrong}\n");
        reload_with(&agent, &config, &original, &more, REFUSED);
        let text = log(&config);
        let said = &text[text.rfind(REFUSED).unwrap()..];
        let place = format!("{}:{next}", config.display());
        let unclosed = format!("{}:{}", config.display(), next + 1);
        assert!(said.contains(named) && (said.contains(&place) || said.contains(&unclosed)), "{wrong}: {said}");
        assert!(!answer(http, "/v1/agent/health").contains("x-told"), "{wrong}");
    }
    let refused = agent.command(&["operator", "api", "-X", "PUT", "/v1/agent/reload"]);
    assert!(stdout(&refused).contains("Only plain values") || stderr(&refused).contains("Only plain values"));
    std::fs::write(&config, format!("{original}log_level = \"x\"\n").replace("log_level = \"DEBUG\"", "")).unwrap();
    let refused = agent.command(&["operator", "api", "-X", "PUT", "/v1/agent/reload"]);
    assert!(stdout(&refused).contains("TRACE") || stderr(&refused).contains("TRACE"), "{}", stdout(&refused));
    std::fs::write(&config, original.replace("DEBUG", "WARN")).unwrap();
    assert!(agent.command(&["operator", "api", "-X", "PUT", "/v1/agent/reload"]).status.success());
    assert_eq!(agent.get("/v1/agent/self")["config"]["LogLevel"], "WARN");
    agent.end(Signal::TERM);
}
