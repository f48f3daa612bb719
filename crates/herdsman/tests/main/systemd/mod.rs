//! The agent as a service of a real systemd.

mod machine;

use crate::support::{Api, eventually, stdout, write_config, write_job};
use machine::{Machine, machines};
use std::path::{Path, PathBuf};

/// A service with its agent's API and folder.
struct Service<'a> {
    machine: &'a Machine,
    unit: String,
    folder: PathBuf,
    api: Api,
}

impl<'a> Service<'a> {
    /// A service that is not started yet. `config` is added to the agent's configuration, `lines` to the unit.
    fn new(machine: &'a Machine, unit: &str, config: &str, lines: &str) -> Service<'a> {
        let folder = machine.folder().join(unit);
        std::fs::create_dir(&folder).unwrap();
        let (path, http) = write_config(&folder);
        append(&path, config);
        machine.add_service(unit, &path, lines);
        Service { machine, unit: unit.to_string(), folder, api: Api { http } }
    }

    fn control(&self, verb: &str) {
        self.machine.systemctl(&[verb, &self.unit]);
    }

    fn property(&self, name: &str) -> String {
        self.machine.property(&self.unit, name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.machine.log(&self.unit)).unwrap_or_default()
    }

    /// Runs a job with one task, a shell that first does what `script` says; gives the task's process.
    fn run_task(&self, script: &str) -> Process {
        let pid = self.folder.join("pid");
        let script = format!("{script} echo $$ > {0}.new; mv {0}.new {0}; exec sleep 3600", pid.display());
        let task = crate::support::task("main", "", "/bin/sh", &["-c", &script]);
        let job = write_job(&self.folder, "long", &format!("job \"long\" {{\n group \"g\" {{\n{task}}}\n}}\n"));
        self.api.wait_ready();
        let run = self.api.command(&["job", "run", "-detach", &job]);
        assert!(run.status.success(), "{}", crate::support::stderr(&run));
        let pid = eventually("the task's process", || std::fs::read_to_string(&pid).ok());
        let process = self.process(pid.trim());
        assert!(process.start.is_some(), "the task runs");
        self.api.allocs_in("long", "running");
        process
    }

    /// A process inside the machine, as it is now.
    fn process(&self, pid: &str) -> Process {
        let stat = self.machine.read(&format!("/proc/{pid}/stat"));
        let start = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(20)).map(str::to_string);
        Process { pid: pid.to_string(), start }
    }

    /// Fails unless the task's process is the one it was, and the agent knows it as the same run.
    fn assert_runs(&self, task: &Process, when: &str) {
        assert_eq!(self.process(&task.pid), *task, "{} {when}\n{}", self.unit, self.log());
    }

    fn assert_known(&self) {
        self.api.wait_ready();
        let alloc = self.api.allocs_in("long", "running").remove(0);
        let state = &alloc["TaskStates"]["main"];
        assert_eq!(state["State"], "running", "{state}");
        let events = state["Events"].as_array().unwrap();
        assert_eq!(events.iter().filter(|e| e["Type"] == "Started").count(), 1, "{state}");
    }
}

impl Drop for Service<'_> {
    #[allow(clippy::print_stdout)] // A failed test is to show what the agent said.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let status = stdout(&self.api.command(&["operator", "api", "/v1/job/long/allocations"]));
            println!("{}:\n{}\n{status}", self.unit, self.log());
        }
    }
}

/// A process: its number, and when it started, by which it is the same one. None: it is gone.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: String,
    start: Option<String>,
}

fn append(path: &Path, text: &str) {
    let all = std::fs::read_to_string(path).unwrap() + text;
    std::fs::write(path, all).unwrap();
}

/// systemd leaves every process of the service alone with `KillMode=none`, so the unit has to end the agent itself.
const STOP_BY_HAND: &str = "ExecStop=/bin/sh -c 'kill -TERM $MAINPID; while kill -0 $MAINPID; do sleep 0.05; done'";

#[test]
fn tasks_survive_a_restart_of_the_service_under_every_kill_mode() {
    for machine in machines() {
        for mode in ["control-group", "mixed", "process", "none"] {
            let stop = if mode == "none" { STOP_BY_HAND } else { "" };
            let lines = format!("Type=notify\nKillMode={mode}\n{stop}");
            let service = Service::new(&machine, &format!("hm-{mode}"), "", &lines);
            service.control("start");
            let task = service.run_task("");
            let before = service.property("MainPID");
            service.control("restart");
            assert_ne!(service.property("MainPID"), before);
            service.assert_runs(&task, "after a restart");
            service.assert_known();
            service.control("stop");
            service.assert_runs(&task, "after a stop");
            machine.systemctl(&["daemon-reexec"]);
            service.control("start");
            service.assert_runs(&task, "after a start");
            service.assert_known();
        }
        for name in ["herdsman-zygote", "herdsman-shim", "sleep"] {
            let all = machine.processes(name);
            assert_eq!(all.len(), 4, "{name}");
            for pid in all {
                let groups = machine.read(&format!("/proc/{pid}/cgroup"));
                assert!(!groups.contains("system.slice"), "{name} on {:?}: {groups}", machine.layout);
            }
        }
    }
}
