//! Running other programs, and where things are.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The root of the repository.
pub fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Says what is being done, so that a long run can be followed.
pub fn say(text: &str) {
    println!("==> {text}");
}

/// Runs a program in the repository's root; its output goes to ours.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    run_with(program, arguments, &[])
}

/// Like [`run`], with these variables added to the environment.
pub fn run_with(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let status = Command::new(program)
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(root())
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{program} could not be started"))?;
    if !status.success() {
        bail!("`{program} {}` failed: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Whether a program runs and succeeds, its output thrown away.
pub fn works(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// Waits until something holds, looking ten times a second.
pub fn wait_for(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > limit {
            bail!("{what} did not happen within {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
