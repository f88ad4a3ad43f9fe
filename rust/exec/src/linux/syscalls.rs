//! The system calls that have no safe interface. No other module of this crate has unsafe code.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::Uid;

use crate::kernel::Exit;
use crate::types::{Pid, Usage, WaitStatus};

const STACK_BYTES: usize = 64 << 10;

/// The stack of a child until it executes its program.
#[derive(Debug)]
pub(super) struct ChildStack(Box<[MaybeUninit<u128>]>);

impl ChildStack {
    pub(super) fn new() -> Self {
        Self(Box::new_uninit_slice(STACK_BYTES / size_of::<u128>()))
    }
}

/// A null-terminated array of strings, for `execve`.
pub(super) struct StringArray<'a> {
    pointers: Vec<*const c_char>,
    // The pointers refer to strings of this lifetime.
    strings: PhantomData<&'a CStr>,
}

impl<'a> StringArray<'a> {
    pub(super) fn new(strings: impl Iterator<Item = &'a CStr>) -> Self {
        let pointers = strings.map(CStr::as_ptr);
        Self {
            pointers: pointers.chain([ptr::null()]).collect(),
            strings: PhantomData,
        }
    }
}

/// Work that a child does before it executes a program.
pub(super) trait ChildWork {
    /// Runs in the child, which shares the memory of the suspended parent. It must neither allocate nor panic, and
    /// returns only if it fails.
    fn run(&mut self);
}

/// Starts a child that shares this process's memory until it executes a program or exits; until then this process is
/// suspended. The child has its own descriptors, working directory, umask and signal mask, and is in the cgroup of the
/// open directory from its beginning.
///
/// Every signal must be blocked, so that no handler runs in the child.
pub(super) fn spawn<W: ChildWork>(
    stack: &mut ChildStack,
    cgroup: Option<BorrowedFd<'_>>,
    work: &mut W,
) -> io::Result<Pid> {
    extern "C" fn child<W: ChildWork>(work: *mut c_void) -> c_int {
        // SAFETY: `work` is the exclusive reference passed to `clone` below, which outlives the child's use of it: the
        // parent is suspended until the child has executed a program or exited.
        let work = unsafe { &mut *work.cast::<W>() };
        work.run();
        // SAFETY: ends the child at once, without destructors of the memory that it shares.
        unsafe { libc::_exit(127) }
    }

    let work = ptr::from_mut(work).cast::<c_void>();
    if let Some(cgroup) = cgroup {
        // SAFETY: `child` is passed what it expects, which outlives its use of it: see there.
        return unsafe { spawn_into(stack, cgroup, child::<W>, work) };
    }
    let top = stack.0.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is writable memory that grows down from `top`, aligned to 16 bytes, used by no other child,
    // since this process is suspended while the child uses it. The child allocates nothing and takes no lock
    // (`ChildWork`), and does not return into frames of the parent.
    let pid = unsafe { libc::clone(child::<W>, top.cast(), flags, work) };
    match u32::try_from(pid) {
        Ok(pid) => Ok(Pid(pid)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The arguments of `clone3`.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
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

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// As [`spawn`], by `clone3`, for which the C library has no function: only it puts a child into a cgroup without moving
/// it there, which suspends all processes of the machine that fork.
///
/// # Safety
///
/// `child` does not return, and may be called once with `work`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
unsafe fn spawn_into(
    stack: &mut ChildStack,
    cgroup: BorrowedFd<'_>,
    child: extern "C" fn(*mut c_void) -> c_int,
    work: *mut c_void,
) -> io::Result<Pid> {
    #[expect(clippy::cast_sign_loss)]
    let arguments = CloneArguments {
        flags: (libc::CLONE_VM | libc::CLONE_VFORK) as u64 | CLONE_INTO_CGROUP,
        exit_signal: libc::SIGCHLD as u64,
        stack: stack.0.as_mut_ptr() as u64,
        stack_size: size_of_val(&*stack.0) as u64,
        cgroup: cgroup.as_raw_fd() as u64,
        ..CloneArguments::default()
    };
    let result: i64;
    // SAFETY: the kernel reads `arguments`, which live until the call returns. In the parent, the call changes the
    // registers that are named, and nothing else: the child runs on its own stack, whose top is aligned to 16 bytes, and
    // calls `child`, which does not return. As for `clone`, the parent is suspended meanwhile.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") &raw const arguments,
            in("rsi") size_of::<CloneArguments>(),
            in("r12") child,
            in("r13") work,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x21",
            "blr x20",
            "brk 1",
            "2:",
            inlateout("x0") &raw const arguments as i64 => result,
            in("x1") size_of::<CloneArguments>(),
            in("x8") libc::SYS_clone3,
            in("x20") child,
            in("x21") work,
        );
    }
    match u32::try_from(result) {
        Ok(pid) => Ok(Pid(pid)),
        Err(_) => Err(io::Error::from_raw_os_error(
            i32::try_from(result.wrapping_neg()).unwrap_or(libc::EIO),
        )),
    }
}

/// No cgroup is made on other architectures: see [`can_spawn_into_cgroup`].
///
/// # Safety
///
/// There is nothing to observe.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn spawn_into(
    _stack: &mut ChildStack,
    _cgroup: BorrowedFd<'_>,
    _child: extern "C" fn(*mut c_void) -> c_int,
    _work: *mut c_void,
) -> io::Result<Pid> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether [`spawn`] supports cgroups here: sandboxes may forbid `clone3`.
pub(super) fn can_spawn_into_cgroup() -> bool {
    let nothing = ptr::null::<CloneArguments>();
    // SAFETY: without arguments the call fails before it does anything.
    let result = unsafe { libc::syscall(libc::SYS_clone3, nothing, 0) };
    let is_known = result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    is_known && cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
}

