//! The calls of the C library and the kernel. No other module of this program has unsafe code.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::ptr;

/// The greatest number of groups in Linux.
const MAX_GROUPS: usize = 65_536;
/// The greatest length of an entry in the password database.
const MAX_ENTRY_BYTES: usize = 1 << 20;
const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// A user's entry in the password database, and the user's groups.
pub struct Account {
    pub name: CString,
    pub home: CString,
    pub shell: CString,
    pub gid: u32,
    pub groups: Vec<u32>,
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Whether the real, the effective and the saved user is root.
pub fn is_root() -> bool {
    let (mut real, mut effective, mut saved) = (1, 1, 1);
    // SAFETY: the pointers refer to local variables.
    let result = unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) };
    result == 0 && (real, effective, saved) == (0, 0, 0)
}

pub fn is_socket(fd: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut length = 4;
    // SAFETY: the kernel writes at most four bytes to `kind`.
    let result = unsafe {
        let kind = (&raw mut kind).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, kind, &raw mut length)
    };
    result == 0
}

pub fn read_exact(fd: c_int, buffer: &mut [u8]) -> io::Result<()> {
    let mut rest = buffer;
    while !rest.is_empty() {
        match read(fd, rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => rest = rest.get_mut(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads some bytes; none at the end.
pub fn read(fd: c_int, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`.
    let length = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Waits until a descriptor can be read, or its other end is closed.
pub fn wait_readable(fd: c_int) -> io::Result<()> {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the kernel changes the one element that it is given.
    match check(unsafe { libc::poll(&raw mut polled, 1, -1) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Writes bytes to a file.
pub fn write_all(fd: c_int, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: the kernel reads at most `rest.len()` bytes of `rest`.
        let length = unsafe { libc::write(fd, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(length).map_err(|_| io::Error::last_os_error()) {
            Ok(length) => rest = rest.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends an answer by the socket.
pub fn write(fd: c_int, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `bytes.len()` bytes of `bytes`. Without a reader there is an error and no signal.
    let length = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    if usize::try_from(length) == Ok(bytes.len()) {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Finds a user in the password database.
pub fn account(uid: u32) -> io::Result<Account> {
    let mut buffer = vec![0 as c_char; 4096];
    loop {
        let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut found = ptr::null_mut();
        // SAFETY: the pointers refer to local variables; the strings of the entry are in `buffer`.
        let errno = unsafe {
            let (buffer, length) = (buffer.as_mut_ptr(), buffer.len());
            libc::getpwuid_r(uid, entry.as_mut_ptr(), buffer, length, &raw mut found)
        };
        match errno {
            libc::ERANGE if buffer.len() < MAX_ENTRY_BYTES => {
                let length = buffer.len() * 2;
                buffer.resize(length, 0);
            }
            0 if found.is_null() => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
            0 => {
                // SAFETY: an entry was found, so that `entry` is initialized, and its strings end with a zero byte and
                // live as long as `buffer`.
                return unsafe {
                    let entry = entry.assume_init();
                    let text = |string: *mut c_char| CStr::from_ptr(string).to_owned();
                    let name = text(entry.pw_name);
                    Ok(Account {
                        groups: groups(&name, entry.pw_gid)?,
                        home: text(entry.pw_dir),
                        shell: text(entry.pw_shell),
                        gid: entry.pw_gid,
                        name,
                    })
                };
            }
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

fn groups(name: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = c_int::try_from(groups.len()).map_err(io::Error::other)?;
        // SAFETY: the C library writes at most `count` numbers to `groups`.
        let result =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let length = usize::try_from(count).map_err(io::Error::other)?;
        if result >= 0 {
            groups.truncate(length);
            return Ok(groups);
        }
        if groups.len() >= MAX_GROUPS {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        groups.resize(length.max(groups.len() * 2).min(MAX_GROUPS), 0);
    }
}

/// Closes all descriptors from this one on.
pub fn close_from(first: c_int) -> io::Result<()> {
    // SAFETY: takes numbers only; no object of this program owns such a descriptor.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub fn close_on_exec(fd: c_int) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }).map(drop)
}

pub fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    let no_old = ptr::null_mut::<libc::rlimit>();
    // SAFETY: the kernel reads `limit`, and rejects a resource that does not exist.
    let result =
        unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, no_old) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Changes groups, group and user for good.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads `groups.len()` numbers of `groups`.
    check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(uid, uid, uid) })?;
    let (mut real, mut effective, mut saved) = (0, 0, 0);
    // SAFETY: the pointers refer to local variables.
    check(unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) })?;
    // SAFETY: takes numbers only.
    let is_root_again = unsafe { libc::setresuid(0, 0, 0) } == 0;
    if (real, effective, saved) != (uid, uid, uid) || is_root_again {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    Ok(())
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: c_int,
}

/// Clears all capabilities, and the ones that an executed program would get.
pub fn drop_capabilities() -> io::Result<()> {
    let header = CapabilityHeader {
        version: LINUX_CAPABILITY_VERSION_3,
        pid: 0,
    };
    // Effective, permitted and inheritable capabilities, in two halves.
    let none = [0u32; 6];
    // SAFETY: the kernel reads the header and two sets of three numbers.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL;
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, 0, 0, 0) }).map(drop)
}

/// Keeps executed programs from getting privileges, by set-user-ID for instance.
pub fn forbid_new_privileges() -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Resets SIGPIPE, which Rust programs ignore: executed programs would, too.
pub fn accept_broken_pipes() {
    // SAFETY: the default action runs no code of this process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

pub fn set_umask(mask: u32) {
    // SAFETY: takes a number only.
    unsafe { libc::umask(mask) };
}

pub fn chdir(path: &CStr) -> io::Result<()> {
    // SAFETY: the path ends with a zero byte.
    check(unsafe { libc::chdir(path.as_ptr()) }).map(drop)
}

/// Opens a file without waiting for the other end of a FIFO. The descriptor is closed when a program is executed.
pub fn open(path: &CStr, flags: c_int) -> io::Result<c_int> {
    let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero byte.
    check(unsafe { libc::open(path.as_ptr(), flags, 0o666) })
}

pub fn clear_nonblocking(fd: c_int) -> io::Result<()> {
    // SAFETY: takes numbers only.
    let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) }).map(drop)
}

pub fn duplicate(source: c_int, target: c_int) -> io::Result<()> {
    // SAFETY: takes numbers only; no object owns `target`, which is a standard stream.
    check(unsafe { libc::dup2(source, target) }).map(drop)
}

/// Executes a program. Returns the error number if that fails.
pub fn execute(program: &CStr, arguments: &[CString], environment: &[CString]) -> c_int {
    let pointers = |strings: &[CString]| {
        let pointers = strings.iter().map(|string| string.as_ptr());
        pointers.chain([ptr::null()]).collect::<Vec<_>>()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end with a null pointer, and their strings outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
