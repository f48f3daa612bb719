//! The suites and the minutes each may take: the one table that `test`, `check` and the documents go by.

use crate::sys::{run, run_with, say};
use crate::{bench, conformance, setup, tidy};
use anyhow::{Result, bail};
use std::time::Instant;

/// One suite of tests.
struct Suite {
    name: &'static str,
    /// Minutes it may take on two cores from a clean checkout; a run that takes more says so.
    minutes: u64,
    /// Part of `cargo xtask check`.
    fast: bool,
    run: fn() -> Result<()>,
}

const SUITES: &[Suite] = &[
    Suite { name: "format", minutes: 1, fast: true, run: || run("cargo", &["fmt", "--all", "--check"]) },
    Suite { name: "tidy", minutes: 1, fast: true, run: || tidy::run(&[]) },
    Suite {
        name: "lints",
        minutes: 6,
        fast: true,
        run: || {
            run("cargo", &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"])
        },
    },
    Suite { name: "workspace tests", minutes: 20, fast: false, run: workspace_tests },
    Suite {
        name: "release build",
        minutes: 8,
        fast: false,
        run: || run("cargo", &["build", "--release", "--locked", "--package", "herdsman"]),
    },
    Suite { name: "conformance: api", minutes: 5, fast: false, run: || conformance::api(false) },
    Suite { name: "conformance: python", minutes: 1, fast: false, run: conformance::python },
    Suite { name: "bench", minutes: 5, fast: false, run: || bench::run(&["--check".to_string()]) },
];

/// The seed of the properties in a run of everything, so that it gives the same result twice; `cargo test` alone draws a new
/// one each time and keeps what it finds.
const SEED: &str = "20261201";

/// Where there is a container engine or a systemd, a test that cannot use it fails instead of being left out.
fn workspace_tests() -> Result<()> {
    let mut variables = vec![("PROPTEST_RNG_SEED", SEED)];
    if setup::docker() {
        variables.push(("HERDSMAN_REQUIRE_DOCKER", "1"));
    }
    if setup::systemd() {
        variables.push(("HERDSMAN_REQUIRE_SYSTEMD", "1"));
    }
    run_with("cargo", &["test", "--workspace", "--locked", "--no-fail-fast"], &variables)
}

/// What the fast path tests beside lints: the pure cores.
const FAST_TESTS: &[&str] = &["herdsman-expr", "herdsman-model", "herdsman-lifecycle"];

/// `cargo xtask check`.
pub fn check(_arguments: &[String]) -> Result<()> {
    run_suites(SUITES.iter().filter(|s| s.fast))?;
    let mut arguments = vec!["test", "--locked", "--quiet"];
    for package in FAST_TESTS {
        arguments.extend(["--package", package]);
    }
    run("cargo", &arguments)
}

/// `cargo xtask test`: everything. `--strict` fails when something had to be left out.
pub fn test(arguments: &[String]) -> Result<()> {
    let strict = arguments.iter().any(|a| a == "--strict");
    let missing = setup::ensure()?;
    // Tests that need something that is missing say so and are left out; strict runs never get that far.
    if strict && !missing.is_empty() {
        bail!("left out: {}", missing.join("; "));
    }
    run_suites(SUITES.iter())?;
    for line in &missing {
        println!("left out: {line}");
    }
    Ok(())
}

fn run_suites<'a>(suites: impl Iterator<Item = &'a Suite>) -> Result<()> {
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for suite in suites {
        say(suite.name);
        let start = Instant::now();
        let outcome = (suite.run)();
        let seconds = start.elapsed().as_secs();
        let over = if seconds > suite.minutes * 60 { ", over its budget" } else { "" };
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        rows.push(format!("{:<22} {word:<7} {seconds:>5} s of {:>3} min{over}", suite.name, suite.minutes));
        if let Err(error) = outcome {
            eprintln!("{}: {error:#}", suite.name);
            failed.push(suite.name);
        }
    }
    println!();
    for row in rows {
        println!("{row}");
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}
