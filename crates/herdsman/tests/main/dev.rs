//! `run -dev`: exit statuses, and what is shown.

use crate::support::{ONCE, PATIENCE, binary, herdsman, stderr, stdout, task, write_job};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The examples of the repository.
fn example(name: &str) -> String {
    format!("{}/../../examples/{name}.nomad.hcl", env!("CARGO_MANIFEST_DIR"))
}

/// A job file on an agent of its own, its output piped.
fn start(job: &str) -> Child {
    Command::new(binary()).args(["run", "-dev", job]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Ctrl-C.
fn interrupt(child: &Child) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::INT).unwrap();
}

#[test]
fn every_kind_of_lifecycle_task_runs_in_its_place() {
    let output = herdsman(&["run", "-dev", &example("lifecycle")]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}\n{}", stderr(&output));
    let place = |line: &str| text.find(line).unwrap_or_else(|| panic!("{line:?} is not in\n{text}"));
    let started = |task: &str| place(&format!("{task:<9} * Started"));
    let ended = |task: &str| place(&format!("{task:<9} * Terminated"));
    assert!(ended("prepare") < started("main"));
    assert!(started("ship-logs") < started("main"));
    assert!(started("main") < started("announce"));
    assert!(ended("main") < started("clean-up"));
    assert!(ended("ship-logs") < started("clean-up"));
    place("| the answer is 42");
    place("| cleaned up");
}

#[test]
fn nomad_10569_a_file_of_variables_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(folder.path(), "vars", "job \"vars\" {\n}\n");
    for words in [&["job", "run"][..], &["job", "plan"], &["job", "validate"], &["run", "-dev"]] {
        let file = "-var-file=does-not-exist.hcl";
        let refused = herdsman(&[words, &[file, &job]].concat());
        let (code, said) = (refused.status.code(), stderr(&refused));
        assert!(matches!(code, Some(1 | 2 | 255)), "{words:?}: {code:?}");
        assert!(said.contains("does-not-exist.hcl") && !said.contains("panicked"), "{words:?}: {said}");
    }
}

#[test]
fn a_failed_batch_job_still_cleans_up_and_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(
        folder.path(),
        "failing",
        &format!(
            "job \"failing\" {{\n type = \"batch\"\n group \"g\" {{\n{ONCE}{}{}}}\n}}\n",
            task("main", "", "/bin/false", &[]),
            task("clean-up", "poststop", "/bin/echo", &["cleaned up"])
        ),
    );
    let output = herdsman(&["run", "-dev", &job]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("| cleaned up"), "{}", stdout(&output));
}

#[test]
fn a_bad_file_exits_with_2_and_shows_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(folder.path(), "bad", "job \"x\" {\n  grup \"g\" {\n  }\n}\n");
    let output = herdsman(&["run", "-dev", &job]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("bad.nomad.hcl:2") && text.contains("Did you mean \"group\"?"), "{text}");
    let missing = herdsman(&["run", "-dev", "no-such-file.hcl"]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn a_service_ends_with_0_after_an_interrupt_once_it_was_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(
        folder.path(),
        "service",
        &format!(
            "job \"service\" {{\n group \"g\" {{\n update {{\n min_healthy_time = \"100ms\"\n}}\n{}{}}}\n}}\n",
            task("main", "", "/bin/sleep", &["3600"]),
            task("clean-up", "poststop", "/bin/echo", &["cleaned up"])
        ),
    );
    let mut child = start(&job);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut all = Vec::new();
    let begin = Instant::now();
    for line in lines.by_ref() {
        let line = line.unwrap();
        let runs = line.contains("this node: running");
        all.push(line);
        assert!(begin.elapsed() < PATIENCE, "{all:?}");
        if runs {
            break;
        }
    }
    // A moment more than the time after which it counts as healthy.
    std::thread::sleep(std::time::Duration::from_secs(2));
    interrupt(&child);
    all.extend(lines.map(Result::unwrap));
    assert_eq!(child.wait().unwrap().code(), Some(0), "{all:#?}");
    assert!(all.iter().any(|l| l.ends_with("| cleaned up")), "{all:#?}");
}

/// Interrupts a run twice, once poststop runs; gives its exit status and everything it printed.
fn interrupt_twice(job: &str) -> (Option<i32>, Vec<String>) {
    let mut child = start(job);
    let mut all = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains("this node: running") && all.iter().all(|l: &String| !l.contains("==>")) {
            interrupt(&child);
        }
        if line.ends_with("| cleaning up") {
            interrupt(&child);
        }
        all.push(line);
    }
    (child.wait().unwrap().code(), all)
}

#[test]
fn a_second_interrupt_ends_poststop_which_does_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(
        folder.path(),
        "stalling",
        &format!(
            "job \"stalling\" {{\n group \"g\" {{\n{}{}}}\n}}\n",
            task("main", "", "/bin/sleep", &["3600"]),
            task("clean-up", "poststop", "/bin/sh", &["-c", "echo cleaning up; sleep 3600"])
        ),
    );
    let (_, all) = interrupt_twice(&job);
    assert_eq!(all.iter().filter(|l| l.ends_with("| cleaning up")).count(), 1, "{all:#?}");
    assert!(all.iter().any(|l| l.contains("failed: clean-up")), "{all:#?}");
}

/// The temporary directory that a development agent uses: the one its tasks were started in.
fn directory_of(pid: &str) -> std::path::PathBuf {
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    cwd.ancestors()
        .find(|d| d.file_name().is_some_and(|n| n.to_string_lossy().starts_with("herdsman-dev-")))
        .unwrap()
        .into()
}

/// Nobody starts a development agent again, so a killed one leaves neither tasks nor its directory.
#[test]
fn a_killed_run_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(
        folder.path(),
        "killed",
        &format!(
            "job \"killed\" {{\n group \"g\" {{\n{}{}}}\n}}\n",
            task("polite", "", "/bin/sh", &["-c", "echo pid $$; exec sleep 3600"]),
            task("deaf", "", "/bin/sh", &["-c", "trap '' INT; echo pid $$; while :; do sleep 1; done"])
        ),
    );
    let mut child = start(&job);
    let mut pids = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        if let Some((_, pid)) = line.unwrap().split_once("| pid ") {
            pids.push(pid.trim().to_string());
        }
        if pids.len() == 2 {
            break;
        }
    }
    let directory = directory_of(&pids[0]);
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = |pid: &String| !std::path::Path::new(&format!("/proc/{pid}")).exists();
    crate::support::eventually("nothing is left", || (pids.iter().all(gone) && !directory.exists()).then_some(()));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&*directory.to_string_lossy()), "{mounts}");
}
