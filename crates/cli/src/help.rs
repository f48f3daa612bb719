//! Help, derived from the table of commands.

use crate::command::{Command, GENERAL_FLAGS};
use crate::flags::{Flag, Kind};
use std::collections::BTreeMap;
use std::fmt::Write;
use strsim::levenshtein;

/// Width at which help texts are wrapped.
const WIDTH: usize = 78;

/// Commands that most people need, listed first.
const COMMON: &[&str] = &["run", "stop", "status", "alloc", "job", "node", "agent"];

/// The list of all commands, families as one line.
pub fn overview(table: &[&'static Command], program: &str) -> String {
    let mut lines: BTreeMap<&str, String> = BTreeMap::new();
    for command in table {
        let (first, family) = match command.name.split_once(' ') {
            Some((first, _)) => (first, true),
            None => (command.name, false),
        };
        if family {
            lines.entry(first).or_insert_with(|| family_synopsis(first));
        } else {
            lines.insert(first, command.synopsis.to_string());
        }
        for alias in command.aliases.iter().filter(|a| !a.contains(' ') && !a.contains('-')) {
            lines.entry(alias).or_insert_with(|| command.synopsis.to_string());
        }
    }
    let mut text = format!(
        "Usage: {program} [-version] [-help] [-autocomplete-(un)install] <command> [args]\n\nCommon commands:\n"
    );
    for name in COMMON {
        if let Some(synopsis) = lines.remove(name) {
            let _ = writeln!(text, "    {name:<11} {synopsis}");
        }
    }
    text.push_str("\nOther commands:\n");
    for (name, synopsis) in lines {
        let _ = writeln!(text, "    {name:<19} {synopsis}");
    }
    text.trim_end().to_string()
}

fn family_synopsis(family: &str) -> String {
    let things = match family {
        "acl" => "ACL policies and tokens",
        "alloc" => "allocations",
        "config" => "configurations",
        "deployment" => "deployments",
        "eval" => "evaluations",
        "job" => "jobs",
        "namespace" => "namespaces",
        "node" => "nodes",
        "server" => "servers",
        "service" => "registered services",
        "system" => "the system API",
        "var" => "variables",
        "job periodic" => "periodic jobs",
        "job tag" => "names of job versions",
        "node meta" => "node metadata",
        "node pool" => "node pools",
        "operator autopilot" => "the care for servers",
        "operator raft" => "the replicated log",
        "operator scheduler" => "the scheduler's settings",
        "scaling" | "scaling policy" => "scaling policies",
        "system reconcile" => "the repair of derived state",
        "operator" => return "Cluster-level tools for operators".to_string(),
        other => return format!("Commands about {other}"),
    };
    format!("Interact with {things}")
}

/// The commands of one family, such as `job`; none when there is no such family. Families within show as one line.
pub fn family(table: &[&'static Command], program: &str, prefix: &str) -> Option<String> {
    let start = format!("{prefix} ");
    let mut members: BTreeMap<&str, String> = BTreeMap::new();
    for command in table.iter().filter(|c| c.name.starts_with(&start)) {
        let name = command.name.strip_prefix(&start).unwrap_or(command.name);
        match name.split_once(' ') {
            Some((inner, _)) => {
                members.entry(inner).or_insert_with(|| family_synopsis(&format!("{prefix} {inner}")));
            }
            None => {
                members.insert(name, command.synopsis.to_string());
            }
        }
    }
    if members.is_empty() || prefix.is_empty() {
        return None;
    }
    let mut text = format!("Usage: {program} {prefix} <subcommand> [options] [args]\n\n");
    let _ = writeln!(text, "  {}. Each subcommand has its own help with -h.\n\nSubcommands:", family_synopsis(prefix));
    let widest = members.keys().map(|n| n.len()).max().unwrap_or(0);
    for (name, synopsis) in members {
        let _ = writeln!(text, "    {name:<widest$}    {synopsis}");
    }
    Some(text.trim_end().to_string())
}

/// The name of the command nearest to words that name none.
pub fn nearest(table: &[&'static Command], words: &[String]) -> Option<&'static str> {
    let wanted = words.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
    let first = words.first()?;
    table
        .iter()
        .flat_map(|c| std::iter::once(c.name).chain(c.aliases.iter().copied()))
        .map(|name| (levenshtein(name, &wanted).min(levenshtein(name, first)), name))
        .filter(|(d, name)| *d <= name.len() / 3)
        .min()
        .map(|(_, name)| name)
}

/// The help of one command.
pub fn command(command: &Command, program: &str) -> String {
    let mut text = format!("Usage: {program} {} [options] {}", command.name, command.arguments).trim_end().to_string();
    for alias in command.aliases {
        let _ = write!(text, "\nAlias: {program} {alias}");
    }
    text.push('\n');
    for paragraph in command.about.split("\n\n") {
        text.push('\n');
        wrap(&mut text, paragraph, 2);
    }
    if command.general {
        text.push_str("\nGeneral Options:\n");
        write_flags(&mut text, GENERAL_FLAGS);
    }
    if !command.flags.is_empty() {
        text.push_str("\nOptions:\n");
        write_flags(&mut text, command.flags);
    }
    text.trim_end().to_string()
}

fn write_flags(text: &mut String, flags: &[Flag]) {
    for flag in flags {
        let value =
            if flag.kind == Kind::Bool || flag.value.is_empty() { String::new() } else { format!("={}", flag.value) };
        let _ = writeln!(text, "\n  -{}{value}", flag.name);
        wrap(text, flag.help, 4);
    }
}

fn wrap(text: &mut String, paragraph: &str, indent: usize) {
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        if column > 0 && column + 1 + word.chars().count() > WIDTH {
            text.push('\n');
            column = 0;
        }
        if column == 0 {
            text.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.chars().count();
    }
    text.push('\n');
}
