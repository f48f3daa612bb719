//! Installs or starts what tests need where it is missing, and says what it does.

use crate::sys::{root, run as run_program, say, target, wait_for, works};
use anyhow::{Context, Result};
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Something tests need that the Rust toolchain does not bring.
struct Need {
    name: &'static str,
    present: fn() -> bool,
    /// Debian packages that bring it.
    packages: &'static [&'static str],
    /// A step after the packages are there.
    start: Option<fn() -> Result<()>>,
}

const NEEDS: &[Need] = &[
    Need { name: "busybox", present: busybox, packages: &["busybox-static"], start: None },
    Need { name: "go", present: go, packages: &["golang-go"], start: None },
    Need { name: "python", present: python, packages: &["python3", "python3-venv"], start: Some(python_client) },
    Need { name: "systemd", present: systemd, packages: &["systemd"], start: None },
    Need { name: "docker", present: docker, packages: &["docker.io"], start: Some(start_docker) },
];

/// The Python client that our agent is driven with.
const PYTHON_CLIENT: &str = "python-nomad==2.1.0";

/// How long the container engine may take to answer.
const DOCKER_START_LIMIT: Duration = Duration::from_secs(60);

fn busybox() -> bool {
    works("busybox", &["true"])
}

fn go() -> bool {
    works("go", &["version"])
}

/// Whether a container engine answers.
pub fn docker() -> bool {
    works("docker", &["info"])
}

/// Whether a systemd can be started in namespaces of its own. It need not be what runs this machine.
pub fn systemd() -> bool {
    std::path::Path::new("/lib/systemd/systemd").exists()
        && works("systemctl", &["--version"])
        && works("unshare", &["--fork", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "true"])
}

fn python() -> bool {
    works(&python_program(), &["-c", "import nomad"])
}

/// The interpreter of the environment that has the Python client.
pub fn python_program() -> String {
    target().join("python/bin/python3").to_string_lossy().into_owned()
}

fn python_client() -> Result<()> {
    let home = target().join("python");
    run_program("python3", &["-m", "venv", &home.to_string_lossy()])?;
    run_program(&python_program(), &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYTHON_CLIENT])
}

fn start_docker() -> Result<()> {
    if docker() {
        return Ok(());
    }
    let log = File::create(target().join("dockerd.log")).context("the log of dockerd")?;
    say(&format!("starting dockerd (its log: {})", target().join("dockerd.log").display()));
    // It goes on after this program ends; the next run finds it.
    Command::new("dockerd")
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("the log of dockerd")?)
        .stderr(log)
        .spawn()
        .context("dockerd could not be started")?;
    wait_for("an answer of dockerd", DOCKER_START_LIMIT, docker)
}

fn is_root_on_debian() -> bool {
    std::path::Path::new("/etc/debian_version").exists() && works("sh", &["-c", "test $(id -u) = 0"])
}

/// Makes everything present that can be; returns what is missing, with the reason.
pub fn ensure() -> Result<Vec<String>> {
    std::fs::create_dir_all(target()).context("the target folder")?;
    let mut missing = Vec::new();
    let mut updated = false;
    for need in NEEDS {
        if (need.present)() {
            continue;
        }
        if let Err(error) = bring(need, &mut updated) {
            missing.push(format!("{}: {error:#}", need.name));
        } else if !(need.present)() {
            missing.push(format!("{}: still not usable after it was installed", need.name));
        }
    }
    Ok(missing)
}

fn bring(need: &Need, updated: &mut bool) -> Result<()> {
    if is_root_on_debian() {
        if !*updated {
            say("apt-get update");
            run_program("apt-get", &["update", "-q=2"])?;
            *updated = true;
        }
        say(&format!("installing {} for {}", need.packages.join(", "), need.name));
        let mut arguments = vec!["install", "-y", "-q=2", "--no-install-recommends"];
        arguments.extend(need.packages);
        run_program("apt-get", &arguments)?;
    }
    match need.start {
        Some(start) => start(),
        None => Ok(()),
    }
}

/// `cargo xtask setup`.
pub fn run(_arguments: &[String]) -> Result<()> {
    let missing = ensure()?;
    for line in &missing {
        println!("missing: {line}");
    }
    if missing.is_empty() {
        println!("everything that tests need is here");
    }
    Ok(())
}
