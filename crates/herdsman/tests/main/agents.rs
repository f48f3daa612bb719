//! Agents from configuration files: one, two on one host, on somebody else's data, told to end.

use crate::folder::Folder;
use crate::support::{Agent, ONCE, PATIENCE, eventually, herdsman, stderr, stdout, task, write_config, write_job};
use rustix::process::Signal;
use std::time::Instant;

/// Document 001: server and client as two processes, the job, and any second job; the client keeps one allocation.
#[test]
fn nomad_17971_events_of_poststop_survive_collection_on_the_client() {
    let folder = Folder::new();
    let server = folder.path().join("server.hcl");
    let client = folder.path().join("client.hcl");
    // The configurations of the document, with data directories of the test's own.
    std::fs::write(
        &server,
        format!(
            r#"data_dir = "{}"
log_level = "TRACE"

advertise {{
  http = "127.0.0.1"
  rpc = "127.0.0.1"
  serf = "127.0.0.1"
}}

server {{
  enabled = true
  bootstrap_expect = 1
}}"#,
            folder.path().join("server").display()
        ),
    )
    .unwrap();
    std::fs::write(
        &client,
        format!(
            r#"data_dir = "{}"
log_level = "debug"

advertise {{
  http = "127.0.0.1"
  rpc = "127.0.0.1"
  serf = "127.0.0.1"
}}

ports {{
  http = "9876"
  rpc = "9875"
  serf = "9874"
}}

client {{
  enabled = true
  servers = ["127.0.0.1"]
  gc_max_allocs = 1
}}

plugin "raw_exec" {{
  config {{
    enabled = true
  }}
}}"#,
            folder.path().join("client-1").display()
        ),
    )
    .unwrap();
    let servers = Agent::start(&server, 4646);
    let clients = Agent::start(&client, 9876);
    servers.wait_ready();
    let job = write_job(
        folder.path(),
        "job_spec",
        r#"
job "example" {
  datacenters = ["dc1"]
  type = "batch"

  group "test-group" {
    task "test-task" {
      driver = "raw_exec"

      config {
        command = "echo"
        args = [ "foo" ]
      }
    }

    task "poststop" {
      driver = "raw_exec"

      lifecycle {
        hook = "poststop"
        sidecar = false
      }

      config {
        command = "echo"
        args = [ "bar" ]
      }
    }
  }
}
"#,
    );
    // The command line works through the client's own API too: it passes requests on.
    let run = clients.command(&["job", "run", &job]);
    assert_eq!(run.status.code(), Some(0), "{}{}", stdout(&run), stderr(&run));
    let first = servers.allocs_in("example", "complete").remove(0);
    let id = first["ID"].as_str().unwrap().to_string();
    let before = servers.get(&format!("/v1/allocation/{id}"))["TaskStates"]["poststop"].clone();
    assert_eq!(before["State"], "dead");
    assert!(before["Events"].as_array().unwrap().len() >= 4, "{before}");
    let second = std::fs::read_to_string(&job).unwrap().replace("\"example\"", "\"second\"");
    let second = write_job(folder.path(), "second", &second);
    assert!(servers.command(&["job", "run", &second]).status.success());
    servers.allocs_in("second", "complete");
    let gone = folder.path().join("client-1/alloc").join(&id);
    eventually("collection of the first allocation", || (!gone.exists()).then_some(()));
    let after = servers.get(&format!("/v1/allocation/{id}"))["TaskStates"]["poststop"].clone();
    assert_eq!(after, before, "nothing recorded is lost");
}

