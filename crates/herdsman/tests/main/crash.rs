//! `kill -9` of the agent at random moments, with running tasks: same processes, no event lost, nothing run twice.

use crate::folder::Folder;
use crate::support::{Agent, eventually, task, write_config, write_job};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the agent is killed.
const KILLS: u64 = 200;

/// A small deterministic source of moments.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_millis(self.0 % 150)
    }
}

/// Whether a process is the first of its session, as that of each task is. A shell about to run a command is for a moment two
/// processes with the same words; the second one is not.
fn leads_session(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().nth(3).and_then(|s| s.parse().ok()) == Some(pid)
}

/// Process ids of the marked tasks, by mark.
fn processes(mark: &str) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<String> = line
            .split(|b| *b == 0)
            .map(|w| String::from_utf8_lossy(w).into_owned())
            .filter(|w| !w.is_empty())
            .collect();
        if let [shell, _, _, name] = words.as_slice()
            && shell == "/bin/sh"
            && name.starts_with(mark)
            && leads_session(pid)
        {
            assert!(found.insert(name.clone(), pid).is_none(), "{name} runs twice");
        }
    }
    found
}

fn events(alloc: &Value, task: &str) -> Vec<(i64, String)> {
    let all = alloc["TaskStates"][task]["Events"].as_array().cloned().unwrap_or_default();
    all.iter().map(|e| (e["Time"].as_i64().unwrap(), e["Type"].as_str().unwrap().to_string())).collect()
}

#[test]
fn tasks_outlive_two_hundred_kills_of_the_agent() {
    let folder = Folder::new();
    let (config, http) = write_config(folder.path());
    let mark = format!("kill-{}", std::process::id());
    let job = write_job(
        folder.path(),
        "long",
        &format!(
            r#"
job "long" {{
  type = "batch"
  group "g" {{
    count = 3
    task "prepare" {{
      driver = "raw_exec"
      lifecycle {{
        hook = "prestart"
      }}
      config {{
        command = "/bin/sh"
        args    = ["-c", "echo once >> ${{NOMAD_ALLOC_DIR}}/data/prepared"]
      }}
    }}
    task "main" {{
      driver = "raw_exec"
      config {{
        command = "/bin/sh"
        args    = ["-c", "echo once >> ${{NOMAD_ALLOC_DIR}}/data/started; while :; do sleep 1; done", "{mark}-${{NOMAD_ALLOC_INDEX}}"]
      }}
    }}
  }}
}}
"#
        ),
    );
    let mut agent = Agent::start(&config, http);
    agent.wait_ready();
    assert!(agent.command(&["job", "run", "-detach", &job]).status.success());
    let allocs = agent.allocs_in("long", "running");
    let before = eventually("three processes", || Some(processes(&mark)).filter(|p| p.len() == 3));
    let known: Vec<_> = allocs.iter().map(|a| (a["ID"].as_str().unwrap().to_string(), events(a, "main"))).collect();
    let mut moments = Moments(0x9E37_79B9_7F4A_7C15);
    for kill in 0..KILLS {
        std::thread::sleep(moments.next());
        agent.kill();
        assert_eq!(processes(&mark), before, "after kill {kill}");
        agent = Agent::start(&config, http);
    }
    agent.wait_ready();
    for (id, before) in known {
        let now = eventually("the allocation", || agent.try_get(&format!("/v1/allocation/{id}")));
        let after = events(&now, "main");
        assert!(before.iter().all(|e| after.contains(e)), "lost of {id}: {before:?} {after:?}");
        assert_eq!(after.iter().filter(|(_, kind)| kind == "Started").count(), 1, "{after:?}");
        for file in ["prepared", "started"] {
            let text =
                std::fs::read_to_string(folder.path().join(format!("data/alloc/{id}/alloc/data/{file}"))).unwrap();
            assert_eq!(text, "once\n", "{file} of {id}");
        }
    }
    assert_eq!(processes(&mark), before);
    assert!(agent.command(&["job", "stop", "-detach", "-purge", "long"]).status.success());
    eventually("the end of all processes", || processes(&mark).is_empty().then_some(()));
}

/// Many jobs are stopped at once while the agent is killed in the middle: nothing of them runs in the end.
#[test]
fn nomad_2016_stopped_jobs_are_gone_although_the_agent_was_killed_meanwhile() {
    const JOBS: usize = 20;
    let folder = Folder::new();
    let (config, http) = write_config(folder.path());
    let mut agent = Agent::start(&config, http);
    agent.wait_ready();
    let mark = format!("stopped-{}-", std::process::id());
    for n in 0..JOBS {
        let main = task("main", "", "/bin/sh", &["-c", "sleep 3600", "sh", &format!("{mark}{n}")]);
        let text = format!("job \"stopped-{n}\" {{\n group \"g\" {{\n{main}}}\n}}\n");
        let file = write_job(folder.path(), &format!("stopped-{n}"), &text);
        assert!(agent.command(&["job", "run", "-detach", &file]).status.success());
    }
    let running = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter(|e| {
            let line = std::fs::read(e.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&mark)
        })
        .count()
    };
    eventually("all run", || (running() >= JOBS).then_some(()));
    for n in 0..JOBS {
        assert!(agent.command(&["job", "stop", "-detach", &format!("stopped-{n}")]).status.success());
        if n == JOBS / 2 {
            agent.kill();
            agent = Agent::start(&config, http);
            agent.wait_ready();
        }
    }
    eventually("nothing runs", || (running() == 0).then_some(()));
    eventually("all are told complete", || {
        let all = agent.get("/v1/allocations");
        let all = all.as_array()?;
        (all.len() == JOBS && all.iter().all(|a| a["ClientStatus"] == "complete")).then_some(())
    });
    agent.end(rustix::process::Signal::TERM);
}
