//! Reads information on processes from `/proc`.

use std::fs;
use std::io::{self, Error, ErrorKind, Read};

use crate::kernel::ProcessInfo;
use crate::types::{BootId, Pid, ProcessId};

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

/// This process.
pub(super) fn current_process() -> io::Result<ProcessId> {
    let pid = Pid(std::process::id());
    let invalid = || Error::new(ErrorKind::InvalidData, "/proc/self/stat is not readable");
    let start_time = stat(pid).ok_or_else(invalid)?.start_time;
    Ok(ProcessId { pid, start_time })
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

/// Whether the kernel lists the children of a process (`CONFIG_PROC_CHILDREN`).
pub(super) fn has_children_files() -> bool {
    fs::exists("/proc/thread-self/children").unwrap_or(false)
}

/// Lists the children of a process from its threads' lists.
pub(super) fn listed_children(parent: Pid) -> Vec<Pid> {
    let mut children = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", parent.0)) else {
        return children;
    };
    let mut text = String::new();
    for thread in threads.flatten() {
        text.clear();
        let file = fs::File::open(thread.path().join("children"));
        if file
            .and_then(|mut file| file.read_to_string(&mut text))
            .is_ok()
        {
            let pids = text.split_ascii_whitespace();
            children.extend(pids.filter_map(|pid| pid.parse().ok().map(Pid)));
        }
    }
    children
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
    fn both_ways_to_find_children_agree() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat starts");
        let (this, pid) = (Pid(std::process::id()), Pid(child.id()));
        assert!(searched_children(this).contains(&pid));
        if has_children_files() {
            assert!(listed_children(this).contains(&pid));
        }
        drop(child.stdin.take());
        child.wait().expect("cat ends at the end of its input");
        assert!(!searched_children(this).contains(&pid));
    }
}
