//! Validation of jobs: every rule, all errors at once, and warnings. It reads the registered form ([`crate::admit`]).
//!
//! Sources: `compat/jobspec.tsv`, column validation; the texts are those that the peer answers. Where the peer ends its
//! handler or lets a value through that cannot act, there is an error instead.

mod group;
mod place;
mod policy;
mod service;
mod task;
mod warn;

use crate::job::{Job, JobType};
use crate::spec::UnknownWords;

/// Most characters of a description shown on pages.
pub const MAX_UI_DESCRIPTION: usize = 1000;

/// What the cluster's settings bound.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Highest priority (`job_max_priority`).
    pub max_priority: i64,
    /// Most allocations of one job (`job_max_count`).
    pub max_count: i64,
    /// Whether tasks may use more memory than they asked for.
    pub memory_oversubscription: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_priority: 100, max_count: 50_000, memory_oversubscription: false }
    }
}

/// What is wrong with a job, and what is merely worth knowing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validation {
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
}

impl Validation {
    /// All errors as one text; empty when there is none.
    pub fn error_text(&self) -> String {
        if self.errors.is_empty() { String::new() } else { multi(self.errors.iter().map(String::as_str)) }
    }

    /// All warnings as one text; empty when there is none.
    pub fn warnings_text(&self) -> String {
        warnings_text(&self.warnings)
    }
}

/// The peer's way to write several warnings as one text; empty when there is none.
pub fn warnings_text(warnings: &[String]) -> String {
    match warnings.len() {
        0 => String::new(),
        n => {
            let noun = if n == 1 { "warning" } else { "warnings" };
            let items: Vec<String> = warnings.iter().map(|w| format!("* {}", w.trim_end())).collect();
            format!("{n} {noun}:\n\n{}", items.join("\n"))
        }
    }
}

/// The peer's way to write several errors as one text.
pub fn multi<'a>(errors: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<&str> = errors.into_iter().collect();
    let noun = if items.len() == 1 { "error" } else { "errors" };
    let mut out = format!("{} {noun} occurred:\n", items.len());
    for item in items {
        out.push_str("\t* ");
        out.push_str(item);
        out.push('\n');
    }
    out.push('\n');
    out
}

/// Errors of one level; a level with errors becomes one error of the level above.
#[derive(Debug, Default)]
struct Errors(Vec<String>);

impl Errors {
    fn add(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }

    fn check(&mut self, bad: bool, text: impl FnOnce() -> String) {
        if bad {
            self.0.push(text());
        }
    }

    /// `<prefix>: <the errors>`, if there are any.
    fn nest(&mut self, prefix: &str, inner: Errors) {
        if !inner.0.is_empty() {
            self.0.push(format!("{prefix}: {}", inner.text()));
        }
    }

    /// The errors as one, if there are any.
    fn bundle(&mut self, inner: Errors) {
        if !inner.0.is_empty() {
            self.0.push(inner.text());
        }
    }

    fn text(&self) -> String {
        multi(self.0.iter().map(String::as_str))
    }
}

/// Validates a registered job.
pub fn validate(job: &Job, limits: &Limits) -> Validation {
    validate_words(job, &UnknownWords::default(), limits)
}

/// Validates a registered job whose specification held words that the typed form cannot hold
/// ([`Job::from_spec_with_words`]).
pub fn validate_words(job: &Job, words: &UnknownWords, limits: &Limits) -> Validation {
    let mut errors = Errors::default();
    consul_partitions(job, &mut errors);
    identity_of_job(job, words, &mut errors);
    place::constraints(&job.constraints, &mut errors, true);
    place::affinities(job.kind, &job.affinities, &mut errors);
    place::spreads(job.kind, &job.spreads, &mut errors);
    if let Some(ui) = &job.ui {
        let length = ui.description.chars().count();
        errors.check(length > MAX_UI_DESCRIPTION, || {
            format!("UI description must be under {MAX_UI_DESCRIPTION} characters, currently {length}")
        });
    }
    groups(job, words, &mut errors);
    launchers(job, &mut errors);
    errors.check(job.priority < 1 || job.priority > limits.max_priority, || {
        format!("job priority must be between [1, {}]", limits.max_priority)
    });
    let total = job.task_groups.iter().fold(0i64, |sum, g| sum.saturating_add(g.count.max(0)));
    errors.check(total > limits.max_count, || {
        format!("total count was greater than configured job_max_count: {total} > {}", limits.max_count)
    });
    Validation { errors: errors.0, warnings: warn::job(job, limits) }
}

