//! Reads information on processes from `/proc`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};

use crate::kernel::ProcessInfo;
use crate::types::{BootId, Pid, ProcessId};

/// Bytes of a list of children in one read: the kernel returns about a page.
const CHILDREN_BUFFER_BYTES: usize = 4096;

/// A line of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: Pid,
    pub(super) session: Pid,
    pub(super) start_time: u64,
    pub(super) is_zombie: bool,
}

impl Stat {
    /// Reads the line. It allocates nothing, since a task reads its own between `clone` and `execve`.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        // The program's name may have blanks and parentheses: the fields begin after the last one.
        let end_of_name = line.iter().rposition(|byte| *byte == b')')?;
        let mut fields = line.get(end_of_name + 2..)?.split(|byte| *byte == b' ');
        let state = fields.next()?;
        let parent = Pid(u32::try_from(number(fields.next()?)?).ok()?);
        let session = Pid(u32::try_from(number(fields.nth(1)?)?).ok()?);
        let start_time = number(fields.nth(15)?)?;
        Some(Self {
            parent,
            session,
            start_time,
            is_zombie: matches!(state, b"Z" | b"X"),
        })
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, digit: &u8| {
        let value = digit.checked_sub(b'0').filter(|value| *value < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(value))
    };
    (!digits.is_empty()).then_some(())?;
    digits.iter().try_fold(0, add)
}

pub(super) fn stat(pid: Pid) -> Option<Stat> {
    Stat::parse(&fs::read(format!("/proc/{}/stat", pid.0)).ok()?)
}

/// A process, and the name of its program: at most 15 bytes of it.
pub(super) fn named_stat(pid: Pid) -> Option<(Vec<u8>, Stat)> {
    let line = fs::read(format!("/proc/{}/stat", pid.0)).ok()?;
    let (_, name) = line.split_at_checked(line.iter().position(|byte| *byte == b'(')? + 1)?;
    let name = name.get(..name.iter().rposition(|byte| *byte == b')')?)?;
    Some((name.to_vec(), Stat::parse(&line)?))
}

/// This process.
pub(super) fn current_process() -> io::Result<ProcessId> {
    let pid = Pid(std::process::id());
    let invalid = || Error::new(ErrorKind::InvalidData, "/proc/self/stat is not readable");
    let start_time = stat(pid).ok_or_else(invalid)?.start_time;
    Ok(ProcessId { pid, start_time })
}

/// The unit of start times in `/proc/PID/stat`, in nanoseconds, where the kernel's `USER_HZ` is 100.
const TICK_NS: u64 = 10_000_000;

/// The time since boot in the unit of start times, rounded as they are; `None` where the unit is another one.
pub(super) fn ticks_since_boot() -> Option<u64> {
    // A constant of the process, which reads no file.
    if rustix::param::clock_ticks_per_second() != 100 {
        return None;
    }
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u64::try_from(time.tv_nsec).ok()?;
    Some(seconds * (1_000_000_000 / TICK_NS) + nanoseconds / TICK_NS)
}

pub(super) fn boot_id() -> io::Result<BootId> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let invalid = || Error::new(ErrorKind::InvalidData, "boot_id is not an UUID");
    BootId::parse(&text).ok_or_else(invalid)
}

/// A random number of 122 bits.
pub(super) fn random_id() -> io::Result<u128> {
    let text = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).map_err(io::Error::other)
}

pub(super) fn inspect(pid: Pid) -> Option<ProcessInfo> {
    let session = stat(pid)?.session;
    let limits = fs::read_to_string(format!("/proc/{}/limits", pid.0)).ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max file locks"))?;
    let hard = line.split_ascii_whitespace().nth(1)?;
    let mark = hard.parse().unwrap_or(u64::MAX);
    Some(ProcessInfo { session, mark })
}

/// Opens the list of this thread's children; `None` if the kernel has no such lists (`CONFIG_PROC_CHILDREN`).
pub(super) fn open_own_children() -> Option<File> {
    File::open("/proc/thread-self/children").ok()
}

/// Reads a list of children from its beginning. An open list is read as often as needed, without a look at the threads.
pub(super) fn read_children(list: &File) -> Vec<Pid> {
    let mut text = Vec::with_capacity(CHILDREN_BUFFER_BYTES);
    let mut buffer = [0; CHILDREN_BUFFER_BYTES];
    while let Ok(length) = list.read_at(&mut buffer, text.len() as u64)
        && length > 0
    {
        text.extend_from_slice(buffer.get(..length).unwrap_or_default());
    }
    let pids = text.split(|byte| *byte == b' ').filter_map(number);
    pids.filter_map(|pid| u32::try_from(pid).ok().map(Pid))
        .collect()
}

/// Lists the children of a process from its threads' lists.
pub(super) fn listed_children(parent: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", parent.0)) else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| File::open(thread.path().join("children")).ok());
    lists.flat_map(|list| read_children(&list)).collect()
}

/// Lists the children of a process by a walk over all processes.
pub(super) fn searched_children(parent: Pid) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let child = |entry: fs::DirEntry| {
        let pid = Pid(entry.file_name().to_str()?.parse().ok()?);
        (stat(pid)?.parent == parent).then_some(pid)
    };
    processes.flatten().filter_map(child).collect()
}

/// Finds the processes of some sessions by a walk over all processes.
pub(super) fn session_members(sessions: &BTreeSet<Pid>) -> Vec<(Pid, ProcessId)> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let member = |entry: fs::DirEntry| {
        let pid = Pid(entry.file_name().to_str()?.parse().ok()?);
        let stat = stat(pid).filter(|stat| !stat.is_zombie && sessions.contains(&stat.session))?;
        let start_time = stat.start_time;
        Some((stat.session, ProcessId { pid, start_time }))
    };
    processes.flatten().filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        let line = b"12 (a) b (c)) Z 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 100 200\n";
        let expected = Stat {
            parent: Pid(7),
            session: Pid(9),
            start_time: 4242,
            is_zombie: true,
        };
        assert_eq!(Stat::parse(line), Some(expected));
    }

    #[test]
    fn all_ways_to_find_children_agree() {
        let this = Pid(std::process::id());
        // The list of this thread: children of other tests are in those of others.
        let own = open_own_children();
        let mut children: Vec<_> = (0..800)
            .map(|_| {
                let mut command = std::process::Command::new("cat");
                let command = command.stdin(std::process::Stdio::piped());
                command.spawn().expect("cat starts")
            })
            .collect();
        let is_found = |found: &[Pid]| {
            let found: BTreeSet<_> = found.iter().copied().collect();
            children
                .iter()
                .all(|child| found.contains(&Pid(child.id())))
        };
        assert!(is_found(&searched_children(this)));
        if let Some(own) = &own {
            assert!(is_found(&listed_children(this)));
            assert!(is_found(&read_children(own)));
            assert_eq!(read_children(own).len(), children.len());
        }
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().expect("cat ends at the end of its input");
        }
        if let Some(own) = &own {
            assert_eq!(read_children(own), []);
        }
        assert!(!searched_children(this).contains(&Pid(children[0].id())));
    }
}
