//! Mutated texts through the readers, compiled optimised.

use crate::sys::{root, run as run_program, target};
use anyhow::{Context, Result, bail};
use std::process::Command;

/// `cargo xtask fuzz`.
pub fn run(arguments: &[String]) -> Result<()> {
    run_program("cargo", &["build", "--release", "--package", "herdsman-fuzz"])?;
    let status = Command::new(target().join("release/herdsman-fuzz"))
        .args(arguments)
        .current_dir(root())
        .status()
        .context("the program could not be started")?;
    if status.success() {
        return Ok(());
    }
    // A text that ends the process, by a stack that is too deep, is still on disk.
    bail!("{status}; if no text was named above, it is current.txt in the directory herdsman-fuzz of temporary files")
}
