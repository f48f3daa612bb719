//! Job files on this machine: reading them with their variables, and showing what is wrong with them.

use crate::command::{Call, Failure, read_file};
use crate::flags::Flag;
use crate::terminal::Colour;
use herdsman_jobspec::{Diagnostic, Diagnostics, Files, Host, Inputs, Severity};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The flags of commands that read a job file.
pub const JSON_FILE: Flag = Flag::switch("json", "The file is JSON: a job, or an object with the job under Job.");
pub const STRICT: Flag =
    Flag::switch("hcl2-strict", "A -var or -var-file value nobody declared is an error; true unless set to false.");
pub const VAR: Flag =
    Flag::texts("var", "<name=value>", "A value for a variable of the file; may be given several times.");
pub const VAR_FILE: Flag =
    Flag::texts("var-file", "<path>", "A file with values for variables; may be given several times.");
pub const VAULT_NAMESPACE: Flag = Flag::text("vault-namespace", "<name>", "The Vault namespace stored in the job.");

/// The longest path that the file functions walk below, in folders.
const MAX_WALK_DEPTH: usize = 32;
/// The most files one `fileset` sees.
const MAX_WALK_FILES: usize = 50_000;

/// A job as read from a file.
pub struct JobFile {
    /// The job in the form of the API.
    pub job: Value,
    /// What is sent along, so that the source can be shown later: none for JSON.
    pub submission: Option<Value>,
    pub warnings: Vec<Diagnostic>,
}

/// Reads the job file that the call names.
///
/// # Errors
/// It cannot be read or understood; the message shows each fault with its line.
pub async fn read(call: &Call<'_>, path: &str) -> Result<JobFile, Failure> {
    let failed = |why: String| Failure::new(format!("Error getting job struct: {why}"));
    let text = source_text(call, path).await.map_err(failed)?;
    let mut file = if call.flags.on("json") {
        if !call.flags.texts("var").is_empty() || !call.flags.texts("var-file").is_empty() {
            return Err(failed(
                "variables cannot be given for a job in JSON: leave -var and -var-file away".to_string(),
            ));
        }
        from_json(path, &text).map_err(failed)?
    } else {
        let inputs = inputs(call).map_err(failed)?;
        let name = if path == "-" { "stdin" } else { path };
        let host = LocalHost { base: base_of(path) };
        from_hcl(name, text, &inputs, &host)
            .map_err(|faults| failed(format!("Error parsing job file from {name}:\n{}", show_faults(call, &faults))))?
    };
    for (flag, key) in [("vault-namespace", "VaultNamespace"), ("consul-namespace", "ConsulNamespace")] {
        if let (Some(value), Some(job)) = (call.flags.text(flag), file.job.as_object_mut()) {
            job.insert(key.to_string(), Value::String(value.to_string()));
        }
    }
    Ok(file)
}

async fn source_text(call: &Call<'_>, path: &str) -> Result<String, String> {
    if path == "-" {
        let bytes = call.input().await.map_err(|f| f.message)?;
        return String::from_utf8(bytes).map_err(|_| "standard input is not text in UTF-8".to_string());
    }
    if path.contains("://") {
        return Err(format!("{path:?} is an address: fetch the file first, or pipe it in with \"-\""));
    }
    let bytes = read_file(path).map_err(|e| {
        let whole = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
        format!("Error getting jobfile from {path:?}: {}", explain(&whole, &e))
    })?;
    String::from_utf8(bytes).map_err(|_| format!("{path:?} is not text in UTF-8"))
}

fn explain(path: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("source path error: stat {}: no such file or directory", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    }
}

fn base_of(path: &str) -> PathBuf {
    let folder = Path::new(path).parent().filter(|p| path != "-" && !p.as_os_str().is_empty());
    folder.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

fn inputs(call: &Call<'_>) -> Result<Inputs, String> {
    let mut files = Vec::new();
    for path in call.flags.texts("var-file") {
        let bytes = read_file(path).map_err(|e| format!("Error reading variable file {path:?}: {e}"))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("Variable file {path:?} is not text in UTF-8"))?;
        files.push((path.clone(), text));
    }
    let mut flags = Vec::new();
    for given in call.flags.texts("var") {
        let Some((name, value)) = given.split_once('=') else {
            return Err(format!("Invalid -var {given:?}: name and value are separated by an equals sign, name=value"));
        };
        flags.push((name.to_string(), value.to_string()));
    }
    let env = call.environment.with_prefix("NOMAD_VAR_").map(|(n, v)| (n.to_string(), v.to_string())).collect();
    Ok(Inputs { env, files, flags, strict: call.flags.on_or("hcl2-strict", true) })
}

