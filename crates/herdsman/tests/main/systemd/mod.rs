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

/// What a service may be given that is none of its tasks' business. Hard limits stay: only [`HARD_LIMITS`] lowers them.
const LIMITS: &str = "Type=notify
MemoryMax=900M
CPUQuota=90%
TasksMax=500
LimitNOFILE=2048:infinity
LimitNPROC=3000:infinity
LimitCORE=4096:infinity
LimitMEMLOCK=65536:infinity
LimitSTACK=4194304:infinity
Nice=7
OOMScoreAdjust=300
CPUAffinity=0
CPUSchedulingPolicy=batch
IOSchedulingClass=idle
UMask=0077
TimerSlackNSec=1ms
WatchdogSec=300";

/// What can be undone only by a process that may raise limits, as an agent on an ordinary host may.
const HARD_LIMITS: &str = "
LimitNOFILE=2048
LimitNPROC=3000
LimitMEMLOCK=65536
OOMScoreAdjust=-300";

/// Whether this process may raise limits (`CAP_SYS_RESOURCE`); containers often may not.
fn may_raise_limits() -> bool {
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & CAP_SYS_RESOURCE != 0
}

/// Everything of a process that a service's limits could have changed.
fn traits(machine: &Machine, pid: &str) -> String {
    let read = |file: &str| machine.read(&format!("/proc/{pid}/{file}"));
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let status = read("status");
    let kept =
        ["Umask", "Cpus_allowed_list", "Mems_allowed_list", "CapBnd", "NoNewPrivs", "Seccomp", "SigIgn", "SigBlk"];
    let status = status.lines().filter(|l| kept.iter().any(|k| l.split(':').next() == Some(k))).collect::<Vec<_>>();
    let disk = stdout(&machine.run("ionice", &["-p", pid]));
    format!(
        "{}oom_score_adj {}timerslack {}nice {} policy {}\n{}\nionice {disk}",
        read("limits"),
        read("oom_score_adj"),
        read("timerslack_ns"),
        fields[17],
        fields[39],
        status.join("\n"),
    )
}

#[test]
fn tasks_inherit_neither_limits_nor_variables_of_the_service() {
    for machine in machines() {
        let plain = Service::new(&machine, "hm-plain", "", "Type=exec");
        plain.control("start");
        let free = plain.run_task("");
        let helpers = |name| machine.processes(name).into_iter().map(|p| traits(&machine, &p)).collect::<Vec<_>>();
        let (zygote, shim) = (helpers("herdsman-zygote"), helpers("herdsman-shim"));
        plain.control("stop");
        let lines = if may_raise_limits() { format!("{LIMITS}{HARD_LIMITS}") } else { LIMITS.to_string() };
        let limited = Service::new(&machine, "hm-limited", "", &lines);
        limited.control("start");
        let agent = traits(&machine, &limited.property("MainPID"));
        assert!(agent.contains("nice 7 policy 3") && agent.contains("ionice idle"), "the limits act: {agent}");
        let task = limited.run_task("");
        let found = traits(&machine, &task.pid);
        assert_eq!(found, traits(&machine, &free.pid), "a task, on {:?}", machine.layout);
        assert!(found.contains("oom_score_adj 0\n") && found.contains("nice 0 policy 0\n"), "{found}");
        assert!(helpers("herdsman-zygote").iter().all(|z| *z == zygote[0]), "zygotes");
        assert!(helpers("herdsman-shim").iter().all(|s| *s == shim[0]), "shims");
        let groups = machine.read(&format!("/proc/{}/cgroup", task.pid));
        assert!(!groups.contains("hm-limited"), "{groups}");
        let environment = machine.read(&format!("/proc/{}/environ", task.pid));
        let names: Vec<&str> = environment.split('\0').filter_map(|v| v.split('=').next()).collect();
        assert!(names.contains(&"NOMAD_ALLOC_ID") && names.contains(&"PATH"), "{names:?}");
        for name in ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "INVOCATION_ID", "SYSTEMD_EXEC_PID"] {
            assert!(!names.contains(&name), "{name} reached the task");
        }
    }
}

#[test]
fn a_start_is_over_when_the_agent_is_ready() {
    let Some(machine) = machines().next() else { return };
    for kind in ["simple", "exec", "notify"] {
        let service = Service::new(&machine, &format!("hm-{kind}"), "", &format!("Type={kind}"));
        service.control("start");
        if kind == "notify" {
            assert!(service.api.try_get("/v1/agent/self").is_some(), "ready means that the API answers");
            assert_eq!(service.property("StatusText"), "running");
        }
        service.api.wait_ready();
        assert_eq!(service.property("ActiveState"), "active");
        let attributes = &service.api.get("/v1/nodes?resources=true");
        let id = attributes[0]["ID"].as_str().unwrap();
        let node = service.api.get(&format!("/v1/node/{id}"));
        assert_eq!(node["Attributes"]["nomad.version"], "2.0.5");
    }
    let broken = Service::new(&machine, "hm-broken", "bananas = 1\n", "Type=notify");
    assert!(!machine.run("systemctl", &["start", "hm-broken"]).status.success());
    assert_eq!(broken.property("Result"), "exit-code");
    assert!(broken.log().contains("bananas"), "{}", broken.log());
}

