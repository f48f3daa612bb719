//! A systemd of the test's own: first process of private namespaces on this host, so that nothing of the host's changes.

use crate::support::{binary, eventually, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The script that sets up the namespaces.
const BOOT: &str = include_str!("boot.sh");

/// Targets that every service wants; nothing is behind them here.
const TARGETS: &[&str] = &["default", "sysinit", "basic", "shutdown", "umount", "final"];

/// How the cgroup hierarchies are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Version 1 with controllers, and a unified tree beside it.
    Hybrid,
    /// Version 2 only.
    Unified,
}

impl Layout {
    const ALL: [Layout; 2] = [Layout::Hybrid, Layout::Unified];

    fn name(self) -> &'static str {
        match self {
            Layout::Hybrid => "hybrid",
            Layout::Unified => "unified",
        }
    }

    /// A host with version 2 alone cannot show a hybrid one.
    fn is_possible(self) -> bool {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        self == Layout::Unified || own.contains("name=systemd")
    }
}

/// A running systemd. Everything in it ends when it is dropped.
pub struct Machine {
    name: String,
    pub layout: Layout,
    boot: Child,
    /// The process id of systemd, as this host sees it.
    init: String,
    folder: tempfile::TempDir,
}

/// Why there can be no machine here.
fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("namespaces and cgroups need root".to_string());
    }
    if !Path::new("/lib/systemd/systemd").exists() {
        return Some("systemd is not installed".to_string());
    }
    let able = Command::new("unshare")
        .args(["--fork", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "true"])
        .stdin(Stdio::null())
        .output();
    match able {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(stderr(&output)),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// Machines of every layout that this host can show; none, with a word about it, where there can be no systemd.
pub fn machines() -> impl Iterator<Item = Machine> {
    let possible = can_boot();
    Layout::ALL.into_iter().filter(move |layout| possible && layout.is_possible()).map(Machine::boot)
}

/// Whether there can be a systemd. Where it is required its absence fails the test.
#[allow(clippy::print_stdout)] // Tests are to say that they were left out.
fn can_boot() -> bool {
    let obstacle = obstacle();
    if let Some(why) = &obstacle {
        assert!(
            std::env::var("HERDSMAN_REQUIRE_SYSTEMD").as_deref() != Ok("1"),
            "the tests under systemd need root, the package systemd and namespaces: {why}"
        );
        println!("left out, no systemd: {why}");
    }
    obstacle.is_none()
}

impl Machine {
    fn boot(layout: Layout) -> Machine {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("herdsman-systemd-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        let units = folder.path().join("units");
        std::fs::create_dir(&units).unwrap();
        for target in TARGETS {
            let text = format!("[Unit]\nDescription={target}\nDefaultDependencies=no\n");
            std::fs::write(units.join(format!("{target}.target")), text).unwrap();
        }
        let log = std::fs::File::create(folder.path().join("boot.log")).unwrap();
        let boot = Command::new("sh")
            .args(["-c", BOOT, "boot", &name, layout.name()])
            .arg(folder.path())
            .arg(binary())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut machine = Machine { name, layout, boot, init: String::new(), folder };
        eventually("a running systemd", || {
            assert!(machine.boot.try_wait().unwrap().is_none(), "no boot: {}", machine.said());
            let pid = machine.boot.id();
            machine.init = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?.trim().to_string();
            let state = stdout(&machine.run("systemctl", &["is-system-running"]));
            (state.trim() == "running").then_some(())
        });
        machine
    }

    /// What systemd and the script before it said.
    fn said(&self) -> String {
        let read = |name| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        format!("{}{}", read("boot.log"), read("console"))
    }

    /// Where the test may keep files; the machine sees them under the same path.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a program inside.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Output {
        Command::new("nsenter")
            .args(["--target", &self.init, "--mount", "--pid", "--cgroup", "--uts", "--ipc", program])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Reads a file inside, such as one of `/proc`.
    pub fn read(&self, path: &str) -> String {
        stdout(&self.run("cat", &[path]))
    }

    /// Runs `systemctl`, which has to succeed.
    pub fn systemctl(&self, arguments: &[&str]) {
        let output = self.run("systemctl", arguments);
        assert!(output.status.success(), "systemctl {arguments:?}: {}\n{}", stderr(&output), self.said());
    }

    /// A property of a unit.
    pub fn property(&self, unit: &str, name: &str) -> String {
        stdout(&self.run("systemctl", &["show", "--value", "--property", name, unit])).trim().to_string()
    }

    /// Makes an agent with this configuration a service; `lines` go into the unit's section.
    pub fn add_service(&self, unit: &str, config: &Path, lines: &str) {
        let binary = self.folder.path().join("herdsman");
        let log = self.log(unit);
        let text = format!(
            "[Service]\nExecStart={} agent -config {}\nExecReload=/bin/kill -HUP $MAINPID\nStandardOutput=append:{}\nStandardError=inherit\n{lines}\n",
            binary.display(),
            config.display(),
            log.display()
        );
        std::fs::write(self.folder.path().join(format!("units/{unit}.service")), text).unwrap();
        self.systemctl(&["daemon-reload"]);
    }

    /// Where a service's output goes.
    pub fn log(&self, unit: &str) -> PathBuf {
        self.folder.path().join(format!("{unit}.log"))
    }

    /// Processes inside with this name.
    pub fn processes(&self, name: &str) -> Vec<String> {
        let script = "for p in /proc/[0-9]*; do echo ${p#/proc/} $(cat $p/comm 2>/dev/null); done";
        let all = stdout(&self.run("sh", &["-c", script]));
        all.lines().filter_map(|l| l.split_once(' ')).filter(|(_, n)| *n == name).map(|(p, _)| p.to_string()).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.boot.kill();
        let _ = self.boot.wait();
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|e| e.path());
        for hierarchy in hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]) {
            remove_cgroup(&hierarchy.join(&self.name));
        }
    }
}

/// Removes a cgroup with all below it, once its processes are gone.
fn remove_cgroup(dir: &Path) {
    if !dir.is_dir() || dir.is_symlink() {
        return;
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        remove_cgroup(&entry.path());
    }
    // The kernel ends what was inside after the first process is gone: a moment may pass.
    for _ in 0..1000 {
        match std::fs::remove_dir(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => return,
        }
    }
}
