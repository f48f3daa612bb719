//! `cargo xtask fuzz`: mutated texts through the readers until the time is over or one fails.

#![allow(clippy::print_stdout, reason = "the program's answer")]

use anyhow::{Context, Result, bail};
use herdsman_fuzz::targets::{self, TARGETS, Target};
use herdsman_fuzz::{Run, panics, shrink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a text may take; a text that takes longer is a finding.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Every text is on disk before it is read, so that one that ends the process is not lost.
const CURRENT: &str = "current.txt";

const USAGE: &str = "fuzz [TARGET|all] [--seconds N] [--seed S] [--replay FILE]";

struct Wanted {
    targets: Vec<&'static Target>,
    seconds: u64,
    seed: u64,
    replay: Option<PathBuf>,
}

fn wanted() -> Result<Wanted> {
    let mut wanted = Wanted { targets: TARGETS.iter().collect(), seconds: 60, seed: 1, replay: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value; {USAGE}"));
        match word.as_str() {
            "--seconds" => wanted.seconds = value()?.parse().context("--seconds is a number")?,
            "--seed" => wanted.seed = value()?.parse().context("--seed is a number")?,
            "--replay" => wanted.replay = Some(value()?.into()),
            "all" => {}
            name => match targets::named(name) {
                Some(target) => wanted.targets = vec![target],
                None => {
                    let known: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
                    bail!("there is no target {name:?}, only {}; {USAGE}", known.join(", "));
                }
            },
        }
    }
    Ok(wanted)
}

fn main() -> Result<()> {
    let wanted = wanted()?;
    if let Some(file) = &wanted.replay {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let target = wanted.targets.first().context("a replay needs a target")?;
        let begin = Instant::now();
        println!("{}: {} in {:?}", target.name, (target.read)(&text), begin.elapsed());
        return Ok(());
    }
    let dir = std::env::temp_dir().join("herdsman-fuzz");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let share = Duration::from_secs(wanted.seconds) / u32::try_from(wanted.targets.len()).unwrap_or(1).max(1);
    let mut failed = false;
    for target in wanted.targets {
        failed |= fuzz(target, wanted.seed, share, &dir)?;
    }
    if failed { bail!("a reader failed; the texts are in {}", dir.display()) } else { Ok(()) }
}

/// Runs one target; whether a text failed.
fn fuzz(target: &'static Target, seed: u64, time: Duration, dir: &Path) -> Result<bool> {
    let current = dir.join(CURRENT);
    let mut run = Run::new(target, seed, Vec::new());
    let (begin, mut count) = (Instant::now(), 0_u64);
    while begin.elapsed() < time {
        let text = run.next_text();
        std::fs::write(&current, &text).with_context(|| current.display().to_string())?;
        let start = Instant::now();
        let whole = run.read(&text);
        let took = start.elapsed();
        count += 1;
        if whole && took <= MAX_TIME {
            continue;
        }
        let small = if whole { text } else { shrink(&text, &mut |t| panics(target, t)) };
        let file = dir.join(format!("{}-{seed}-{count}.txt", target.name));
        std::fs::write(&file, &small).with_context(|| file.display().to_string())?;
        let what = if whole { format!("took {took:?}, at most {MAX_TIME:?}") } else { "panicked".to_string() };
        println!("{}: {what}; again: cargo xtask fuzz {} --replay {}", target.name, target.name, file.display());
        return Ok(true);
    }
    println!("{}: {count} texts, nothing found (seed {seed})", target.name);
    Ok(false)
}
