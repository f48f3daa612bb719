//! Making the task's process and replacing its program. With `sys`, the only
//! file of the program with `unsafe`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::os::fd::RawFd;

use crate::sys::{Errno, Sys, cstr, exit};

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const SYS_CLONE3: c_long = 435;

/// `struct clone_args` as of Linux 5.7.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

unsafe extern "C" {
    fn execve(path: *const c_char, argv: *const *const c_char, env: *const *const c_char) -> c_int;
}

/// Null-terminated pointers to C strings, as exec wants them.
pub struct StringArray {
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl StringArray {
    pub fn new(items: &[Vec<u8>]) -> Sys<StringArray> {
        let strings = items.iter().map(|i| cstr(i)).collect::<Sys<Vec<_>>>()?;
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(StringArray { _strings: strings, pointers })
    }
}

/// Replaces the program; returns only on failure.
pub fn exec(path: &CStr, argv: &StringArray, env: &StringArray) -> Errno {
    // SAFETY: the arrays are null-terminated and their strings are alive.
    unsafe { execve(path.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    Errno::last()
}

/// Bytes of stack for a child that shares our memory; only what it touches
/// becomes real, and it is given back.
const CHILD_STACK: usize = 256 << 10;

type Entry = extern "C" fn(*mut c_void) -> !;

/// Runs `body` in a child that shares this memory while we wait, until it
/// calls exec or exits (`vfork`), so that nothing has to be copied. It is born
/// in the namespaces of `flags` and in the unified cgroup `cgroup`, if any.
pub fn spawn_sharing<F: FnMut()>(flags: u64, cgroup: Option<RawFd>, body: &mut F) -> Sys<i32> {
    extern "C" fn enter<F: FnMut()>(arg: *mut c_void) -> ! {
        // SAFETY: `arg` is the `body` of the waiting parent.
        let body = unsafe { &mut *arg.cast::<F>() };
        body();
        exit(127)
    }
    let mut stack: Vec<u128> = Vec::with_capacity(CHILD_STACK / size_of::<u128>());
    let mut args = CloneArgs {
        flags: CLONE_VM | CLONE_VFORK | flags,
        exit_signal: 17,
        stack: stack.as_mut_ptr() as u64,
        stack_size: CHILD_STACK as u64,
        ..CloneArgs::default()
    };
    let mut size = 80; // Without `cgroup`: Linux 5.3 to 5.6 know no more.
    if let Some(fd) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(fd.cast_unsigned());
        size = size_of::<CloneArgs>();
    }
    let entry: Entry = enter::<F>;
    // SAFETY: the child runs `entry` on its own stack and never returns from
    // it; until then we are suspended, so nothing is used by both at once.
    let result = unsafe { raw_clone3(&args, size, entry, std::ptr::from_mut(body).cast()) };
    if result < 0 { Err(Errno(i32::try_from(-result).unwrap_or(5))) } else { Ok(i32::try_from(result).unwrap_or(0)) }
}

#[cfg(target_arch = "x86_64")]
unsafe fn raw_clone3(args: &CloneArgs, size: usize, entry: Entry, arg: *mut c_void) -> isize {
    let result: isize;
    // SAFETY: see the caller. The stack is 16 byte aligned, as a call wants it.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") SYS_CLONE3 as isize => result,
            in("rdi") std::ptr::from_ref(args),
            in("rsi") size,
            in("r12") arg,
            in("r13") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
unsafe fn raw_clone3(args: &CloneArgs, size: usize, entry: Entry, arg: *mut c_void) -> isize {
    let result: isize;
    // SAFETY: see the caller. The stack is 16 byte aligned, as a call wants it.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x20",
            "blr x21",
            "brk #1",
            "2:",
            in("x8") SYS_CLONE3,
            inlateout("x0") std::ptr::from_ref(args) as isize => result,
            in("x1") size,
            in("x20") arg,
            in("x21") entry,
        );
    }
    result
}