/// Reads a job in HCL, or in HCL's JSON form.
///
/// # Errors
/// Every fault of the text.
pub fn from_hcl(name: &str, text: String, inputs: &Inputs, host: &dyn Host) -> Result<JobFile, Diagnostics> {
    let parsed = herdsman_jobspec::parse(name, &text, inputs, host)?;
    let flags: serde_json::Map<String, Value> =
        inputs.flags.iter().map(|(n, v)| (n.clone(), Value::String(v.clone()))).collect();
    let files: Vec<&str> = inputs.files.iter().map(|(_, text)| text.as_str()).collect();
    let submission = serde_json::json!({
        "Source": text, "Format": "hcl2", "VariableFlags": flags, "Variables": files.join("\n"),
    });
    Ok(JobFile { job: parsed.job, submission: Some(submission), warnings: parsed.warnings })
}

/// Reads a job in the JSON of the API.
///
/// # Errors
/// It is no JSON object, or has no id.
pub fn from_json(path: &str, text: &str) -> Result<JobFile, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("Error parsing job file from {path}: {e}"))?;
    let job = match value.get("Job").or_else(|| value.get("job")) {
        Some(inner) if inner.is_object() => inner.clone(),
        _ => value,
    };
    match job.get("ID").and_then(Value::as_str) {
        Some(id) if !id.is_empty() => {
            let submission = serde_json::json!({ "Source": text, "Format": "json" });
            Ok(JobFile { job, submission: Some(submission), warnings: Vec::new() })
        }
        _ => Err(format!("Error parsing job file from {path}: the job has no ID")),
    }
}

/// Faults, each with its line and a caret under the place.
pub fn show_faults(call: &Call<'_>, faults: &Diagnostics) -> String {
    faults.iter().map(|fault| show_fault(call, fault)).collect::<Vec<_>>().join("\n")
}

/// One fault: what it is and where, and below the line of the file.
pub fn show_fault(call: &Call<'_>, fault: &Diagnostic) -> String {
    let colour = if fault.severity == Severity::Error { Colour::Red } else { Colour::Yellow };
    let mut text = call.terminal.paint(colour, &fault.compact());
    // The quoted lines of the long form are those with a gutter.
    for line in fault.render().lines().filter(|l| is_gutter(l)) {
        text.push_str("\n  ");
        text.push_str(line);
    }
    text
}

fn is_gutter(line: &str) -> bool {
    line.trim_start_matches([' ', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']).starts_with('|')
}

/// What a check of a file without an agent comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Works,
    Warns,
    Refused,
}

impl Verdict {
    /// As it is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Works => "works",
            Verdict::Warns => "works, with a warning",
            Verdict::Refused => "refused",
        }
    }
}

/// Whether a text is a job file and no agent configuration: it has a job block, or is JSON with a job in it.
pub fn looks_like_job(text: &str) -> bool {
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        let job = value.get("Job").or_else(|| value.get("job")).unwrap_or(&value);
        return value.get("job").is_some() || job.get("TaskGroups").is_some() || job.get("taskgroups").is_some();
    }
    text.lines().any(opens_job)
}

/// Whether a line opens a job block; its name may stand without quotes.
fn opens_job(line: &str) -> bool {
    let Some(rest) = line.trim_start().strip_prefix("job") else { return false };
    let name = rest.trim_start();
    let quoted = name.starts_with('"') && name.contains('{');
    let bare = name.len() < rest.len()
        && name.split_once('{').is_some_and(|(name, _)| {
            let name = name.trim_end();
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
        });
    quoted || bare
}

/// Checks a job file as an agent would, without one: reading, validation, and what is not acted on, each with its line.
pub fn check(path: &str, text: &str) -> (Verdict, Vec<String>) {
    let api_form = serde_json::from_str::<Value>(text).is_ok_and(|value| value.get("job").is_none());
    if api_form {
        return match from_json(path, text) {
            Ok(file) => judge(&file.job, &[], &|_, message| message.to_string()),
            Err(why) => (Verdict::Refused, vec![why]),
        };
    }
    let env = std::env::vars().filter_map(|(n, v)| Some((n.strip_prefix("NOMAD_VAR_")?.to_string(), v))).collect();
    let inputs = Inputs { env, strict: true, ..Inputs::default() };
    let parsed = match herdsman_jobspec::parse(path, text, &inputs, &LocalHost { base: base_of(path) }) {
        Ok(parsed) => parsed,
        Err(faults) => {
            return (Verdict::Refused, faults.iter().map(|f| f.render().trim_end().to_string()).collect());
        }
    };
    let warnings: Vec<String> = parsed
        .warnings
        .iter()
        .filter(|w| w.summary != "Setting without effect")
        .map(|w| w.render().trim_end().to_string())
        .collect();
    judge(&parsed.job, &warnings, &|pointer, message| {
        let mut fault = parsed.error_at(pointer, message, "");
        fault.severity = Severity::Warning;
        let shown = fault.render();
        shown.trim_end().trim_start_matches("warning: ").to_string()
    })
}

