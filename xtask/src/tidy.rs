//! Style as a test: file lengths, words that do not belong into the product, packages wired like the others.

use crate::sys::root;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines a source file may have.
const MAX_FILE_LINES: usize = 800;
/// Characters a line may have; what rustfmt can break is shorter.
const MAX_LINE: usize = 170;

/// Words that do not belong into the product, with the reason.
const BANNED: &[(&str, &str)] = &[
    ("todo!(", "nothing is left to do behind a macro"),
    ("unimplemented!(", "what exists works or refuses with a clear error"),
    ("#[ignore", "a test that does not run is no test"),
    ("\"/home/", "no path of a machine"),
    ("\"/root/", "no path of a machine"),
];

/// Files the words may stand in.
const EXEMPT: &[&str] = &["xtask/src/tidy.rs"];

/// `cargo xtask tidy`.
pub fn run(_arguments: &[String]) -> Result<()> {
    let mut findings = Vec::new();
    for file in tracked()? {
        let path = root().join(&file);
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        if file.ends_with(".rs") {
            check_source(&file, &text, &mut findings);
        }
        if file.ends_with("Cargo.toml") && file.starts_with("crates/") && !text.contains("[lints]") {
            findings.push(format!("{file}: does not take the workspace's lints"));
        }
    }
    check_rooms(&mut findings)?;
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() { Ok(()) } else { bail!("{} findings", findings.len()) }
}

fn tracked() -> Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output().context("git ls-files")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect())
}

fn check_source(file: &str, text: &str, findings: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_FILE_LINES {
        findings.push(format!("{file}: {lines} lines, at most {MAX_FILE_LINES}"));
    }
    for (number, line) in text.lines().enumerate() {
        if line.chars().count() > MAX_LINE && !line.contains('"') {
            findings.push(format!("{file}:{}: longer than {MAX_LINE} characters", number + 1));
        }
        if EXEMPT.contains(&file) {
            continue;
        }
        for (word, reason) in BANNED {
            if line.contains(word) {
                findings.push(format!("{file}:{}: {word} ({reason})", number + 1));
            }
        }
    }
}

/// Each crate has its row in the code map of ARCHITECTURE.md, and says in its first lines what it is for.
fn check_rooms(findings: &mut Vec<String>) -> Result<()> {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap_or_default();
    for entry in std::fs::read_dir(root().join("crates")).context("crates")? {
        let path = entry.context("crates")?.path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
        if !map.contains(&format!("crates/{name}")) {
            findings.push(format!("crates/{name}: has no row in ARCHITECTURE.md"));
        }
        if let Some(entry) = entry_file(&path) {
            let text = std::fs::read_to_string(&entry).unwrap_or_default();
            if !text.starts_with("//!") {
                findings.push(format!("{}: does not open with what it is for", entry.display()));
            }
        }
    }
    Ok(())
}

fn entry_file(path: &Path) -> Option<PathBuf> {
    ["src/lib.rs", "src/main.rs"].iter().map(|f| path.join(f)).find(|p| p.exists())
}
