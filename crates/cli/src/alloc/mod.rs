//! The commands about allocations.

pub mod control;
pub mod exec;
pub mod files;
pub mod status;
pub mod stream;

use crate::command::{Command, DETACH, JSON, TEMPLATE, UI, VERBOSE};
use crate::flags::Flag;
use crate::format::{Times, id};
use crate::terminal::columns;
use crate::view::View;
use serde_json::Value;

const TASK: Flag = Flag::text("task", "<name>", "The task; may be left out where there is only one.");
const GROUP: Flag = Flag::text("group", "<name>", "With -job: only allocations of this group.");
const BY_JOB: Flag = Flag::switch("job", "The argument is a job: any running allocation of it.");
const FOLLOW: Flag = Flag::switch("f", "Go on with what is written later.");
const TAIL: Flag = Flag::switch("tail", "Begin near the end.");
const LINES: Flag = Flag::number("n", "With -tail: how many lines; default 10.");
const BYTES: Flag = Flag::number("c", "With -tail: how many bytes instead.");
const STDIN: Flag = Flag::switch("i", "Pass standard input on; true unless set to false.");
const TTY: Flag = Flag::switch("t", "Give the command a terminal; the default when standard input is one.");
const ESCAPE: Flag = Flag::text(
    "e",
    "<character>",
    "At the beginning of a line, this and a dot end the session; default ~, none for none.",
);

const BOTH: Flag = Flag::switch("it", "Both -i and -t.");
const BOTH_TURNED: Flag = Flag::switch("ti", "Both -i and -t.");

const EXEC_FLAGS: &[Flag] = &[TASK, GROUP, BY_JOB, STDIN, TTY, BOTH, BOTH_TURNED, ESCAPE];
const ACTION_FLAGS: &[Flag] = &[
    Flag::text("job", "<id>", "The job that has the action."),
    Flag::text("alloc", "<id>", "The allocation to run it in; else one of the group."),
    Flag::text("task", "<name>", "The task that has the action."),
    Flag::text("group", "<name>", "The group of the task."),
    STDIN,
    TTY,
    BOTH,
    BOTH_TURNED,
    ESCAPE,
];
const STATUS_FLAGS: &[Flag] = &[
    Flag::switch("short", "Only the head and the tasks."),
    Flag::switch("stats", "What the tasks use, in detail."),
    VERBOSE,
    JSON,
    TEMPLATE,
    UI,
];

