//! Compiles the shim program (`program/main.rs`) and leaves it for
//! `include_bytes!`.
//!
//! The program is no cargo dependency: it has to be a static, non-relocatable
//! executable whatever flags the rest of the build uses, because each running
//! task keeps one copy of it and every relocated page would be private memory.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=program");
    println!("cargo:rerun-if-changed=src/wire.rs");
    println!("cargo:rerun-if-changed=src/messages.rs");
    println!("cargo:rerun-if-changed=src/codec.rs");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("shim-program.bin");
    let os = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if os != "linux" || !["x86_64", "aarch64"].contains(&arch.as_str()) {
        // Elsewhere only the command line is built; starting a task there is
        // refused at run time because the embedded program is empty.
        fs::write(&out, b"").expect("OUT_DIR is writable");
        return;
    }
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let mut command = Command::new(rustc);
    command
        .args(["--edition", "2024", "--crate-name", "herdsman_shim_program", "--crate-type", "bin"])
        .args(["--target", &target])
        .args(["-C", "target-feature=+crt-static", "-C", "relocation-model=static"])
        .args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "strip=symbols"])
        .args(["-C", "codegen-units=1", "-C", "lto=fat", "-C", "link-arg=-Wl,-z,norelro"])
        .args(["--cap-lints", "warn"])
        .arg("-o")
        .arg(&out)
        .arg("program/main.rs");
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut flag = std::ffi::OsString::from("linker=");
        flag.push(linker);
        command.arg("-C").arg(flag);
    }
    let status = command.status().expect("the compiler that runs this build can be run again");
    assert!(status.success(), "compiling program/main.rs failed: {status}");
}