/// Executes a program. Returns only if that fails.
pub(super) fn execute(
    program: &CStr,
    arguments: &StringArray<'_>,
    environment: &StringArray<'_>,
) -> i32 {
    let (arguments, environment) = (&arguments.pointers, &environment.pointers);
    // SAFETY: both arrays end with a null pointer, and their strings live as long as they do.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    // SAFETY: reads the error number of the call above.
    unsafe { *libc::__errno_location() }
}

/// Makes a descriptor that the program about to be executed gets.
pub(super) fn pass_on(fd: BorrowedFd<'_>, target: c_int) -> rustix::io::Result<()> {
    // SAFETY: takes numbers only. The child has its own descriptors, and uses none after this.
    let result = unsafe {
        if fd.as_raw_fd() == target {
            libc::fcntl(target, libc::F_SETFD, 0)
        } else {
            libc::dup2(fd.as_raw_fd(), target)
        }
    };
    match result {
        // SAFETY: reads the error number of the call above.
        -1 => Err(rustix::io::Errno::from_raw_os_error(unsafe {
            *libc::__errno_location()
        })),
        _ => Ok(()),
    }
}

/// Unblocks all signals, for a program that is about to be executed.
pub(super) fn unblock_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initializes the set that `sigprocmask` then reads.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Resets a signal to its default action and unblocks it, whatever the starter has set.
pub(super) fn accept_signal(signal: c_int) {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the default action runs no code of this process. `sigemptyset` initializes the set that the calls after it
    // use.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// Ignores a signal. A program that this process executes ignores it, too.
pub(super) fn ignore_signal(signal: c_int) {
    // SAFETY: an ignored signal runs no code of this process.
    unsafe {
        libc::signal(signal, libc::SIG_IGN);
    }
}

/// Resets every signal to its default action, which tasks inherit, and blocks it in this process.
pub(super) fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // The kernel's `sigaction`, all zero: the default action, no flags, an empty mask.
    let default = [0u64; 4];
    let no_old = ptr::null_mut::<u64>();
    // SAFETY: `sigfillset` initializes the set that `sigprocmask` then reads. `default` is as long as the structure
    // that the kernel reads. The system call is made directly, because the C library rejects the two signals that it
    // keeps for itself, and a parent may have left them ignored.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
        for signal in 1..=libc::SIGRTMAX() {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), no_old, 8);
        }
    }
}