#[test]
fn a_data_directory_of_the_peer_is_left_alone() {
    let folder = Folder::new();
    let (config, _) = write_config(folder.path());
    let raft = folder.path().join("data/server/raft");
    std::fs::create_dir_all(&raft).unwrap();
    std::fs::write(raft.join("raft.db"), "not ours").unwrap();
    let output = herdsman(&["agent", "-config", &config.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nothing was changed"), "{}", stderr(&output));
    let left: Vec<_> = std::fs::read_dir(folder.path().join("data")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["server"]);
}

#[test]
fn promises_that_are_not_kept_yet_keep_the_agent_from_starting() {
    let folder = Folder::new();
    let path = folder.path().join("agent.hcl");
    std::fs::write(
        &path,
        "server {\n  enabled = true\n  encrypt = \"abc\"\n}\nacl {\n  enabled = true\n}\nbananas = 1\n",
    )
    .unwrap();
    let output = herdsman(&["agent", "-config", &path.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1));
    for key in ["server.encrypt", "acl.enabled", "bananas"] {
        assert!(stderr(&output).contains(key), "{}", stderr(&output));
    }
}

/// Document 000: the agent's end waits for no task, a poststop that sleeps for ever included.
#[test]
fn the_agents_end_waits_for_no_task() {
    let folder = Folder::new();
    let (config, http) = write_config(folder.path());
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    let job = write_job(
        folder.path(),
        "stall",
        &format!(
            "job \"stall\" {{\n type = \"batch\"\n group \"g\" {{\n{ONCE}{}{}}}\n}}\n",
            task("main", "", "/bin/true", &[]),
            task("stalled", "poststop", "/bin/sleep", &["3600"])
        ),
    );
    assert!(agent.command(&["job", "run", "-detach", &job]).status.success());
    let alloc = eventually("a running poststop", || {
        let all = agent.try_get("/v1/job/stall/allocations")?;
        let first = all.as_array()?.first()?.clone();
        (first["TaskStates"]["stalled"]["State"] == "running").then_some(first)
    });
    assert_eq!(alloc["ClientStatus"], "running", "an allocation is terminal only when its poststop tasks are dead");
    let start = Instant::now();
    agent.end(Signal::TERM);
    assert!(start.elapsed() < PATIENCE);
    // It is found running again, and can be signalled.
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    let id = alloc["ID"].as_str().unwrap();
    let again = agent.get(&format!("/v1/allocation/{id}"));
    assert_eq!(again["TaskStates"]["stalled"]["State"], "running");
    eventually("a delivered signal", || {
        agent.command(&["alloc", "signal", "-s", "SIGKILL", id, "stalled"]).status.success().then_some(())
    });
    agent.allocs_in("stall", "failed");
}

/// A drain may take an hour; whoever does not want to wait says so again.
#[test]
fn a_second_signal_ends_a_drain_and_leaves_the_tasks() {
    let folder = Folder::new();
    let (config, http) = write_config(folder.path());
    let text = std::fs::read_to_string(&config).unwrap();
    let drain = "leave_on_terminate = true\nclient {\n  max_kill_timeout = \"9m\"\n  drain_on_shutdown {\n  }\n}\n";
    std::fs::write(&config, format!("{text}{drain}")).unwrap();
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    let quick = "update {\n min_healthy_time = \"0s\"\n}\n";
    let stubborn = task("main", "", "/bin/sh", &["-c", "trap '' INT TERM; echo up; while :; do sleep 0.1; done"])
        .replace("driver", "kill_timeout = \"9m\"\n driver");
    let job = write_job(
        folder.path(),
        "stubborn",
        &format!("job \"stubborn\" {{\n group \"g\" {{\n{quick}{stubborn}}}\n}}\n"),
    );
    let run = agent.command(&["job", "run", "-detach", &job]);
    assert!(run.status.success(), "{}", stderr(&run));
    let id = agent.allocs_in("stubborn", "running").remove(0)["ID"].as_str().unwrap().to_string();
    eventually("the trap", || stdout(&agent.command(&["alloc", "logs", &id, "main"])).contains("up").then_some(()));
    agent.signal(Signal::TERM);
    eventually("a stop of the task", || {
        let alloc = agent.try_get(&format!("/v1/allocation/{id}"))?;
        let events = alloc["TaskStates"]["main"]["Events"].as_array()?.clone();
        events.iter().any(|e| e["Type"] == "Killing").then_some(())
    });
    assert_eq!(agent.end(Signal::TERM), Some(1), "an end that was cut short is no graceful one");
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    let alloc = agent.get(&format!("/v1/allocation/{id}"));
    assert_eq!(alloc["TaskStates"]["main"]["State"], "running");
    eventually("a delivered signal", || {
        agent.command(&["alloc", "signal", "-s", "SIGKILL", &id, "main"]).status.success().then_some(())
    });
    eventually("the end of the task", || {
        (agent.try_get(&format!("/v1/allocation/{id}"))?["TaskStates"]["main"]["State"] == "dead").then_some(())
    });
    agent.end(Signal::TERM);
}

/// What a configuration says of a new cluster and of a new node holds until somebody says otherwise.
#[test]
fn first_settings_of_cluster_and_node_act() {
    let folder = Folder::new();
    let (config, http) = write_config(folder.path());
    let text = std::fs::read_to_string(&config).unwrap();
    let first = r#"
server {
  default_scheduler_config {
    scheduler_algorithm             = "spread"
    memory_oversubscription_enabled = true
    preemption_config {
      service_scheduler_enabled = true
    }
  }
}
client {
  default_ineligible      = true
  reservable_cores        = "0"
  nomad_service_discovery = false
}
"#;
    std::fs::write(&config, format!("{text}{first}")).unwrap();
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    let scheduler = || agent.get("/v1/operator/scheduler/configuration")["SchedulerConfig"].clone();
    let found = scheduler();
    assert_eq!(found["SchedulerAlgorithm"], "spread");
    assert_eq!(found["MemoryOversubscriptionEnabled"], true);
    assert_eq!(found["PreemptionConfig"]["ServiceSchedulerEnabled"], true);
    assert_eq!(found["PreemptionConfig"]["SystemSchedulerEnabled"], false);
    let id = agent.get("/v1/nodes")[0]["ID"].as_str().unwrap().to_string();
    let node = agent.get(&format!("/v1/node/{id}"));
    assert_eq!(node["SchedulingEligibility"], "ineligible");
    assert_eq!(node["Attributes"]["cpu.reservablecores"], "1");
    assert!(node["Attributes"]["nomad.service_discovery"].is_null());
    // Somebody says otherwise, and the next start leaves it at that.
    assert!(agent.command(&["node", "eligibility", "-enable", &id]).status.success());
    assert!(
        agent.command(&["operator", "scheduler", "set-config", "-scheduler-algorithm", "binpack"]).status.success()
    );
    agent.end(Signal::TERM);
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    assert_eq!(agent.get(&format!("/v1/node/{id}"))["SchedulingEligibility"], "eligible");
    let found = agent.get("/v1/operator/scheduler/configuration")["SchedulerConfig"].clone();
    assert_eq!(found["SchedulerAlgorithm"], "binpack");
    agent.end(Signal::TERM);
}

#[test]
fn a_cluster_of_several_servers_is_refused() {
    let folder = Folder::new();
    let (config, _) = write_config(folder.path());
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}server {{\n  bootstrap_expect = 3\n}}\n")).unwrap();
    let refused = herdsman(&["agent", "-config", config.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    let said = format!("{}{}", stdout(&refused), stderr(&refused));
    assert!(
        said.contains("server.bootstrap_expect = 3: 1: a cluster of several servers is not possible yet"),
        "{said}"
    );
}

/// A job is stopped and run again while its task takes its time to end: the new one waits for the port of the old one.
#[test]
fn nomad_10440_a_job_that_is_run_again_waits_for_its_static_port() {
    let folder = Folder::new();
    let (config, http) = write_config(folder.path());
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    let (told, [port]) = (folder.path().join("told"), crate::support::free_ports());
    let script = format!(
        "echo start >> {0}; trap 'sleep 2; echo end >> {0}; exit 0' INT; while :; do sleep 0.1; done",
        told.display()
    );
    let network = format!("network {{\n port \"web\" {{\n static = {port}\n}}\n}}\n");
    let main = task("main", "", "/bin/sh", &["-c", &script]);
    let job = write_job(folder.path(), "again", &format!("job \"again\" {{\n group \"g\" {{\n{network}{main}}}\n}}\n"));
    assert!(agent.command(&["job", "run", "-detach", &job]).status.success());
    let lines = || std::fs::read_to_string(&told).unwrap_or_default();
    eventually("it runs", || lines().starts_with("start\n").then_some(()));
    assert!(agent.command(&["job", "stop", "-detach", "again"]).status.success());
    assert!(agent.command(&["job", "run", "-detach", &job]).status.success());
    eventually("it runs again", || (lines().matches("start").count() == 2).then_some(()));
    assert_eq!(lines(), "start\nend\nstart\n");
    agent.end(Signal::TERM);
}

#[test]
fn nomad_17815_a_silent_tasks_log_is_followed_to_its_end() {
    let folder = Folder::new();
    let (config, http) = write_config(folder.path());
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    let main = task("main", "", "/bin/sleep", &["1"]);
    let job = write_job(
        folder.path(),
        "silent",
        &format!("job \"silent\" {{\n type = \"batch\"\n group \"g\" {{\n{main}}}\n}}\n"),
    );
    assert!(agent.command(&["job", "run", "-detach", &job]).status.success());
    let alloc = eventually("it runs", || agent.allocs_in("silent", "running").pop());
    let followed = agent.command(&["alloc", "logs", "-f", "-stderr", alloc["ID"].as_str().unwrap()]);
    assert_eq!((followed.status.code(), stdout(&followed), stderr(&followed)), (Some(0), String::new(), String::new()));
    agent.end(Signal::TERM);
}

#[test]
fn nomad_14333_a_name_that_others_begin_with_is_meant_exactly() {
    let folder = Folder::new();
    let (config, http) = write_config(folder.path());
    let agent = Agent::start(&config, http);
    agent.wait_ready();
    for name in ["backup", "backup-db"] {
        let main = task("main", "", "/bin/true", &[]);
        let periodic = "periodic {\n crons = [\"0 0 1 1 *\"]\n}\n";
        let text = format!("job \"{name}\" {{\n type = \"batch\"\n {periodic} group \"g\" {{\n{main}}}\n}}\n");
        let file = write_job(folder.path(), name, &text);
        assert!(agent.command(&["job", "run", &file]).status.success());
    }
    let forced = agent.command(&["job", "periodic", "force", "-detach", "backup"]);
    assert_eq!(forced.status.code(), Some(0), "{}", stderr(&forced));
    let launched = eventually("a launch", || {
        let jobs = agent.get("/v1/jobs");
        let names = jobs.as_array()?.iter().filter_map(|j| j["ID"].as_str()).map(str::to_string);
        names.into_iter().find(|name| name.contains("/periodic-"))
    });
    assert!(launched.starts_with("backup/periodic-"), "{launched}");
    agent.end(Signal::TERM);
}
