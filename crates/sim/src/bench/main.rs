//! Measures the numbers of SPECIFICATION.md with a real agent process of its own, on loopback, and ends by itself.
//!
//! `herdsman-bench PATH-OF-HERDSMAN [--check]`; with `--check` a median beyond three times its promise fails (after two
//! more tries).

mod agent;
mod calibrate;
mod measure;

use anyhow::{Context, Result};
use measure::Figure;
use std::path::PathBuf;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().context("the path of the herdsman binary is needed")?);
    let check = arguments.any(|a| a == "--check");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut out = std::io::stdout();
    let mut failed = runtime.block_on(measure::all(&binary, &mut out))?;
    let mut tries = 0;
    while check && tries < 2 && failed.iter().any(Figure::is_missed) {
        tries += 1;
        use std::io::Write;
        writeln!(out, "a promise was missed threefold; measuring again ({tries} of 2)")?;
        failed = runtime.block_on(measure::all(&binary, &mut out))?;
    }
    if check && failed.iter().any(Figure::is_missed) {
        std::process::exit(1);
    }
    Ok(())
}
