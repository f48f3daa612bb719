//! Templates of a task: rendered before its first start, and again before a restart where the restart policy says so.
//!
//! The data they can reach (environment, files, time) does not change while a task runs, so nothing is watched. Variables
//! of `env` templates are read from the rendered files, also when those are of an earlier agent.
//! Rules: `compat/lifecycle.md` section 10.

use super::dir::AllocDir;
use super::hooks::{Failure, FileHooks, failed};
use super::place::locate;
use herdsman_model::{Task, TaskFact, Template as Block};
use herdsman_template::task::{Source, TaskFunctions};
use herdsman_template::{MAX_TEXT_BYTES, Missing, Options, Template};
use serde_json::Value;
use std::collections::BTreeMap;

/// Largest rendered file that is read as variables, bytes.
const MAX_ENV_BYTES: usize = 1024 * 1024;
/// Permissions of a rendered file that names none.
const DEFAULT_PERMS: u32 = 0o644;

/// Renders every template of a task, or takes what was rendered before; gives the variables of `env` templates.
pub fn render_all(
    dir: &AllocDir,
    task: &Task,
    files: &FileHooks,
    now: i64,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut vars = BTreeMap::new();
    for block in task.templates.iter() {
        let work = Work { dir, task, files, block, now };
        if files.render {
            work.render()?;
        }
        if block.envvars {
            vars.extend(work.variables()?);
        }
    }
    Ok(vars)
}

/// The task fails for good.
fn fatal(why: String) -> Failure {
    (TaskFact::Killing { reason: format!("Template failed: {why}"), kill_timeout: 0, fails_task: true }, false)
}

/// Something of the host is in the way; another attempt may do better.
fn hindered(what: &str, error: impl std::fmt::Display) -> Failure {
    (failed("template", format!("{what}: {error}")), true)
}

/// One template.
struct Work<'a> {
    dir: &'a AllocDir,
    task: &'a Task,
    files: &'a FileHooks,
    block: &'a Block,
    now: i64,
}

impl Work<'_> {
    fn render(&self) -> Result<(), Failure> {
        let (name, text) = self.text()?;
        let missing = if self.block.err_missing_key { Missing::Error } else { Missing::NoValue };
        let functions = TaskFunctions::new(self);
        let or =
            |text: &'_ str, default: &'static str| if text.is_empty() { default.to_string() } else { text.to_string() };
        let (left, right) = (or(&self.block.left_delim, "{{"), or(&self.block.right_delim, "}}"));
        let options = Options { name: "", left: &left, right: &right, missing, functions: &functions };
        let template = Template::parse(&text, options).map_err(|e| fatal(format!("{name}: parse: {e}")))?;
        let rendered = template.render(&Value::Null).map_err(|e| fatal(format!("{name}: execute: {e}")))?;
        let target = locate(self.dir, &self.task.name, &self.destination()).map_err(fatal)?;
        let owner = (id(self.block.uid, "uid")?, id(self.block.gid, "gid")?);
        let path = target.path();
        target.write(rendered.as_bytes(), self.perms()?, owner).map_err(|e| hindered(&path.display().to_string(), e))
    }

    /// The name of the template in messages, and its text.
    fn text(&self) -> Result<(String, String), Failure> {
        if self.block.source_path.is_empty() {
            return Ok(("(dynamic)".to_string(), self.block.embedded_tmpl.clone()));
        }
        let source = self.files.host.fill(&self.block.source_path);
        let spot = locate(self.dir, &self.task.name, &source).map_err(fatal)?;
        let bytes = spot.read(MAX_TEXT_BYTES).map_err(|e| fatal(format!("source {source}: {e}")))?;
        let text = String::from_utf8(bytes).map_err(|_| fatal(format!("source {source}: it is no UTF-8 text")))?;
        Ok((source, text))
    }

    fn destination(&self) -> String {
        self.files.host.fill(&self.block.dest_path)
    }

    fn perms(&self) -> Result<u32, Failure> {
        match self.block.perms.as_str() {
            "" => Ok(DEFAULT_PERMS),
            text => u32::from_str_radix(text, 8).map_err(|_| fatal(format!("perms {text:?} is no octal number"))),
        }
    }

    /// The variables in the rendered file.
    fn variables(&self) -> Result<BTreeMap<String, String>, Failure> {
        let target = locate(self.dir, &self.task.name, &self.destination()).map_err(fatal)?;
        let path = target.path().display().to_string();
        let bytes = target.read(MAX_ENV_BYTES).map_err(|e| hindered(&path, e))?;
        let text = String::from_utf8(bytes).map_err(|_| fatal(format!("{path}: it is no UTF-8 text")))?;
        variables(&text).map_err(|why| fatal(format!("error parsing env template {path}: {why}")))
    }
}

