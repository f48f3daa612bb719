//! The command line: a table of commands, and what they print.
//!
//! It owns no task beside the one call it makes.
//!
//! Architecture invariant: everything goes through the HTTP API by `client`; nothing here knows servers or nodes.
//! Architecture invariant: the table of commands is data; parsing, help and completion derive from it.

pub mod alloc;
pub mod cluster;
pub mod command;
pub mod complete;
pub mod deployment;
pub mod eval;
mod find;
pub mod flags;
pub mod format;
pub mod help;
pub mod job;
pub mod jobfile;
pub mod monitor;
pub mod namespace;
pub mod node;
pub mod operator;
pub mod placement;
pub mod search;
pub mod service;
mod shape;
mod spec;
mod template;
pub mod terminal;
mod tools;
pub mod view;

pub use command::{Attempt, Call, Command, Environment, Failure, GENERAL_FLAGS};
pub use terminal::Terminal;

use flags::Flag;

/// The commands of this crate, by family.
static FAMILIES: &[&[Command]] = &[
    job::SUBMIT,
    job::SHOW,
    job::CONTROL,
    alloc::COMMANDS,
    deployment::COMMANDS,
    eval::COMMANDS,
    node::COMMANDS,
    node::pool::COMMANDS,
    namespace::COMMANDS,
    service::COMMANDS,
    cluster::COMMANDS,
    operator::COMMANDS,
    search::COMMANDS,
    tools::COMMANDS,
];

/// The commands of this crate.
pub fn table() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Exit status of a family of commands without one of them. Source: `goldens/cli/279-help-job.txt`.
pub const EXIT_FAMILY: u8 = 1;

/// Exit status of a call that names no command. Source: `goldens/cli/003-unknown-command.txt`.
pub const EXIT_NO_COMMAND: u8 = 127;

/// Finds the command that the first words name: the longest match wins. The rest of the words are its own.
pub fn find<'a>(table: &[&'static Command], words: &'a [String]) -> Option<(&'static Command, &'a [String])> {
    for length in (1..=words.len().min(3)).rev() {
        let (head, rest) = words.split_at_checked(length)?;
        let name = head.join(" ");
        if let Some(command) = table.iter().find(|c| c.name == name || c.aliases.contains(&name.as_str())) {
            return Some((*command, rest));
        }
    }
    None
}

/// All flags of a command, the general ones included.
pub fn all_flags(command: &Command) -> Vec<Flag> {
    let general = if command.general { GENERAL_FLAGS } else { &[] };
    general.iter().chain(command.flags).copied().collect()
}

/// Runs the command that the words name; the number is the exit status.
pub async fn run(
    table: &[&'static Command],
    words: &[String],
    terminal: &mut Terminal,
    environment: &Environment,
) -> u8 {
    if let Some(exit) = complete::serve(table, words, terminal, environment) {
        return exit;
    }
    if matches!(words, [first, ..] if is_help(first)) {
        terminal.line(help::overview(table, terminal.program()));
        return 0;
    }
    let Some((command, rest)) = find(table, words) else {
        return no_command(table, words, terminal);
    };
    let parsed = match flags::parse(&all_flags(command), rest) {
        Ok(parsed) => parsed,
        Err(error) => {
            let usage = help::command(command, terminal.program());
            terminal.line(usage);
            terminal.error(error.to_string());
            return 1;
        }
    };
    if parsed.help {
        let usage = help::command(command, terminal.program());
        terminal.line(usage);
        return 0;
    }
    choose_colours(terminal, &parsed, environment);
    if parsed.on("ui") {
        terminal.error("Note: -ui opens nothing: there are no pages for a browser yet");
    }
    let mut call = Call { command, flags: parsed, terminal, environment };
    let outcome = (command.run)(&mut call).await;
    match outcome {
        Ok(exit) => exit,
        Err(failure) => {
            if !failure.message.is_empty() {
                terminal.error(&failure.message);
            }
            failure.exit
        }
    }
}

fn is_help(word: &str) -> bool {
    matches!(word, "-h" | "-help" | "--help" | "help")
}

/// The words name no command: shows what there is.
fn no_command(table: &[&'static Command], words: &[String], terminal: &mut Terminal) -> u8 {
    let asked = words.last().is_some_and(|w| is_help(w));
    let names: Vec<&str> = words.iter().map(String::as_str).take_while(|w| !w.starts_with('-')).collect();
    if let Some(text) = help::family(table, terminal.program(), &names.join(" ")) {
        terminal.line(text);
        return if asked { 0 } else { EXIT_FAMILY };
    }
    // The longest beginning that is a family: its members are what could be meant.
    let family = names.first().and_then(|first| help::family(table, terminal.program(), first));
    let known = family.is_some();
    terminal.line(family.unwrap_or_else(|| help::overview(table, terminal.program())));
    if let Some(near) = help::nearest(table, words) {
        let program = terminal.program().to_string();
        terminal.error(format!("{program}: there is no command {:?}; did you mean {near:?}?", names.join(" ")));
    }
    if known { EXIT_FAMILY } else { EXIT_NO_COMMAND }
}

fn choose_colours(terminal: &mut Terminal, flags: &flags::Parsed, environment: &Environment) {
    if flags.on("no-color") || environment.get("NOMAD_CLI_NO_COLOR").is_some() || environment.get("NO_COLOR").is_some()
    {
        terminal.set_colours(false);
    } else if flags.on("force-color") || environment.get("NOMAD_CLI_FORCE_COLOR").is_some() {
        terminal.set_colours(true);
    }
}