fn consul_partitions(job: &Job, errors: &mut Errors) {
    for group in &job.task_groups {
        let Some(outer) = group.consul.as_ref().map(|c| c.partition.as_str()).filter(|p| !p.is_empty()) else {
            continue;
        };
        for inner in group.tasks.iter().filter_map(|t| t.consul.as_ref()).map(|c| c.partition.as_str()) {
            errors.check(!inner.is_empty() && inner != outer, || {
                format!("task.consul.partition {inner:?} must match group.consul.partition {outer:?} if both are set")
            });
        }
    }
}

fn identity_of_job(job: &Job, words: &UnknownWords, errors: &mut Errors) {
    errors.check(job.id.is_empty(), || "Missing job ID".to_string());
    errors.check(job.id.contains(' '), || "Job ID contains a space".to_string());
    errors.check(job.id.contains('\0'), || "Job ID contains a null character".to_string());
    errors.check(job.name.is_empty(), || "Missing job name".to_string());
    errors.check(job.name.contains('\0'), || "Job Name contains a null character".to_string());
    errors.check(job.kind == JobType::Core, || "job type cannot be core".to_string());
    match words.job_type.as_deref() {
        Some("") => errors.add("Missing job type"),
        Some(word) => errors.add(format!("Invalid job type: {word:?}")),
        None => {}
    }
    errors
        .check(job.datacenters.iter().any(String::is_empty), || "Job datacenter must be non-empty string".to_string());
    errors.check(job.task_groups.is_empty(), || "Missing job task groups".to_string());
}

fn groups(job: &Job, words: &UnknownWords, errors: &mut Errors) {
    for (index, group) in job.task_groups.iter().enumerate() {
        let position = index + 1;
        errors.check(group.name.is_empty(), || format!("Job task group {position} missing name"));
        if let Some(first) = job.task_groups.iter().take(index).position(|g| g.name == group.name) {
            errors.add(format!("Job task group {position} redefines '{}' from group {}", group.name, first + 1));
        }
        errors.check(group.shutdown_delay.is_some_and(|d| d < 0), || {
            "ShutdownDelay must be a positive value".to_string()
        });
        errors.check(job.kind == JobType::System && group.count > 1, || {
            format!(
                "Job task group {} has count {}. Count cannot exceed 1 with system scheduler",
                group.name, group.count
            )
        });
    }
    for (index, group) in job.task_groups.iter().enumerate() {
        errors.nest(
            &format!("Task group {} validation failed", group.name),
            group::group(job, group, &words.hooks_of(index)),
        );
    }
}

fn launchers(job: &Job, errors: &mut Errors) {
    let launches = job.kind.is_batch();
    if let Some(periodic) = job.periodic.as_ref().filter(|p| p.enabled) {
        errors.check(!launches, || "Periodic can only be used with \"batch\" or \"sysbatch\" scheduler".to_string());
        errors.bundle(policy::periodic(periodic));
    }
    if let Some(parameterized) = &job.parameterized_job {
        errors.check(!launches, || {
            "Parameterized job can only be used with \"batch\" or \"sysbatch\" scheduler".to_string()
        });
        errors.bundle(policy::parameterized(parameterized));
    }
}

/// Whether a name is 1 to 128 letters, digits, or of the further characters.
fn is_name(text: &str, further: &[char]) -> bool {
    (1..=128).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || further.contains(&c))
}

/// Whether a path below a task's directory leaves the allocation directory, one level above.
fn escapes_alloc(path: &str) -> bool {
    depth_below(path, 1)
}

/// Whether a path leaves the folder that it starts in.
fn escapes_folder(path: &str) -> bool {
    depth_below(path, 0)
}

fn depth_below(path: &str, start: i64) -> bool {
    let mut depth = start;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return true;
        }
    }
    false
}
