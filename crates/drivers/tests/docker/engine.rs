//! The container engine the tests use, and an image for them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use herdsman_drivers::{DockerDriver, DockerOptions, TaskSpec};
use serde_json::{Value, json};

use crate::support::spec_in;

/// The tests' image: a static busybox.
pub const IMAGE: &str = "herdsman-test/busybox:1";

/// Runs the engine's own client.
pub fn docker(args: &[&str]) -> Result<String, String> {
    let output = Command::new("docker").args(args).stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A tar of a root with busybox, and a file so that it is like no other.
pub fn root_tar(mark: &str) -> Vec<u8> {
    const TOOLS: &str = "sh sleep cat echo env seq true kill stty nc wc head tr dd ls mkdir yes test trap";
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|p| Path::new(p).exists());
    std::fs::copy(busybox.expect("busybox-static is installed"), bin.join("busybox")).unwrap();
    for tool in TOOLS.split(' ') {
        std::os::unix::fs::symlink("busybox", bin.join(tool)).unwrap();
    }
    std::fs::write(dir.path().join("mark"), mark).unwrap();
    std::fs::create_dir(dir.path().join("tmp")).unwrap();
    let tar = Command::new("tar").arg("-C").arg(dir.path()).args(["-c", "."]).output().unwrap();
    assert!(tar.status.success());
    tar.stdout
}

fn import(name: &str) {
    let mut child =
        Command::new("docker").args(["import", "-", name]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&root_tar("imported")).unwrap();
    assert!(child.wait().unwrap().success(), "docker import");
}

/// Whether there is an engine. Where it is required its absence fails the test.
#[allow(clippy::print_stdout)] // Tests are to say that they were left out.
pub fn ready() -> bool {
    static READY: OnceLock<Result<(), String>> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        docker(&["info"])?;
        if docker(&["image", "inspect", IMAGE]).is_err() {
            import(IMAGE);
        }
        Ok(())
    });
    if let Err(why) = ready {
        assert!(
            std::env::var("HERDSMAN_REQUIRE_DOCKER").as_deref() != Ok("1"),
            "the tests of the docker driver need a container engine (install docker.io and start dockerd): {why}"
        );
        println!("left out, no container engine: {why}");
    }
    ready.is_ok()
}

/// A node with the driver, in a directory of its own.
pub struct Node {
    pub dir: tempfile::TempDir,
    pub options: DockerOptions,
}

impl Node {
    pub fn new() -> Node {
        let dir = tempfile::Builder::new().prefix("hd").tempdir().unwrap();
        let id = dir.path().file_name().unwrap().to_string_lossy().into_owned();
        let mut options = DockerOptions::new(id, dir.path().join("data"), dir.path().join("state"));
        options.gc_image_delay = Duration::from_secs(3600);
        Node { dir, options }
    }
    /// A new driver, as a new agent would make it.
    pub fn driver(&self) -> DockerDriver {
        DockerDriver::new(self.options.clone()).unwrap()
    }
    pub fn spec(&self, task: &str, config: Value) -> TaskSpec {
        spec_in(self.dir.path(), task, config)
    }
    /// A script in the tests' image.
    pub fn script(&self, task: &str, script: &str) -> TaskSpec {
        self.spec(task, shell(script))
    }
    pub fn log(&self, file: &str) -> String {
        std::fs::read_to_string(self.logs().join(file)).unwrap_or_default()
    }
    pub fn logs(&self) -> std::path::PathBuf {
        self.dir.path().join("alloc-1/alloc/logs")
    }
    /// Containers of this node.
    pub fn containers(&self) -> Vec<String> {
        let filter = format!("label=herdsman.node_id={}", self.options.node_id);
        let list = docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]).unwrap_or_default();
        list.split_ascii_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Whatever a failed test left.
        for container in self.containers() {
            let _ = docker(&["rm", "-f", &container]);
        }
    }
}

pub fn shell(script: &str) -> Value {
    json!({"image": IMAGE, "command": "/bin/sh", "args": ["-c", script]})
}
