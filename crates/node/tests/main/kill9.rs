//! The agent is killed at any moment: same processes, no event lost, nothing run twice.

use crate::folder::Folder;
use crate::server::{EVENTUALLY, Server, words};
use crate::setup::{job, sh};
use herdsman_model::*;
use herdsman_world::World;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DIR: &str = "HERDSMAN_TEST_NODE_DIR";
const ADDR: &str = "HERDSMAN_TEST_NODE_SERVER";

/// Not a test by itself: the agent that the tests below start and kill.
#[tokio::test(flavor = "multi_thread")]
async fn agent_process() {
    let (Ok(dir), Ok(addr)) = (std::env::var(DIR), std::env::var(ADDR)) else { return };
    let _node = crate::setup::node(Path::new(&dir), &addr).await;
    std::future::pending::<()>().await;
}

fn agent(dir: &Path, addr: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill9::agent_process", "--nocapture"])
        .env(DIR, dir)
        .env(ADDR, addr)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill(agent: &mut Child) {
    agent.kill().unwrap();
    agent.wait().unwrap();
}

fn pid(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok().filter(|text| text.ends_with('\n'))
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_outlive_the_agent_and_are_found_again() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let mut process = agent(dir.path(), &server.addr);
    let tasks = vec![
        sh("init", Some((Hook::Prestart, false)), "echo init >> $NOMAD_ALLOC_DIR/data/order"),
        sh(
            "main",
            None,
            "echo $$ >> $NOMAD_ALLOC_DIR/data/pid; while [ ! -e $NOMAD_ALLOC_DIR/data/go ]; do sleep 0.05; done; exit 4",
        ),
        sh("once", Some((Hook::Poststart, false)), "echo once >> $NOMAD_ALLOC_DIR/data/order"),
        sh("stop", Some((Hook::Poststop, false)), "echo stop >> $NOMAD_ALLOC_DIR/data/order"),
    ];
    let id = server.place(&job("restored", JobType::Batch, tasks));
    let data = dir.path().join(format!("alloc/{id}/alloc/data"));
    let before = server.until("it runs", |_| pid(&data.join("pid"))).await;
    let once = |s: &Server| s.state(id).filter(|u| u.task_states["once"].state == TaskPhase::Dead);
    let told = server.until("the one-shot ended", once).await;
    for _ in 0..3 {
        kill(&mut process);
        process = agent(dir.path(), &server.addr);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(pid(&data.join("pid")), Some(before), "the same process, started once");
    // It ends while no agent looks.
    kill(&mut process);
    std::fs::write(data.join("go"), "").unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut process = agent(dir.path(), &server.addr);
    let end = server.until_status(id, ClientStatus::Failed).await;
    assert_eq!(std::fs::read_to_string(data.join("order")).unwrap(), "init\nonce\nstop\n", "nothing ran twice");
    assert_eq!(words(&end, "main"), ["Received", "TaskSetup", "Started", "Terminated", "NotRestarting"]);
    let exit = end.task_states["main"].events.iter().find_map(|e| match e.fact {
        TaskFact::Terminated { exit_code, .. } => Some(exit_code),
        _ => None,
    });
    assert_eq!(exit, Some(4));
    for (task, state) in &told.task_states {
        assert!(end.task_states[task].events.starts_with(&state.events), "{task} lost an event");
    }
    kill(&mut process);
}

/// Killed at random moments of short allocations: each task starts once, ends once, and everything is told.
#[tokio::test(flavor = "multi_thread")]
async fn kills_at_random_moments_lose_and_repeat_nothing() {
    const ROUNDS: u64 = 20;
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let mut process = agent(dir.path(), &server.addr);
    let mut ids = Vec::new();
    for round in 0..ROUNDS {
        let tasks = vec![
            sh("init", Some((Hook::Prestart, false)), "echo init >> $NOMAD_ALLOC_DIR/data/order"),
            sh("main", None, "echo main >> $NOMAD_ALLOC_DIR/data/order; sleep 0.1"),
            sh("stop", Some((Hook::Poststop, false)), "echo stop >> $NOMAD_ALLOC_DIR/data/order"),
        ];
        ids.push(server.place(&job(&format!("short-{round}"), JobType::Batch, tasks)));
        // Spread over the life of an agent: start, session, work, end of work.
        tokio::time::sleep(Duration::from_millis(round * 37 % 290)).await;
        kill(&mut process);
        process = agent(dir.path(), &server.addr);
    }
    let begun = Instant::now();
    for id in ids {
        let end = server.until_status(id, ClientStatus::Complete).await;
        let order = std::fs::read_to_string(dir.path().join(format!("alloc/{id}/alloc/data/order"))).unwrap();
        assert_eq!(order, "init\nmain\nstop\n", "{id}");
        for task in ["init", "main", "stop"] {
            assert_eq!(words(&end, task), ["Received", "TaskSetup", "Started", "Terminated"], "{id} {task}");
        }
    }
    assert!(begun.elapsed() < EVENTUALLY * 2);
    kill(&mut process);
}
