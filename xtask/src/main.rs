//! The project's own commands: `cargo xtask help` lists them.

mod bench;
mod conformance;
mod fuzz;
mod setup;
mod suites;
mod sys;
mod tidy;

use anyhow::{Result, bail};

/// One command of this program.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<()>,
}

const COMMANDS: &[Command] = &[
    Command { name: "check", about: "format, lints, tidy and the fast tests: under five minutes", run: suites::check },
    Command { name: "test", about: "installs or starts what tests need, then runs every suite", run: suites::test },
    Command {
        name: "conformance",
        about: "api | python: runs clients that were not written here against our agent; --accept records more passes",
        run: conformance::run,
    },
    Command {
        name: "bench",
        about: "measures the numbers of SPECIFICATION.md; --check fails beyond 3x",
        run: bench::run,
    },
    Command {
        name: "fuzz",
        about: "[TARGET|all] [--seconds N] [--seed S] [--replay FILE]: mutated texts through the readers",
        run: fuzz::run,
    },
    Command {
        name: "tidy",
        about: "file lengths, banned words, orphan files, wiring of the workspace",
        run: tidy::run,
    },
    Command { name: "setup", about: "installs or starts what tests need where it is missing", run: setup::run },
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = match arguments.split_first() {
        Some((name, rest)) => (name.as_str(), rest),
        None => ("help", &[][..]),
    };
    if let Err(error) = dispatch(name, rest) {
        eprintln!("xtask {name}: {error:#}");
        std::process::exit(1);
    }
}

fn dispatch(name: &str, rest: &[String]) -> Result<()> {
    if matches!(name, "help" | "-h" | "--help") {
        for command in COMMANDS {
            println!("  {:<12} {}", command.name, command.about);
        }
        return Ok(());
    }
    match COMMANDS.iter().find(|c| c.name == name) {
        Some(command) => (command.run)(rest),
        None => bail!("there is no such command; `cargo xtask help` lists them"),
    }
}
