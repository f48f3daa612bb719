//! Commands that need more than the HTTP API: the agent itself, a job file on an agent of its own, and checks offline.

mod check;
mod dev;
mod run_agent;

use crate::config::flags;
use crate::facts::{COMPATIBLE_VERSION, VERSION};
use herdsman_cli::Command;
use herdsman_cli::flags::Flag;

/// The commands of this crate.
pub const TABLE: &[Command] = &[
    Command {
        name: "agent",
        aliases: &[],
        arguments: "",
        synopsis: "Runs an agent",
        about: "Runs a server, a node or both, as configured, until it is told to end. SIGHUP reads the configuration again.\n\nExit status: 0 after a graceful leave (leave_on_interrupt, leave_on_terminate), 1 after any other end. A second signal during a drain ends the agent at once; its tasks go on.",
        general: false,
        flags: flags::FLAGS,
        run: |call| Box::pin(run_agent::run(call)),
    },
    Command {
        name: DEV_RUN,
        aliases: &[],
        arguments: "<path>",
        synopsis: "Runs a job file on a server and node of its own in this process",
        about: "Starts a server and a node in this process on a temporary data directory, submits the job, and shows its tasks until it is over. Ctrl-C stops the job and lets its poststop tasks run; a second Ctrl-C ends those too.\n\nExit status: batch 0 if every task, poststop included, succeeded, else 1; service 0 after Ctrl-C once it was healthy, 1 if it never was; 2 for a file that cannot be run.",
        general: false,
        flags: DEV_FLAGS,
        run: |call| Box::pin(dev::run(call)),
    },
    Command {
        name: "config validate",
        aliases: &[],
        arguments: "<path> [<path>...]",
        synopsis: "Checks agent configurations",
        about: "Reads agent configuration files or folders as an agent would, together, and says whether an agent would start with them.",
        general: false,
        flags: &[],
        run: |call| Box::pin(check::validate(call)),
    },
    Command {
        name: "check",
        aliases: &[],
        arguments: "<path> [<path>...]",
        synopsis: "Says of job files and agent configurations what works here",
        about: "Reads job files and agent configurations offline and prints for each: works, works with a warning, or refused, with the line and what to do.\n\nExit status: 0 when nothing is refused, else 1.",
        general: false,
        flags: &[Flag::switch("json", "Print JSON.")],
        run: |call| Box::pin(check::check(call)),
    },
];

/// The name under which `run -dev` is found once its words are in order.
const DEV_RUN: &str = "run-dev";

const DEV_FLAGS: &[Flag] = &[
    Flag::texts("var", "<key=value>", "A variable of the job file; may be given several times."),
    Flag::texts("var-file", "<path>", "A file of variables; may be given several times."),
    Flag::switch("json", "The job file is JSON as the API takes it."),
    Flag::switch("verbose", "The agent's own log goes to standard error."),
    Flag::switch("no-color", "No colours."),
    Flag::switch("force-color", "Colours also where no terminal is seen."),
    Flag::text("log-level", "<level>", "The level of the agent's own log with -verbose."),
];

/// Whether the words only ask for the version.
pub fn is_version(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str);
    matches!(words.next(), Some("-version" | "--version" | "-v" | "version")) && words.next().is_none()
}

/// What the version prints. Source of the first line under the peer's name: `goldens/cli/001-version.txt`.
pub fn version_text(program: &str) -> String {
    if program == "nomad" {
        format!("Nomad v{COMPATIBLE_VERSION}\nHerdsman v{VERSION}")
    } else {
        format!("Herdsman v{VERSION}\ncompatible with Nomad v{COMPATIBLE_VERSION}")
    }
}

/// Whether the words start an agent, which wants threads.
pub fn is_agent(words: &[String]) -> bool {
    matches!(words.first().map(String::as_str), Some("agent" | DEV_RUN))
}

/// Brings `run -dev` and `job run -dev`, with `-dev` at any place before the file, under one name.
pub fn rewrite(mut words: Vec<String>) -> Vec<String> {
    let skip = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["run", ..] => 1,
        ["job", "run", ..] => 2,
        _ => return words,
    };
    let Some(place) = words.iter().skip(skip).position(|w| w == "-dev" || w == "--dev") else { return words };
    words.remove(skip + place);
    words.splice(..skip, [DEV_RUN.to_string()]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn run_dev_is_found_wherever_the_flag_stands() {
        assert_eq!(rewrite(words("run -dev a.hcl")), words("run-dev a.hcl"));
        assert_eq!(rewrite(words("job run -var a=b -dev a.hcl")), words("run-dev -var a=b a.hcl"));
        assert_eq!(rewrite(words("job run a.hcl")), words("job run a.hcl"));
        assert_eq!(rewrite(words("agent -dev")), words("agent -dev"));
    }

    #[test]
    fn the_drop_in_says_the_compatible_version_first() {
        assert!(version_text("nomad").starts_with("Nomad v2."));
        assert!(version_text("herdsman").starts_with("Herdsman v"));
        assert!(is_version(&words("-version")) && !is_version(&words("job version")));
    }
}