/// The commands about allocations.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "alloc status",
        aliases: &["alloc-status"],
        arguments: "<allocation>",
        synopsis: "Display allocation status information and metadata",
        about: "Shows an allocation: state, addresses, checks, and its tasks with what they use and what happened.",
        general: true,
        flags: STATUS_FLAGS,
        run: |call| Box::pin(status::status(call)),
    },
    Command {
        name: "alloc logs",
        aliases: &["logs"],
        arguments: "<allocation> [task]",
        synopsis: "Streams the logs of a task",
        about: "Prints what a task wrote to standard output, to standard error with -stderr, or to both with both flags.",
        general: true,
        flags: &[
            Flag::switch("stdout", "Standard output; the default."),
            Flag::switch("stderr", "Standard error."),
            TASK,
            GROUP,
            BY_JOB,
            FOLLOW,
            TAIL,
            LINES,
            BYTES,
            VERBOSE,
        ],
        run: |call| Box::pin(files::logs(call)),
    },
    Command {
        name: "alloc fs",
        aliases: &["fs"],
        arguments: "<allocation> [path]",
        synopsis: "Inspect the contents of an allocation directory",
        about: "Lists a folder of an allocation, or prints a file of it.",
        general: true,
        flags: &[
            Flag::switch("H", "Sizes in bytes and times in full."),
            Flag::switch("stat", "Only what kind of file it is."),
            GROUP,
            BY_JOB,
            FOLLOW,
            TAIL,
            LINES,
            BYTES,
            VERBOSE,
        ],
        run: |call| Box::pin(files::fs(call)),
    },
    Command {
        name: "alloc exec",
        aliases: &["exec"],
        arguments: "<allocation> <command> [arguments...]",
        synopsis: "Execute commands in a task",
        about: "Runs a command where a task runs. The exit status is the command's.",
        general: true,
        flags: EXEC_FLAGS,
        run: |call| Box::pin(exec::exec(call)),
    },
    Command {
        name: "job action",
        aliases: &["action"],
        arguments: "<action>",
        synopsis: "Run a pre-defined action from a task",
        about: "Runs an action that the job defines in one of its tasks, in the allocation named, or in one of the group. \
                The exit status is the action's.",
        general: true,
        flags: ACTION_FLAGS,
        run: |call| Box::pin(exec::action(call)),
    },
    Command {
        name: "alloc signal",
        aliases: &[],
        arguments: "<allocation> [task]",
        synopsis: "Signal a running allocation",
        about: "Sends a signal to one task of an allocation, or to all.",
        general: true,
        flags: &[Flag::text("s", "<signal>", "The signal; default SIGKILL."), TASK, VERBOSE],
        run: |call| Box::pin(control::signal(call)),
    },
    Command {
        name: "alloc restart",
        aliases: &[],
        arguments: "<allocation> [task]",
        synopsis: "Restart a running allocation",
        about: "Restarts one task of an allocation, or all that run, where they are.",
        general: true,
        flags: &[Flag::switch("all-tasks", "Also tasks that have ended, such as prestart tasks."), TASK, VERBOSE],
        run: |call| Box::pin(control::restart(call)),
    },
    Command {
        name: "alloc stop",
        aliases: &[],
        arguments: "<allocation>",
        synopsis: "Stop and reschedule a running allocation",
        about: "Stops an allocation; the scheduler replaces it where the job wants that.",
        general: true,
        flags: &[DETACH, Flag::switch("no-shutdown-delay", "Stop without the tasks' shutdown_delay."), VERBOSE],
        run: |call| Box::pin(control::stop(call)),
    },
    Command {
        name: "alloc checks",
        aliases: &[],
        arguments: "<allocation>",
        synopsis: "Outputs service health check status information",
        about: "Shows the latest results of an allocation's service checks.",
        general: true,
        flags: &[VERBOSE, JSON, TEMPLATE],
        run: |call| Box::pin(control::checks(call)),
    },
];

/// Allocations as a table. Source: `goldens/cli/052-job-status-web.txt`, `053-job-status-web-verbose.txt`.
pub fn list_text(allocations: &[Value], full: bool, times: &Times) -> String {
    let mut sorted: Vec<&Value> = allocations.iter().collect();
    sorted.sort_by_key(|a| std::cmp::Reverse(a.int("CreateIndex")));
    let mut lines = vec![
        if full {
            "ID|Eval ID|Node ID|Node Name|Task Group|Version|Desired|Status|Created|Modified"
        } else {
            "ID|Node ID|Task Group|Version|Desired|Status|Created|Modified"
        }
        .to_string(),
    ];
    for a in sorted {
        let evaluation = if full { format!("{}|", a.text("EvalID")) } else { String::new() };
        let node = if full { format!("|{}", a.text("NodeName")) } else { String::new() };
        lines.push(format!(
            "{}|{evaluation}{}{node}|{}|{}|{}|{}|{}|{}",
            id(a.text("ID"), full),
            id(a.text("NodeID"), full),
            a.text("TaskGroup"),
            a.int("JobVersion"),
            a.text("DesiredStatus"),
            a.text("ClientStatus"),
            times.when(a.int("CreateTime"), full),
            times.when(a.int("ModifyTime"), full)
        ));
    }
    columns(&lines)
}

/// The task group of an allocation, as its job says it.
pub fn group_of(allocation: &Value) -> &Value {
    let name = allocation.text("TaskGroup");
    allocation
        .at("Job")
        .list("TaskGroups")
        .iter()
        .find(|g| g.text("Name") == name)
        .unwrap_or_else(|| allocation.at("no such group"))
}
