//! Integers, byte strings and lists in the layout of the protocol and the log: little-endian, lengths first.

use std::ffi::CString;

use crate::Error;
use crate::environment_block::EnvironmentBlock;
use crate::types::{
    JobId, Pid, ProcessId, SpawnFailure, Step, TaskEnd, TaskId, TaskRank, Usage, WaitStatus,
};

/// Reads values off the front of a payload.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn error(&self, expected: &str) -> Error {
        Error::format(format!(
            "invalid message: expected {expected} at byte {}",
            self.position
        ))
    }

    fn take(&mut self, length: usize, expected: &str) -> Result<&'a [u8], Error> {
        let end = self.position.checked_add(length);
        let Some((taken, end)) =
            end.and_then(|end| Some((self.bytes.get(self.position..end)?, end)))
        else {
            return Err(self.error(expected));
        };
        self.position = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, expected: &str) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, expected)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, expected: &str) -> Result<u8, Error> {
        self.array::<1>(expected).map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self, expected: &str) -> Result<u32, Error> {
        self.array(expected).map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self, expected: &str) -> Result<i32, Error> {
        self.array(expected).map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, expected: &str) -> Result<u64, Error> {
        self.array(expected).map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self, expected: &str) -> Result<u128, Error> {
        self.array(expected).map(u128::from_le_bytes)
    }

    pub(crate) fn flag(&mut self, expected: &str) -> Result<bool, Error> {
        match self.u8(expected)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error(expected)),
        }
    }

    pub(crate) fn optional(&mut self, expected: &str) -> Result<Option<u64>, Error> {
        match self.u8(expected)? {
            0 => Ok(None),
            1 => self.u64(expected).map(Some),
            _ => Err(self.error(expected)),
        }
    }

    pub(crate) fn string(&mut self, expected: &str) -> Result<CString, Error> {
        let length = self.u32(expected)? as usize;
        let bytes = self.take(length, expected)?;
        CString::new(bytes).map_err(|_| self.error(&format!("{expected} without a zero byte")))
    }

    pub(crate) fn environment(&mut self) -> Result<EnvironmentBlock, Error> {
        let length = self.u32("a number of variables")?;
        let mut block = EnvironmentBlock::default();
        for _ in 0..length {
            let length = self.u32("a variable")? as usize;
            let variable = self.take(length, "a variable")?;
            if !block.push_parts(&[variable]) {
                return Err(self.error("a variable without a zero byte"));
            }
        }
        Ok(block)
    }

    pub(crate) fn blob(&mut self, expected: &str) -> Result<Vec<u8>, Error> {
        let length = self.u32(expected)? as usize;
        self.take(length, expected).map(<[u8]>::to_vec)
    }

    /// Reads a list. Its length is not trusted: memory grows with the items that are read.
    pub(crate) fn list<T>(
        &mut self,
        expected: &str,
        mut item: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let length = self.u32(expected)?;
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(crate) fn job(&mut self) -> Result<JobId, Error> {
        self.u64("a job id").map(JobId::new)
    }

    pub(crate) fn task(&mut self) -> Result<TaskId, Error> {
        let job = self.job()?;
        let rank = TaskRank(self.u32("a task rank")?);
        Ok(TaskId { job, rank })
    }

    pub(crate) fn process(&mut self) -> Result<ProcessId, Error> {
        let pid = Pid(self.u32("a pid")?);
        let start_time = self.u64("a start time")?;
        Ok(ProcessId { pid, start_time })
    }

    pub(crate) fn failure(&mut self) -> Result<SpawnFailure, Error> {
        let number = usize::from(self.u8("a step")?);
        let step = *Step::ALL.get(number).ok_or_else(|| self.error("a step"))?;
        let errno = self.i32("an errno")?;
        Ok(SpawnFailure { step, errno })
    }

    pub(crate) fn end(&mut self) -> Result<TaskEnd, Error> {
        let status = match self.u8("a kind of wait status")? {
            0 => WaitStatus::Exited(self.u8("an exit code")?),
            1 => WaitStatus::Signaled {
                signal: self.u8("a signal")?,
                core: self.u8("whether core was dumped")? != 0,
            },
            2 => WaitStatus::Unknown,
            _ => return Err(self.error("a kind of wait status")),
        };
        let usage = Usage {
            max_rss_kib: self.u64("a maximum RSS")?,
            user_us: self.u64("a user time")?,
            system_us: self.u64("a system time")?,
        };
        let time_ns = self.u64("a time")?;
        Ok(TaskEnd {
            status,
            usage,
            time_ns,
        })
    }

    /// Checks that nothing follows.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        if self.position == self.bytes.len() {
            Ok(())
        } else {
            Err(self.error("the end of the message"))
        }
    }
}

/// Appends values to a payload.
pub(crate) trait Write {
    fn u8(&mut self, value: u8);
    fn bytes(&mut self, value: &[u8]);

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn u128(&mut self, value: u128) {
        self.bytes(&value.to_le_bytes());
    }

    fn optional(&mut self, value: Option<u64>) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            self.u64(value);
        }
    }

    fn length(&mut self, length: usize) {
        // A frame has at most `MAX_FRAME_BYTES` bytes: a longer list is rejected when it is framed.
        self.u32(u32::try_from(length).unwrap_or(u32::MAX));
    }

    fn string(&mut self, value: &CString) {
        self.length(value.as_bytes().len());
        self.bytes(value.as_bytes());
    }

    fn environment(&mut self, block: &EnvironmentBlock) {
        self.length(block.len());
        for variable in block.iter() {
            self.blob(variable.to_bytes());
        }
    }

    fn blob(&mut self, value: &[u8]) {
        self.length(value.len());
        self.bytes(value);
    }

    fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.length(items.len());
        for each in items {
            item(self, each);
        }
    }

    fn task(&mut self, task: TaskId) {
        self.u64(task.job.get());
        self.u32(task.rank.0);
    }

    fn process(&mut self, process: ProcessId) {
        self.u32(process.pid.0);
        self.u64(process.start_time);
    }

    fn failure(&mut self, failure: SpawnFailure) {
        self.u8(failure.step as u8);
        self.i32(failure.errno);
    }

    fn end(&mut self, end: &TaskEnd) {
        match end.status {
            WaitStatus::Exited(code) => {
                self.u8(0);
                self.u8(code);
            }
            WaitStatus::Signaled { signal, core } => {
                self.u8(1);
                self.u8(signal);
                self.u8(u8::from(core));
            }
            WaitStatus::Unknown => self.u8(2),
        }
        self.u64(end.usage.max_rss_kib);
        self.u64(end.usage.user_us);
        self.u64(end.usage.system_us);
        self.u64(end.time_ns);
    }
}

impl Write for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn bytes(&mut self, value: &[u8]) {
        self.extend_from_slice(value);
    }
}