fn id(number: Option<i64>, what: &str) -> Result<Option<u32>, Failure> {
    match number {
        // -1 is the peer's word for leaving it.
        None | Some(-1) => Ok(None),
        Some(n) => u32::try_from(n).map(Some).map_err(|_| fatal(format!("{what} {n} is no id"))),
    }
}

impl Source for Work<'_> {
    fn env(&self, name: &str) -> Option<String> {
        self.files.env.vars.get(name).cloned()
    }

    fn file(&self, path: &str) -> Result<String, String> {
        let spot = locate(self.dir, &self.task.name, path).map_err(|_| format!("'{path}' is outside of sandbox"))?;
        let bytes = spot.read(MAX_TEXT_BYTES).map_err(|error| format!("{path}: {error}"))?;
        String::from_utf8(bytes).map_err(|_| format!("{path}: it is no UTF-8 text"))
    }

    fn services(&self) -> Result<Vec<Value>, String> {
        Err("nomadServices: services of other nodes are not read by nodes yet; pass the address by env".into())
    }

    fn service(&self, name: &str) -> Result<Vec<Value>, String> {
        Err(format!(
            "nomadService: instances of {name:?} on other nodes are not read by nodes yet; pass the address by env"
        ))
    }

    fn now(&self) -> i64 {
        self.now
    }
}

/// `KEY=VALUE` lines: comments, `export`, single and double quotes.
fn variables(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut vars = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let at = number.saturating_add(1);
        let (key, value) = line.split_once('=').ok_or_else(|| format!("line {at}: no \"=\""))?;
        let key = key.trim();
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
        if key.is_empty() || !key.chars().all(plain) || key.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("line {at}: {key:?} is no name of a variable"));
        }
        vars.insert(key.to_string(), value_of(value.trim()).map_err(|why| format!("line {at}: {why}"))?);
    }
    Ok(vars)
}

