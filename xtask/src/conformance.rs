//! Clients that were not written here, run against our agent.
//!
//! The list of tests that pass is checked in and may only grow: a listed test that fails, fails the run.

use crate::setup;
use crate::sys::{root, run as run_program, say, target};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The Go client module whose tests are run, and its version.
const MODULE: &str = "github.com/hashicorp/nomad/api";
const MODULE_VERSION: &str = "v0.0.0-20261016150620-df630b26e78a";

/// The fewest top-level tests of the module that must pass.
const FEWEST_PASSES: usize = 150;

/// A whole run of the module's tests may take this long.
const TIME_LIMIT: &str = "12m";

/// `cargo xtask conformance api|python`.
pub fn run(arguments: &[String]) -> Result<()> {
    let accept = arguments.iter().any(|a| a == "--accept");
    match arguments.first().map(String::as_str) {
        Some("api") => {
            run_program("cargo", &["build", "--release", "--package", "herdsman"])?;
            api(accept)
        }
        Some("python") => {
            run_program("cargo", &["build", "--release", "--package", "herdsman"])?;
            python()
        }
        _ => bail!("say which: api or python"),
    }
}

/// A folder, first on PATH, in which our binary is called `nomad`.
fn binary_folder() -> Result<PathBuf> {
    let folder = target().join("conformance/bin");
    std::fs::create_dir_all(&folder).context("the folder of the binary")?;
    let link = folder.join("nomad");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(target().join("release/herdsman"), &link).context("the link to the binary")?;
    Ok(folder)
}

fn path_with(folder: &std::path::Path) -> String {
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

/// Runs the tests of the Go client module.
pub fn api(accept: bool) -> Result<()> {
    let folder = binary_folder()?;
    let scratch = target().join("conformance/api");
    std::fs::create_dir_all(&scratch).context("the scratch module")?;
    let go = |arguments: &[&str]| -> Result<std::process::Output> {
        Command::new("go")
            .args(arguments)
            .current_dir(&scratch)
            .env("PATH", path_with(&folder))
            .env("GOFLAGS", "-mod=mod")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("go could not be started")
    };
    if !scratch.join("go.mod").exists() {
        std::fs::write(scratch.join("go.mod"), "module conformance\n\ngo 1.26\n").context("go.mod")?;
        let wanted = format!("{MODULE}@{MODULE_VERSION}");
        if !go(&["get", "-t", &wanted])?.status.success() {
            let _ = std::fs::remove_file(scratch.join("go.mod"));
            bail!("the module {wanted} could not be fetched");
        }
    }
    say("running the tests of the Go client module");
    let output = go(&["test", "-count=1", "-json", "-timeout", TIME_LIMIT, MODULE])?;
    std::fs::write(target().join("conformance/api.json"), &output.stdout).context("the record of the run")?;
    let mut seen = outcomes(&output.stdout);
    // Some tests of the module go by the clock of a machine that does nothing else: what is lost is tried alone.
    let lost = lost(&seen);
    if !lost.is_empty() {
        say(&format!("trying again, alone: {}", lost.join(", ")));
        let only = format!("^({})$", lost.join("|"));
        let again = go(&["test", "-count=1", "-json", "-parallel=1", "-timeout", TIME_LIMIT, "-run", &only, MODULE])?;
        seen.extend(outcomes(&again.stdout));
    }
    judge(&seen, accept)
}

/// Listed tests that did not pass.
fn lost(outcomes: &BTreeMap<String, String>) -> Vec<String> {
    let listed = std::fs::read_to_string(list_file()).unwrap_or_default();
    let passed = |test: &str| outcomes.get(test).is_some_and(|o| o == "pass");
    listed.lines().filter(|l| !l.is_empty() && !passed(l)).map(str::to_string).collect()
}

/// The outcome of each top-level test: pass, fail or skip.
fn outcomes(record: &[u8]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for line in record.split(|b| *b == b'\n') {
        let Ok(entry) = serde_json::from_slice::<serde_json::Value>(line) else { continue };
        let (Some(test), Some(action)) = (entry["Test"].as_str(), entry["Action"].as_str()) else { continue };
        if !test.contains('/') && matches!(action, "pass" | "fail" | "skip") {
            all.insert(test.to_string(), action.to_string());
        }
    }
    all
}

fn list_file() -> PathBuf {
    root().join("conformance/api-passing.txt")
}

fn judge(outcomes: &BTreeMap<String, String>, accept: bool) -> Result<()> {
    let passed: Vec<&str> = outcomes.iter().filter(|(_, o)| *o == "pass").map(|(t, _)| t.as_str()).collect();
    let listed = std::fs::read_to_string(list_file()).unwrap_or_default();
    let listed: Vec<&str> = listed.lines().filter(|l| !l.is_empty()).collect();
    let lost = lost(outcomes);
    println!("{} of {} top-level tests pass; {} are listed", passed.len(), outcomes.len(), listed.len());
    for (test, outcome) in outcomes.iter().filter(|(_, o)| *o != "pass") {
        println!("  {outcome}: {test}");
    }
    if !lost.is_empty() {
        bail!("tests that passed before do not pass any more: {lost:?} (their output: target/conformance/api.json)");
    }
    if accept {
        std::fs::write(list_file(), passed.join("\n") + "\n").context("the list of passing tests")?;
    }
    if passed.len() < FEWEST_PASSES {
        bail!("{} tests pass, at least {FEWEST_PASSES} must", passed.len());
    }
    Ok(())
}

/// Drives our agent with the Python client through the script of realistic use.
pub fn python() -> Result<()> {
    let folder = binary_folder()?;
    let status = Command::new(setup::python_program())
        .arg(root().join("conformance/python_client.py"))
        .current_dir(root())
        .env("PATH", path_with(&folder))
        .stdin(Stdio::null())
        .status()
        .context("the Python interpreter could not be started; `cargo xtask setup` brings it")?;
    if status.success() { Ok(()) } else { bail!("the Python client's script failed: {status}") }
}
