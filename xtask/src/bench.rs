//! Measures the numbers of SPECIFICATION.md on this machine.

use crate::sys::{root, run as run_program, target};
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

/// `cargo xtask bench [--check]`.
pub fn run(arguments: &[String]) -> Result<()> {
    run_program("cargo", &["build", "--release", "--package", "herdsman", "--package", "herdsman-sim"])?;
    let status = Command::new(target().join("release/herdsman-bench"))
        .arg(target().join("release/herdsman"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null())
        .status()
        .context("the load generator could not be started")?;
    if status.success() { Ok(()) } else { bail!("a number missed its promise: {status}") }
}