fn value_of(text: &str) -> Result<String, String> {
    if let Some(rest) = text.strip_prefix('\'') {
        let (inside, _) = rest.split_once('\'').ok_or("a single quote is not closed")?;
        return Ok(inside.to_string());
    }
    let Some(rest) = text.strip_prefix('"') else {
        let plain = text.split_once(" #").map_or(text, |(before, _)| before);
        return Ok(plain.trim_end().to_string());
    };
    let mut out = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next() {
            None => return Err("a double quote is not closed".into()),
            Some('"') => return Ok(out),
            Some('\\') => match chars.next() {
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                Some(c @ ('"' | '\\' | '\'' | '$')) => out.push(c),
                Some(c) => out.extend(['\\', c]),
                None => return Err("a double quote is not closed".into()),
            },
            Some(c) => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::TaskEnv;
    use herdsman_model::AllocId;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn block(data: &str, destination: &str) -> Block {
        Block { embedded_tmpl: data.into(), dest_path: destination.into(), ..Block::default() }
    }

    fn task(templates: Vec<Block>) -> Task {
        Task { name: "web".into(), templates: templates.into(), ..Task::default() }
    }

    struct Fixture {
        _temp: tempfile::TempDir,
        dir: AllocDir,
        files: FileHooks,
    }

    fn fixture() -> Fixture {
        let temp = tempfile::tempdir().unwrap();
        let dir = AllocDir::new(temp.path(), AllocId([7; 16]));
        dir.build().unwrap();
        dir.build_task("web", 0).unwrap();
        let mut host = TaskEnv::default();
        let mut set = |key: &str, path: std::path::PathBuf| host.vars.insert(key.into(), path.to_str().unwrap().into());
        set("NOMAD_ALLOC_DIR", dir.shared());
        set("NOMAD_SECRETS_DIR", dir.task("web").join("secrets"));
        let mut env = TaskEnv::default();
        env.vars.insert("NOMAD_ALLOC_DIR".into(), "/alloc".into());
        Fixture { _temp: temp, dir, files: FileHooks { env, host, fetch: true, render: true } }
    }

    impl Fixture {
        fn render(&self, templates: Vec<Block>) -> Result<BTreeMap<String, String>, Failure> {
            render_all(&self.dir, &task(templates), &self.files, 0)
        }

        fn read(&self, path: &str) -> String {
            std::fs::read_to_string(self.dir.root.join(path)).unwrap()
        }
    }

    #[test]
    fn nomad_26880_equal_templates_are_all_written() {
        let f = fixture();
        let text = "{{ env \"NOMAD_ALLOC_DIR\" }}";
        let shared = Block { perms: "600".into(), ..block(text, "${NOMAD_ALLOC_DIR}/data/b") };
        f.render(vec![block(text, "local/a"), shared, block(text, "${NOMAD_SECRETS_DIR}/c")]).unwrap();
        for path in ["web/local/a", "alloc/data/b", "web/secrets/c"] {
            assert_eq!(f.read(path), "/alloc", "{path}");
        }
        let mode = |path: &str| std::fs::metadata(f.dir.root.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("web/local/a"), mode("alloc/data/b")), (0o644, 0o600));
    }

    #[test]
    fn variables_come_from_env_templates_also_later() {
        let mut f = fixture();
        let env = Block {
            envvars: true,
            ..block("A=1\n# no\nexport B=\"x\\ny\" \nC='q # r'\nD=plain # c\nE=\n", "secrets/e")
        };
        let wanted: BTreeMap<String, String> = [("A", "1"), ("B", "x\ny"), ("C", "q # r"), ("D", "plain"), ("E", "")]
            .map(|(k, v)| (k.into(), v.into()))
            .into();
        assert_eq!(f.render(vec![env.clone()]).unwrap(), wanted);
        f.files.render = false;
        let other = Block { embedded_tmpl: "{{ broken".into(), ..env };
        assert_eq!(f.render(vec![other]).unwrap(), wanted, "what was rendered counts");
        for bad in ["novalue", "=x", "1A=x", "A=\"open", "A B=1"] {
            assert!(variables(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn failures_end_the_task_and_say_why() {
        let f = fixture();
        let reason = |blocks: Vec<Block>| match f.render(blocks).unwrap_err() {
            (TaskFact::Killing { reason, fails_task: true, .. }, false) => reason,
            other => panic!("{other:?}"),
        };
        let missing = Block { err_missing_key: true, ..block("{{ .nokey.sub }}", "local/x") };
        assert_eq!(
            reason(vec![missing]),
            "Template failed: (dynamic): execute: template: :1:9: executing \"\" at <.nokey.sub>: nil data; no entry for key \"nokey\""
        );
        assert!(reason(vec![block("{{ nomadService \"web\" }}", "local/x")]).contains("nomadService: instances of"));
        assert!(reason(vec![block("x", "../../../etc/x")]).contains("escapes the directories of task \"web\""));
        let source = Block { source_path: "/etc/passwd".into(), ..block("", "local/x") };
        assert!(reason(vec![source]).contains("source /etc/passwd"), "it lies below the task's directory");
        assert!(
            reason(vec![block("{{ file \"../../other\" }}", "local/x")])
                .contains("'../../other' is outside of sandbox")
        );
        let outside = f.dir.root.parent().unwrap().join("outside");
        std::fs::write(&outside, "secret").unwrap();
        symlink(&outside, f.dir.root.join("web/local/link")).unwrap();
        assert!(reason(vec![block("{{ file \"local/link\" }}", "local/x")]).contains("error calling file"));
    }

    #[test]
    fn sources_are_read_from_the_tasks_directory() {
        let f = fixture();
        std::fs::write(f.dir.root.join("web/local/in.tpl"), "[[ file \"local/data\" ]]").unwrap();
        std::fs::write(f.dir.root.join("web/local/data"), "text").unwrap();
        let source = Block {
            source_path: "local/in.tpl".into(),
            dest_path: "local/sub/out".into(),
            left_delim: "[[".into(),
            right_delim: "]]".into(),
            ..Block::default()
        };
        f.render(vec![source]).unwrap();
        assert_eq!(f.read("web/local/sub/out"), "text");
    }
}
