//! The commands about jobs.

pub mod control;
pub mod diff;
pub mod init;
pub mod restart;
pub mod run;
pub mod show;
pub mod status;

use crate::command::{Command, DETACH, JSON, TEMPLATE, UI, VERBOSE};
use crate::flags::Flag;
use crate::jobfile::{JSON_FILE, STRICT, VAR, VAR_FILE, VAULT_NAMESPACE};

const YES: Flag = Flag::switch("yes", "Do not ask.");
const POLICY_OVERRIDE: Flag =
    Flag::switch("policy-override", "Accepted for old scripts; there are no policies to override.");
const CHECK_INDEX: Flag =
    Flag::text("check-index", "<index>", "Only if the job's modify index is this; 0: only if there is no such job.");
const EVAL_PRIORITY: Flag = Flag::number("eval-priority", "The priority of the evaluation; default: the job's.");
const NO_SHUTDOWN_DELAY: Flag = Flag::switch("no-shutdown-delay", "Stop without the tasks' shutdown_delay.");

/// Commands that submit job files.
pub const SUBMIT: &[Command] = &[
    Command {
        name: "job run",
        aliases: &["run"],
        arguments: "<path>",
        synopsis: "Run a new job or update an existing job",
        about: "Submits the job in a file, or on standard input for \"-\", and watches the evaluation and the deployment to \
                their end. Ctrl-C ends the watch, not the job.\n\nThe exit status is 0 when everything was placed and the \
                deployment succeeded, 2 when something could not be placed, and 1 for everything else. A region in the job \
                wins over -region.",
        general: true,
        flags: &[
            CHECK_INDEX,
            DETACH,
            EVAL_PRIORITY,
            JSON_FILE,
            STRICT,
            Flag::switch("output", "Print what would be submitted as JSON, and submit nothing."),
            UI,
            POLICY_OVERRIDE,
            Flag::switch("preserve-counts", "Keep the counts of groups that exist."),
            Flag::switch("preserve-resources", "Keep the resources of tasks that exist."),
            Flag::text("consul-namespace", "<name>", "The Consul namespace stored in the job."),
            VAULT_NAMESPACE,
            VAR,
            VAR_FILE,
            VERBOSE,
        ],
        run: |call| Box::pin(run::run(call)),
    },
    Command {
        name: "job plan",
        aliases: &["plan"],
        arguments: "<path>",
        synopsis: "Dry-run a job update to determine its effects",
        about: "Shows what submitting the job would change and whether everything would find a place; nothing is \
                changed.\n\nThe exit status is 0 when nothing would be placed, stopped or replaced, 1 when something would, \
                and 255 for an error.",
        general: true,
        flags: &[
            Flag::switch("diff", "Show what differs from the running version; true unless set to false."),
            JSON_FILE,
            Flag::switch("json-output", "The plan as JSON."),
            STRICT,
            POLICY_OVERRIDE,
            TEMPLATE,
            VAULT_NAMESPACE,
            VAR,
            VAR_FILE,
            VERBOSE,
        ],
        run: |call| Box::pin(run::plan(call)),
    },
    Command {
        name: "job validate",
        aliases: &["validate"],
        arguments: "<path>",
        synopsis: "Checks if a given job specification is valid",
        about: "Reads a job file and lets the agent check it; nothing is submitted. The check command does the same without \
                an agent.",
        general: true,
        flags: &[JSON_FILE, STRICT, VAULT_NAMESPACE, VAR, VAR_FILE],
        run: |call| Box::pin(run::validate(call)),
    },
    Command {
        name: "job init",
        aliases: &["init"],
        arguments: "[filename]",
        synopsis: "Create an example job file",
        about: "Writes an example job file, example.nomad.hcl unless another name is given. A file that exists is left \
                alone.",
        general: true,
        flags: &[Flag::switch("short", "Without comments.")],
        run: |call| Box::pin(init::init(call)),
    },
];