/// Closes all descriptors but the standard streams: a starter may wait until a pipe has no other end.
///
/// No object of this process may own such a descriptor.
pub(super) fn close_inherited() -> io::Result<()> {
    // SAFETY: takes numbers only. The caller ensures that no object owns a closed descriptor, by calling this before
    // the process has opened any.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor that is readable while SIGCHLD is pending.
pub(super) fn child_signal_fd() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initializes the set that the calls after it use.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to a process, or to a group if the number is negative. Returns whether it exists.
pub(super) fn kill(target: i32, signal: i32) -> bool {
    // SAFETY: takes numbers only.
    unsafe { libc::kill(target, signal) == 0 }
}

/// Sends a signal to the process of a descriptor. Returns whether it exists.
pub(super) fn pidfd_kill(process: BorrowedFd<'_>, signal: i32) -> bool {
    let no_info = ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open, and a null pointer stands for the information that `kill` would send.
    unsafe {
        let fd = process.as_raw_fd();
        libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, no_info, 0) == 0
    }
}

/// The user at the other end of a socket.
///
/// The standard library and `rustix` return the peer's pid with it, which is 0 for a process outside this PID namespace.
pub(super) fn peer_uid(socket: impl AsFd) -> io::Result<Uid> {
    let mut peer = MaybeUninit::<libc::ucred>::zeroed();
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(io::Error::other)?;
    // SAFETY: the kernel writes at most `len` bytes to `peer`, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all-zero bytes are a valid `ucred`, and the kernel has written one over them.
    Ok(Uid::from_raw(unsafe { peer.assume_init() }.uid))
}

/// The result of a look for an ended child.
pub(super) enum Reaped {
    /// It has been reaped.
    Exit(Exit),
    /// There are children, none of which has ended.
    Running,
    /// There is no child.
    Childless,
}

/// Reaps an ended child, if there is one. Children of every kind count, those of `clone` without a signal included.
pub(super) fn reap_any() -> Reaped {
    match wait(-1, libc::WNOHANG | libc::__WALL) {
        Ok(Some(exit)) => Reaped::Exit(exit),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Reaped::Childless,
        Ok(None) | Err(_) => Reaped::Running,
    }
}

/// Waits for the end of a child, and reaps it.
pub(super) fn reap(child: Pid) {
    if let Ok(pid) = i32::try_from(child.0) {
        let _ = wait(pid, 0);
    }
}

/// The process that continues after [`fork`].
pub(super) enum Forked {
    Child,
    Parent(Pid),
}

/// Copies this process, which must have one thread.
pub(super) fn fork() -> io::Result<Forked> {
    // SAFETY: with one thread no lock is held by a thread that the copy lacks.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid => match u32::try_from(pid) {
            Ok(pid) => Ok(Forked::Parent(Pid(pid))),
            Err(_) => Err(io::Error::last_os_error()),
        },
    }
}

/// Waits for the end of a child, and reaps it.
pub(super) fn wait_for(child: Pid) -> io::Result<WaitStatus> {
    let target = i32::try_from(child.0).map_err(io::Error::other)?;
    loop {
        match wait(target, 0) {
            Ok(Some(exit)) => return Ok(exit.status),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(None) | Err(_) => {}
        }
    }
}

fn wait(target: i32, options: c_int) -> io::Result<Option<Exit>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers refer to local variables that outlive the call.
    let pid = unsafe { libc::wait4(target, &raw mut status, options, usage.as_mut_ptr()) };
    let Ok(pid) = u32::try_from(pid) else {
        return Err(io::Error::last_os_error());
    };
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: all-zero bytes are a valid `rusage`, and `wait4` has written one over them.
    let usage = unsafe { usage.assume_init() };
    Ok(Some(Exit {
        pid: Pid(pid),
        status: wait_status(status),
        usage: Usage {
            max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
            user_us: microseconds(usage.ru_utime),
            system_us: microseconds(usage.ru_stime),
        },
    }))
}

/// Whether no other descriptor, here or in another process, refers to an open file. If so, none can before the file is
/// closed. It must be of this process's user, and opened for reading. The process must ignore SIGIO, which it gets if
/// another one opens the file meanwhile.
pub(super) fn is_open_nowhere_else(file: &File) -> bool {
    // The kernel grants a write lease only to the one who has the file open alone.
    // SAFETY: the call takes and returns integers.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0 }
}

fn wait_status(status: c_int) -> WaitStatus {
    // Both fields have eight bits (`wait(2)`).
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    if libc::WIFSIGNALED(status) {
        WaitStatus::Signaled {
            signal: libc::WTERMSIG(status) as u8,
            core: libc::WCOREDUMP(status),
        }
    } else {
        WaitStatus::Exited(libc::WEXITSTATUS(status) as u8)
    }
}

fn microseconds(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
}