/// Validation and gate of a job in the form of the API. `place` adds the line of a part, by its JSON pointer.
fn judge(job: &Value, warnings: &[String], place: &dyn Fn(&str, &str) -> String) -> (Verdict, Vec<String>) {
    use herdsman_model::{gate, spec, validate};
    let refused = |errors: Vec<String>| (Verdict::Refused, errors);
    let mut canonical = match spec::normalize(job.clone()) {
        Ok(canonical) => canonical,
        Err(errors) => return refused(vec![errors.to_string()]),
    };
    spec::canonicalize(&mut canonical);
    let issues = gate::gate_spec(&canonical);
    let (mut typed, words) = match herdsman_model::job::Job::from_spec_with_words(&canonical) {
        Ok(typed) => typed,
        Err(errors) => return refused(vec![errors.to_string()]),
    };
    // Ids are made where jobs are registered; a check needs none that is unique.
    herdsman_model::job::admit(&mut typed, &mut || "00000000-0000-0000-0000-000000000000".to_string());
    let found = validate::validate_words(&typed, &words, &validate::Limits::default());
    let mut errors = found.errors.clone();
    let mut told: Vec<String> = warnings.to_vec();
    told.extend(found.warnings.iter().cloned());
    for issue in issues {
        let text = place(&issue.pointer, &issue.reason);
        match issue.severity {
            gate::Severity::Refuse => errors.push(text),
            gate::Severity::Warn => told.push(text),
        }
    }
    let verdict = match (errors.is_empty(), told.is_empty()) {
        (false, _) => Verdict::Refused,
        (true, false) => Verdict::Warns,
        (true, true) => Verdict::Works,
    };
    errors.extend(told);
    (verdict, errors)
}

/// Files and randomness of this machine, for the functions of job files.
pub struct LocalHost {
    /// The folder of the job file.
    pub base: PathBuf,
}

impl LocalHost {
    fn place(&self, path: &str) -> PathBuf {
        match path.strip_prefix("~/").zip(self.home()) {
            Some((rest, home)) => Path::new(&home).join(rest),
            None => self.base.join(path),
        }
    }
}

impl Host for LocalHost {
    fn random(&self, bytes: &mut [u8]) {
        use std::io::Read;
        let filled = std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(bytes));
        if filled.is_err() {
            // No device: the hasher's random keys are the other source of the standard library.
            for byte in bytes.iter_mut() {
                use std::hash::{BuildHasher, Hasher};
                *byte = std::hash::RandomState::new().build_hasher().finish().to_le_bytes()[0];
            }
        }
    }

    fn files(&self) -> Option<&dyn Files> {
        Some(self)
    }
}

impl Files for LocalHost {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        read_file(self.place(path)).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => format!("no file exists at {path}"),
            _ => format!("cannot read {path}: {e}"),
        })
    }

    fn exists(&self, path: &str) -> Result<bool, String> {
        match std::fs::metadata(self.place(path)) {
            Ok(found) if found.is_file() => Ok(true),
            Ok(_) => Err(format!("{path} is not a regular file")),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(format!("cannot look at {path}: {e}")),
        }
    }

    fn walk(&self, path: &str) -> Result<Vec<String>, String> {
        let top = self.place(path);
        let mut found = Vec::new();
        let mut open = vec![(top, String::new(), 0)];
        while let Some((folder, prefix, depth)) = open.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let relative = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && depth < MAX_WALK_DEPTH => {
                        open.push((entry.path(), relative, depth + 1))
                    }
                    Ok(kind) if kind.is_file() => found.push(relative),
                    _ => {}
                }
                if found.len() > MAX_WALK_FILES {
                    return Err(format!("more than {MAX_WALK_FILES} files below {path}"));
                }
            }
        }
        found.sort();
        Ok(found)
    }

    fn absolute(&self, path: &str) -> Result<String, String> {
        let whole = std::path::absolute(self.place(path)).map_err(|e| format!("cannot resolve {path}: {e}"))?;
        whole.into_os_string().into_string().map_err(|_| format!("the whole path of {path} is not text in UTF-8"))
    }

    fn home(&self) -> Option<String> {
        std::env::var("HOME").ok()
    }
}

#[cfg(test)]
mod tests {
    use super::looks_like_job;

    #[test]
    fn a_job_is_told_from_configuration() {
        for job in
            ["job \"a\" {\n}\n", "job a-b {\n}\n", "  job\t\"a\"{", "{\"job\": {}}", "{\"Job\": {\"TaskGroups\": []}}"]
        {
            assert!(looks_like_job(job), "{job}");
        }
        for other in ["jobs {\n}\n", "job = {\n}\n", "job {\n}\n", "server {\n}\n", "job_gc_interval = \"{\"\n", "{}"] {
            assert!(!looks_like_job(other), "{other}");
        }
    }
}
