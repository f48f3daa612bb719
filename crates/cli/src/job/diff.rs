//! What a plan or a new version changes, as text. Source: `goldens/cli/030-job-plan-changed.txt` and neighbours.

use crate::terminal::{Colour, Terminal};
use crate::view::View;
use serde_json::Value;

/// Renders differences; colours only where there are colours.
pub struct Differ<'a> {
    pub terminal: &'a Terminal,
    /// Every field of what is added or deleted.
    pub verbose: bool,
}

/// The mark of a kind of change, without colour.
fn mark(kind: &str) -> &'static str {
    match kind {
        "Added" => "+",
        "Deleted" => "-",
        "Edited" => "+/-",
        _ => "",
    }
}

/// Columns the marks of these differences take, the blank behind them included.
fn mark_width<'v>(all: impl Iterator<Item = &'v Value>) -> usize {
    match all.map(|v| mark(v.text("Type")).len()).max() {
        None | Some(0) => 0,
        Some(longest) => longest + 1,
    }
}

/// Columns of the marks of everything that stands within a part: its fields, objects and members.
fn width_within(part: &Value, members: &str) -> usize {
    mark_width(part.list("Fields").iter().chain(part.list("Objects")).chain(part.list(members)))
}

fn blanks(count: usize) -> String {
    " ".repeat(count)
}

impl Differ<'_> {
    /// The whole difference of a job.
    pub fn job(&self, diff: &Value) -> String {
        let kind = diff.text("Type");
        let own = mark_width(std::iter::once(diff));
        let mut out = format!("{}Job: {}\n", self.marked(kind, own), quoted(diff.text("ID")));
        let width = width_within(diff, "TaskGroups");
        if kind == "Edited" || self.verbose {
            self.contents(&mut out, diff, 0, width);
        }
        for group in diff.list("TaskGroups") {
            self.group(&mut out, group, width);
            out.push('\n');
        }
        out
    }

    fn group(&self, out: &mut String, group: &Value, width: usize) {
        let kind = group.text("Type");
        out.push_str(&self.marked(kind, width));
        out.push_str(&format!("Task Group: {}", quoted(group.text("Name"))));
        let updates: Vec<String> = group.entries("Updates").iter().map(|(what, n)| self.update(what, n)).collect();
        if !updates.is_empty() {
            out.push_str(&format!(" ({})", updates.join(", ")));
        }
        out.push('\n');
        let width = width_within(group, "Tasks");
        if kind == "Edited" || self.verbose {
            self.contents(out, group, 2, width);
        }
        for task in group.list("Tasks") {
            self.task(out, task, width);
        }
    }

    fn update(&self, what: &str, count: &Value) -> String {
        let colour = match what {
            "create" => Colour::Green,
            "destroy" | "stop" => Colour::Red,
            "create/destroy update" | "canary" => Colour::Yellow,
            "migrate" | "in-place update" => Colour::Cyan,
            _ => return format!("{count} {what}"),
        };
        self.terminal.paint(colour, &format!("{count} {what}"))
    }

    fn task(&self, out: &mut String, task: &Value, width: usize) {
        let kind = task.text("Type");
        out.push_str(&blanks(2));
        out.push_str(&self.marked(kind, width));
        out.push_str(&format!("Task: {}{}\n", quoted(task.text("Name")), self.notes(task)));
        if kind == "None" || (matches!(kind, "Added" | "Deleted") && !self.verbose) {
            return;
        }
        self.contents(out, task, 4, width_within(task, "Objects"));
    }

    /// Fields and objects, at an indentation.
    fn contents(&self, out: &mut String, of: &Value, indent: usize, width: usize) {
        let (fields, objects) = (of.list("Fields"), of.list("Objects"));
        let longest = fields.iter().map(|f| f.text("Name").chars().count()).max().unwrap_or(0);
        for field in fields {
            out.push_str(&blanks(indent));
            out.push_str(&self.field(field, width, longest));
            out.push('\n');
        }
        for object in objects {
            self.object(out, object, indent, width);
        }
    }

    fn field(&self, field: &Value, width: usize, longest: usize) -> String {
        let name = field.text("Name");
        let gap = blanks(longest.saturating_sub(name.chars().count()));
        let value = match field.text("Type") {
            "Edited" => format!("{} => {}", quoted(field.text("Old")), quoted(field.text("New"))),
            "Deleted" => quoted(field.text("Old")),
            _ => quoted(field.text("New")),
        };
        format!("{}{name}: {gap}{value}{}", self.marked(field.text("Type"), width), self.notes(field))
    }

    fn object(&self, out: &mut String, object: &Value, indent: usize, width: usize) {
        out.push_str(&blanks(indent));
        out.push_str(&format!("{}{} {{\n", self.marked(object.text("Type"), width), object.text("Name")));
        let before = out.len();
        self.contents(out, object, indent + 2, width_within(object, "Objects"));
        if out.len() == before {
            out.push('\n');
        }
        out.push_str(&format!("{}}}\n", blanks(indent + width)));
    }

    fn notes(&self, of: &Value) -> String {
        let notes: Vec<String> = of
            .list("Annotations")
            .iter()
            .map(View::plain)
            .filter(|n| !n.is_empty())
            .map(|n| {
                let colour = if n.contains("destroy") { Colour::Red } else { Colour::Cyan };
                self.terminal.paint(colour, &n)
            })
            .collect();
        if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) }
    }

    fn marked(&self, kind: &str, width: usize) -> String {
        let text = mark(kind);
        let pad = blanks(width.saturating_sub(text.len()));
        let colour = match kind {
            "Added" => Colour::Green,
            "Deleted" => Colour::Red,
            "Edited" => Colour::Yellow,
            _ => return pad,
        };
        format!("{}{pad}", self.terminal.paint(colour, text))
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
