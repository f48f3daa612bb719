//! The embedded shim program.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::wire;

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim-program.bin"));

/// Name of this program's zygote. Another build of the program is another
/// zygote, so shims of both live side by side after an upgrade.
pub(crate) fn zygote_name() -> &'static str {
    // Summing up the program takes over a millisecond, so only once.
    static NAME: LazyLock<String> =
        LazyLock::new(|| format!("zygote-{}-{:016x}", wire::VERSION, wire::checksum(PROGRAM)));
    &NAME
}

/// An executable copy in memory that nobody can change any more.
fn in_memory() -> io::Result<std::fs::File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match memfd_create("herdsman-shim", flags | MemfdFlags::EXEC) {
        // Linux before 6.3 does not know the flag and needs none.
        Err(rustix::io::Errno::INVAL) => memfd_create("herdsman-shim", flags)?,
        other => other?,
    };
    let mut file = std::fs::File::from(fd);
    file.write_all(PROGRAM)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// For hosts that forbid running anything from memory: a file of our own.
fn on_disk(run_root: &Path) -> io::Result<PathBuf> {
    let path = run_root.join(format!("{}.bin", zygote_name()));
    let fresh = run_root.join(format!("{}.bin.{}", zygote_name(), std::process::id()));
    std::fs::write(&fresh, PROGRAM)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o700))?;
    std::fs::rename(&fresh, &path)?;
    Ok(path)
}

/// Starts a zygote and waits until it listens. Blocks.
pub(crate) fn start_zygote(run_root: &Path, control_files: &[PathBuf]) -> io::Result<()> {
    if PROGRAM.is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "tasks can only be started on Linux x86_64 or aarch64"));
    }
    let run = |program: &Path| {
        let mut command = Command::new(program);
        std::os::unix::process::CommandExt::arg0(&mut command, "herdsman-zygote");
        command.arg(run_root).arg(zygote_name()).args(control_files).env_clear();
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn()
    };
    let memory = in_memory();
    let spawned = match &memory {
        Ok(file) => run(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))),
        Err(e) => Err(io::Error::new(e.kind(), e.to_string())),
    };
    let mut child = match spawned {
        Ok(child) => child,
        Err(_) => run(&on_disk(run_root)?)?,
    };
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line)?;
    }
    child.wait()?; // The first of three processes; it ends at once.
    match line.trim() {
        "ready" => Ok(()),
        "" => Err(io::Error::other("the zygote ended without a word")),
        other => Err(io::Error::other(other.to_owned())),
    }
}