/// The unit of `docs/systemd.md`, with the test's binary and configuration.
#[test]
fn the_unit_of_the_documents_does_what_they_say() {
    let Some(machine) = machines().next() else { return };
    let page = include_str!("../../../../../docs/systemd.md");
    let unit = page.split("```").nth(1).unwrap().strip_prefix("ini\n").unwrap();
    let (start, config) = ("/usr/local/bin/herdsman agent", "/etc/herdsman.d");
    assert!(unit.contains(start) && unit.contains(config), "{unit}");
    let service = Service::new(&machine, "hm-page", "", "");
    let start_here = format!("{} agent", machine.folder().join("herdsman").display());
    let config_here = service.folder.join("agent.hcl").display().to_string();
    let log = format!("[Service]\nStandardOutput=append:{}", machine.log("hm-page").display());
    let text = unit.replace(start, &start_here).replace(config, &config_here).replace("[Service]", &log);
    std::fs::write(machine.folder().join("units/hm-page.service"), text).unwrap();
    machine.systemctl(&["daemon-reload"]);
    service.control("start");
    let task = service.run_task("");
    service.control("reload");
    service.control("restart");
    service.assert_known();
    service.control("stop");
    assert_eq!(service.property("ActiveState"), "inactive", "a stop is no failure");
    service.assert_runs(&task, "after a stop");
    service.control("start");
    service.assert_known();
    assert!(!service.log().contains("mounts of its own"), "{}", service.log());
}

#[test]
fn mounts_of_the_service_alone_are_warned_of() {
    let Some(machine) = machines().next() else { return };
    let service = Service::new(&machine, "hm-private", "", "Type=notify\nBindReadOnlyPaths=/usr");
    service.control("start");
    eventually("a warning", || service.log().contains("mounts of its own").then_some(()));
}

#[test]
fn a_reload_is_a_signal_and_ends_ready_again() {
    let Some(machine) = machines().next() else { return };
    let service = Service::new(&machine, "hm-reload", "", "Type=notify");
    service.control("start");
    let pid = service.property("MainPID");
    let config = service.folder.join("agent.hcl");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("DEBUG", "ERROR")).unwrap();
    service.control("reload");
    eventually("another level", || (service.api.get("/v1/agent/self")["config"]["LogLevel"] == "ERROR").then_some(()));
    append(&config, "bananas = 1\n");
    service.control("reload");
    eventually("an error of the reload", || service.log().contains("bananas").then_some(()));
    eventually("a word for systemd", || service.property("StatusText").contains("the log says why").then_some(()));
    assert_eq!((service.property("ActiveState"), service.property("MainPID")), ("active".to_string(), pid));
}

/// Leaving as configured, for each of the two signals that a unit may send.
#[test]
fn a_stop_drains_the_node_when_the_agent_is_to_leave() {
    let Some(machine) = machines().next() else { return };
    for (signal, key) in [("SIGINT", "leave_on_interrupt"), ("SIGTERM", "leave_on_terminate")] {
        let lines = format!("Type=notify\nKillSignal={signal}\nKillMode=process");
        let drain = "client {\n drain_on_shutdown {\n deadline = \"1h\"\n}\n}\n";
        let leaving = Service::new(&machine, &format!("hm-leave-{signal}"), &format!("{key} = true\n{drain}"), &lines);
        leaving.control("start");
        let task = leaving.run_task("");
        leaving.control("stop");
        assert_eq!(leaving.process(&task.pid).start, None, "{key}: the task was stopped\n{}", leaving.log());
        assert_eq!(leaving.property("Result"), "success", "a graceful end is exit status 0");
        leaving.control("start");
        leaving.api.wait_ready();
        assert_eq!(leaving.api.get("/v1/nodes")[0]["SchedulingEligibility"], "ineligible");
        // Without leave_on_… the block alone drains nothing.
        let staying = Service::new(&machine, &format!("hm-stay-{signal}"), drain, &lines);
        staying.control("start");
        let task = staying.run_task("");
        staying.control("stop");
        staying.assert_runs(&task, "after a stop");
    }
}

#[test]
fn a_drain_may_take_longer_than_the_service_has_to_stop() {
    let Some(machine) = machines().next() else { return };
    let config = "leave_on_terminate = true\nclient {\n drain_on_shutdown {\n deadline = \"1h\"\n}\n}\n";
    let service = Service::new(&machine, "hm-slow", config, "Type=notify\nTimeoutStopSec=1");
    service.control("start");
    let over = service.folder.join("over");
    // Longer than the service has, and shorter than the task's kill timeout.
    let task = service.run_task(&format!(
        "trap 'sleep 3; touch {}; exit 0' TERM INT; echo $$ > {1}.new; mv {1}.new {1}; while :; do sleep 0.1; done;",
        over.display(),
        service.folder.join("pid").display()
    ));
    service.control("stop");
    assert!(over.exists(), "the task had the time it takes to end\n{}", service.log());
    assert_eq!(service.process(&task.pid).start, None);
    assert_eq!(service.property("Result"), "success");
}

#[test]
fn the_watchdog_sees_signs_of_life_and_ends_a_stalled_agent_alone() {
    let Some(machine) = machines().next() else { return };
    let service =
        Service::new(&machine, "hm-watchdog", "", "Type=notify\nWatchdogSec=3\nRestart=always\nRestartSec=100ms");
    service.control("start");
    let task = service.run_task("");
    eventually("signs of life", || {
        let before = (service.property("MainPID"), service.property("WatchdogTimestampMonotonic"));
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let after = (service.property("MainPID"), service.property("WatchdogTimestampMonotonic"));
        (before.0 == after.0 && before.1 != after.1).then_some(())
    });
    let (stalled, restarts) = (service.property("MainPID"), service.property("NRestarts"));
    machine.run("kill", &["-STOP", &stalled]);
    eventually("a restart of the stalled agent", || (service.property("NRestarts") != restarts).then_some(()));
    service.assert_known();
    service.assert_runs(&task, "after the watchdog");
}