/// Commands that show jobs.
pub const SHOW: &[Command] = &[
    Command {
        name: "job status",
        aliases: &[],
        arguments: "[job]",
        synopsis: "Display status information about a job",
        about: "Lists all jobs, or shows one with its allocations, latest deployment and what could not be placed. The \
                beginning of an id is enough.",
        general: true,
        flags: &[
            Flag::switch("short", "Only the head."),
            Flag::switch("evals", "The evaluations too."),
            Flag::switch("all-allocs", "Also allocations of an earlier job of this id."),
            JSON,
            TEMPLATE,
            VERBOSE,
            UI,
        ],
        run: |call| Box::pin(status::status(call)),
    },
    Command {
        name: "job inspect",
        aliases: &["inspect"],
        arguments: "<job>",
        synopsis: "Inspect a submitted job",
        about: "Prints a job as the servers hold it, in JSON, or the file it was submitted from with -hcl.",
        general: true,
        flags: &[
            Flag::text("version", "<version>", "This version of the job, by number or tag."),
            JSON,
            Flag::switch("hcl", "The file it was submitted from."),
            Flag::switch("with-vars", "With -hcl: the values of variables first."),
            TEMPLATE,
        ],
        run: |call| Box::pin(show::inspect(call)),
    },
    Command {
        name: "job history",
        aliases: &[],
        arguments: "<job>",
        synopsis: "Display all tracked versions of a job",
        about: "Lists the versions that are kept of a job, newest first.",
        general: true,
        flags: &[
            Flag::switch("p", "What changed from version to version."),
            Flag::switch("full", "The whole job of each version."),
            Flag::text("version", "<number>", "Only this version."),
            Flag::text("diff-version", "<number>", "Compare with this version."),
            Flag::text("diff-tag", "<name>", "Compare with the version of this tag."),
            JSON,
            TEMPLATE,
        ],
        run: |call| Box::pin(show::history(call)),
    },
    Command {
        name: "job deployments",
        aliases: &[],
        arguments: "<job>",
        synopsis: "List deployments for a job",
        about: "Lists the deployments of a job, newest first.",
        general: true,
        flags: &[
            Flag::switch("latest", "Only the latest, with its groups."),
            Flag::switch("all", "Also those of an earlier job of this id."),
            JSON,
            TEMPLATE,
            VERBOSE,
        ],
        run: |call| Box::pin(show::deployments(call)),
    },
    Command {
        name: "job allocs",
        aliases: &[],
        arguments: "<job>",
        synopsis: "List allocations for a job",
        about: "Lists the allocations of a job.",
        general: true,
        flags: &[Flag::switch("all", "Also those of an earlier job of this id."), JSON, TEMPLATE, VERBOSE],
        run: |call| Box::pin(show::allocs(call)),
    },
    Command {
        name: "job scaling-events",
        aliases: &[],
        arguments: "<job>",
        synopsis: "Display the most recent scaling events for a job",
        about: "Lists the recorded changes of counts of a job's groups, newest first.",
        general: true,
        flags: &[VERBOSE],
        run: |call| Box::pin(show::scaling_events(call)),
    },
];

/// Commands that change jobs.
pub const CONTROL: &[Command] = &[
    Command {
        name: "job stop",
        aliases: &["stop"],
        arguments: "<job> [job...]",
        synopsis: "Stop a running job",
        about: "Stops jobs and watches their evaluations. -purge also forgets them at once.",
        general: true,
        flags: &[
            DETACH,
            EVAL_PRIORITY,
            Flag::switch("global", "In every region of a job over several regions."),
            NO_SHUTDOWN_DELAY,
            Flag::switch("purge", "Forget the job at once, not when garbage is collected."),
            YES,
            VERBOSE,
        ],
        run: |call| Box::pin(control::stop(call)),
    },
    Command {
        name: "job start",
        aliases: &["start"],
        arguments: "<job>",
        synopsis: "Start a stopped job",
        about: "Starts a job that was stopped and not yet forgotten, as it was.",
        general: true,
        flags: &[DETACH, VERBOSE],
        run: |call| Box::pin(control::start(call)),
    },
    Command {
        name: "job eval",
        aliases: &[],
        arguments: "<job>",
        synopsis: "Force an evaluation for the job",
        about: "Lets the scheduler look at a job again.",
        general: true,
        flags: &[
            DETACH,
            Flag::switch("force-reschedule", "Also place failed allocations again that wait for their next try."),
            VERBOSE,
        ],
        run: |call| Box::pin(control::evaluate(call)),
    },
    Command {
        name: "job revert",
        aliases: &[],
        arguments: "<job> <version|tag>",
        synopsis: "Revert to a prior version of the job",
        about: "Submits an earlier version of a job again, as its newest version.",
        general: true,
        flags: &[DETACH, VERBOSE],
        run: |call| Box::pin(control::revert(call)),
    },
    Command {
        name: "job promote",
        aliases: &[],
        arguments: "<job>",
        synopsis: "Promote a job's canaries",
        about: "Promotes the canaries of the job's latest deployment: all groups, or those that -group names.",
        general: true,
        flags: &[
            DETACH,
            Flag::texts("group", "<name>", "Promote this group only; may be given several times."),
            VERBOSE,
        ],
        run: |call| Box::pin(control::promote(call)),
    },
    Command {
        name: "job scale",
        aliases: &[],
        arguments: "<job> [group] <count>",
        synopsis: "Change the count of a job group",
        about: "Changes how many allocations a group has. The group may be left out where there is only one.",
        general: true,
        flags: &[Flag::number("check-index", "Only if the job's modify index is this."), DETACH, VERBOSE],
        run: |call| Box::pin(control::scale(call)),
    },
    Command {
        name: "job dispatch",
        aliases: &[],
        arguments: "<parameterized job> [input source]",
        synopsis: "Dispatch an instance of a parameterized job",
        about: "Makes a job from a parameterized one, with metadata and a payload from a file, or from standard input for \
                \"-\".",
        general: true,
        flags: &[
            Flag::texts("meta", "<name=value>", "Metadata; may be given several times."),
            DETACH,
            Flag::switch("wait", "Wait until the job has ended; exit status 2 when an allocation of it failed."),
            Flag::text("idempotency-token", "<token>", "Dispatch only if no job of this token is there."),
            Flag::text("id-prefix-template", "<text>", "What stands before the time in the new id."),
            Flag::number("priority", "The priority of the new job."),
            VERBOSE,
            UI,
        ],
        run: |call| Box::pin(control::dispatch(call)),
    },
    Command {
        name: "job periodic force",
        aliases: &[],
        arguments: "<job>",
        synopsis: "Force the launch of a periodic job",
        about: "Launches a periodic job now, beside its schedule.",
        general: true,
        flags: &[DETACH, VERBOSE],
        run: |call| Box::pin(control::periodic_force(call)),
    },
    Command {
        name: "job tag apply",
        aliases: &[],
        arguments: "<job>",
        synopsis: "Give a version of a job a name",
        about: "Gives a version a name. Named versions are kept, and other commands take the name for the number.",
        general: true,
        flags: &[
            Flag::text("name", "<name>", "The name."),
            Flag::text("description", "<text>", "What the version is."),
            Flag::text("version", "<number>", "The version; default: the latest."),
        ],
        run: |call| Box::pin(control::tag_apply(call)),
    },
    Command {
        name: "job tag unset",
        aliases: &[],
        arguments: "<job>",
        synopsis: "Remove the name of a version of a job",
        about: "Takes a name away from the version that has it.",
        general: true,
        flags: &[Flag::text("name", "<name>", "The name.")],
        run: |call| Box::pin(control::tag_unset(call)),
    },
    Command {
        name: "job restart",
        aliases: &[],
        arguments: "<job>",
        synopsis: "Restart or reschedule allocations for a job",
        about: "Restarts the allocations of a job where they are, or replaces them with -reschedule, some at a time.",
        general: true,
        flags: &[
            Flag::switch("all-tasks", "Also tasks that have ended, such as prestart tasks."),
            Flag::text("batch-size", "<n|n%>", "How many at a time; default 1."),
            Flag::text("batch-wait", "<duration|ask>", "The pause between batches; default none."),
            Flag::texts("group", "<name>", "Only this group; may be given several times."),
            NO_SHUTDOWN_DELAY,
            Flag::text("on-error", "<ask|fail>", "What to do when an allocation cannot be restarted; default ask."),
            Flag::switch("reschedule", "Replace allocations instead of restarting them in place."),
            Flag::texts("task", "<name>", "Only this task; may be given several times."),
            YES,
            VERBOSE,
        ],
        run: |call| Box::pin(restart::restart(call)),
    },
];
