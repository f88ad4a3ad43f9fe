//! The Standard Workload Format, version 2.2: eighteen numbers per job, -1 for unknown.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};

use crate::error::{Verb, brief, excerpt, strip_byte_order_mark};
use crate::workload::{
    Column, Dependency, JobIndex, JobShape, JobTimes, MAX_TIME_S, Priority, RUN_TIME_TAKEN,
    ShapeIndex, TraceJobId, Workload,
};
use crate::{Error, error};

/// The names of the fields of a line, in order.
const FIELDS: [&str; 18] = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average cpu time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
];

const JOB_FIELD: usize = 0;
const SUBMIT_FIELD: usize = 1;
const WAIT_FIELD: usize = 2;
const RUN_FIELD: usize = 3;
const ALLOCATED_FIELD: usize = 4;
const REQUESTED_FIELD: usize = 7;
const REQUESTED_TIME_FIELD: usize = 8;
const STATUS_FIELD: usize = 10;
const QUEUE_FIELD: usize = 14;
const PRECEDING_FIELD: usize = 16;
const THINK_FIELD: usize = 17;

/// The columns that a workload keeps beside the simulated values: their fields and names.
const COLUMNS: [(usize, &str); 11] = [
    (WAIT_FIELD, "trace_wait"),
    (5, "cpu_time"),
    (6, "used_memory"),
    (9, "requested_memory"),
    (STATUS_FIELD, "status"),
    (11, "user"),
    (12, "group"),
    (13, "executable"),
    (QUEUE_FIELD, "queue"),
    (15, "partition"),
    (PRECEDING_FIELD, "preceding"),
];
/// The columns that [`write`] writes.
const WRITTEN_COLUMNS: [&str; 5] = ["user", "group", "executable", "queue", "partition"];

/// The value of an unknown field.
const MISSING_VALUE: f64 = -1.0;

/// The status of a cancelled job.
const CANCELLED_STATUS: f64 = 5.0;

/// Statuses of the parts of an interrupted job, which follow a line for the whole job.
const PART_STATUSES: [f64; 3] = [2.0, 3.0, 4.0];

/// Whether a job waits for the end of its preceding job, and its think time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preceding {
    /// It is submitted at its submit time.
    Ignored,
    /// It is submitted at its submit time, or later once its think time after the end of the preceding job has ended.
    Awaited,
}

/// Findings of the reader, for the sentences about assumptions.
#[derive(Default)]
struct Findings {
    used_processors: u64,
    used_times: u64,
    no_processors: u64,
    no_run_time: u64,
    no_submit_time: u64,
    early: u64,
    cancelled: u64,
    parts: u64,
    repeated: u64,
    preceding: u64,
    unknown_preceding: u64,
    waits: u64,
    queues: Option<f64>,
    several_queues: bool,
}

/// Reads a trace, or its first `limit` jobs.
///
/// The default for missing requested processors is the allocated ones, and for a missing requested
/// time the run time. Jobs without processors, run time or submit time, jobs that were cancelled
/// before they ran, and lines that are parts of a job are left out; [`Workload::assumptions`]
/// reports how many. Lines are sorted by submit time, equal ones stay in file order.
///
/// # Errors
///
/// A line is not eighteen numbers. The error names the line.
pub fn read(data: &[u8], name: &str, limit: Option<usize>) -> Result<Workload, Error> {
    read_with(data, name, limit, Preceding::Ignored)
}

/// As [`read`], with or without the preceding jobs of the trace as dependencies.
///
/// # Errors
///
/// As [`read`].
pub fn read_with(
    data: &[u8],
    name: &str,
    limit: Option<usize>,
    preceding: Preceding,
) -> Result<Workload, Error> {
    let mut workload = Workload::new(name);
    let mut census = Findings::default();
    let mut sizes = ShapesBySize::default();
    let mut numbers = JobNumbers::default();
    let mut columns: [Vec<f64>; COLUMNS.len()] = Default::default();
    let mut chain = Chain::default();
    let queue = workload.queue_index(String::new())?;
    for (index, line) in strip_byte_order_mark(data)
        .split(|byte| *byte == b'\n')
        .enumerate()
    {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if let Some(comment) = line.strip_prefix(b";") {
            read_comment(&mut workload, comment);
            continue;
        }
        if limit.is_some_and(|limit| workload.len() >= limit) {
            break;
        }
        let fields = split(line).map_err(|detail| Error::at(name, index + 1, detail))?;
        let at = |field: usize, detail: &str| {
            let number = field + 1;
            let what = FIELDS[field];
            let text = format!(
                "field {number} ({what}): {}: {detail}",
                brief(fields[field])
            );
            Error::at(name, index + 1, text)
        };
        let id = whole(fields[JOB_FIELD]);
        let is_repeated = id.is_some_and(|id| numbers.add(id));
        if is_repeated && PART_STATUSES.contains(&fields[STATUS_FIELD]) {
            census.parts += 1;
            continue;
        }
        let Some(SimulatedJob { processors, times }) = census.take(&fields) else {
            continue;
        };
        let id = id.map(TraceJobId::new);
        let id = id.ok_or_else(|| at(JOB_FIELD, "expected a whole number"))?;
        census.repeated += u64::from(is_repeated);
        let cores = whole(fields[processors])
            .and_then(|cores| u32::try_from(cores).ok())
            .ok_or_else(|| at(processors, "expected a whole number below 4294967296"))?;
        let shape = sizes.shape(&mut workload, cores)?;
        workload
            .push_shape(id, times, shape, Priority::DEFAULT, queue)
            .map_err(|error| Error::at(name, index + 1, error))?;
        for ((field, _), column) in COLUMNS.iter().zip(&mut columns) {
            column.push(known(fields[*field]));
        }
        if preceding == Preceding::Awaited {
            census.unknown_preceding += u64::from(!chain.add(id, &fields));
        }
    }
    for ((_, name), column) in COLUMNS.into_iter().zip(columns) {
        workload.add_column(name, Column::Numbers(column));
    }
    if preceding == Preceding::Awaited {
        census.preceding = 0;
        chain.apply(&mut workload);
    }
    census.add_assumptions(&mut workload);
    if workload.sort() {
        workload.assume(
            "the lines are not in the order of submit times: they were sorted, equal times in \
             file order"
                .to_owned(),
        );
    }
    read_pool(&mut workload);
    Ok(workload)
}

/// Sets the cores of the pool: by the header, otherwise by the largest job.
fn read_pool(workload: &mut Workload) {
    let mut wrong = String::new();
    for key in ["MaxProcs", "MaxNodes"] {
        let Some(value) = workload.header_value(key) else {
            continue;
        };
        if let Some(cores) = first_number(value) {
            workload.set_pool(cores, &format!("{key} of the header{wrong}"));
            return;
        }
        let value = excerpt(value);
        let _ = write!(wrong, "; {key} is no number above 0: `{value}`");
    }
    if !wrong.is_empty() {
        let largest = workload.max_cores();
        workload.set_pool(largest, &format!("the largest job{wrong}"));
    }
}

/// Sizes below this one are looked up without a hash.
const MAX_ARRAY_SIZE: usize = 1 << 16;

/// Shape indices by size, each plus one; 0 for sizes that have not occurred.
#[derive(Default)]
struct ShapesBySize(Vec<u32>);

impl ShapesBySize {
    fn shape(&mut self, workload: &mut Workload, cores: u32) -> Result<ShapeIndex, Error> {
        let index = cores as usize;
        if let Some(known) = self.0.get(index).and_then(|number| number.checked_sub(1)) {
            return Ok(ShapeIndex::new(known));
        }
        let shape = workload.shape_index(JobShape::cores(cores))?;
        if index < MAX_ARRAY_SIZE {
            if self.0.len() <= index {
                self.0.resize(index + 1, 0);
            }
            self.0[index] = shape.get().saturating_add(1);
        }
        Ok(shape)
    }
}

/// The job numbers so far. Most traces have them in ascending order.
#[derive(Default)]
struct JobNumbers {
    ascending: Vec<u64>,
    others: HashSet<u64>,
}

impl JobNumbers {
    /// Adds a number. Returns whether it was known.
    fn add(&mut self, number: u64) -> bool {
        if self.ascending.last().is_none_or(|last| *last < number) {
            self.ascending.push(number);
            return self.others.contains(&number);
        }
        self.ascending.binary_search(&number).is_ok() || !self.others.insert(number)
    }
}

/// A value of a field; NaN if it is unknown.
fn known(value: f64) -> f64 {
    if value.to_bits() == MISSING_VALUE.to_bits() {
        f64::NAN
    } else {
        value
    }
}

/// The dependencies of jobs on preceding ones, in file order.
#[derive(Default)]
struct Chain {
    /// By job number, the job that had it last.
    jobs: HashMap<TraceJobId, JobIndex>,
    after: Vec<Dependency>,
    think_times: Vec<f64>,
}

impl Chain {
    /// Adds a job. Returns whether its preceding job, if it names one, is an earlier one of the file.
    fn add(&mut self, id: TraceJobId, fields: &[f64; 18]) -> bool {
        let job = JobIndex::from_usize(self.think_times.len());
        let number = whole(fields[PRECEDING_FIELD]).filter(|number| *number > 0);
        let before = number.map(|number| self.jobs.get(&TraceJobId::new(number)).copied());
        self.jobs.insert(id, job);
        let think = fields[THINK_FIELD].clamp(0.0, MAX_TIME_S);
        let has_before = matches!(before, Some(Some(_)));
        self.think_times.push(if has_before { think } else { 0.0 });
        if let Some(Some(before)) = before {
            self.after.push(Dependency { job, before });
        }
        number.is_none() || has_before
    }

    /// Gives a workload the dependencies, before its jobs are sorted.
    fn apply(self, workload: &mut Workload) {
        if self.think_times.iter().any(|think| *think > 0.0) {
            workload.think_times = self.think_times;
        }
        workload.after = self.after;
    }
}

/// A job of the file that is to be simulated.
struct SimulatedJob {
    /// The field with the number of processors.
    processors: usize,
    times: JobTimes,
}

impl Findings {
    /// A job that is to be simulated; `None` for one that is left out.
    fn take(&mut self, fields: &[f64; 18]) -> Option<SimulatedJob> {
        let run = fields[RUN_FIELD];
        if fields[STATUS_FIELD].to_bits() == CANCELLED_STATUS.to_bits() && run <= 0.0 {
            self.cancelled += 1;
            return None;
        }
        let processors = match (fields[REQUESTED_FIELD] > 0.0, fields[ALLOCATED_FIELD] > 0.0) {
            (true, _) => REQUESTED_FIELD,
            (false, true) => ALLOCATED_FIELD,
            (false, false) => {
                self.no_processors += 1;
                return None;
            }
        };
        if run < 0.0 {
            self.no_run_time += 1;
            return None;
        }
        if fields[SUBMIT_FIELD] < 0.0 {
            if fields[SUBMIT_FIELD].to_bits() == MISSING_VALUE.to_bits() {
                self.no_submit_time += 1;
            } else {
                self.early += 1;
            }
            return None;
        }
        self.used_processors += u64::from(processors == ALLOCATED_FIELD);
        self.preceding += u64::from(fields[PRECEDING_FIELD] > 0.0);
        self.waits += u64::from(fields[WAIT_FIELD] >= 0.0);
        let queue = *self.queues.get_or_insert(fields[QUEUE_FIELD]);
        self.several_queues |= queue.to_bits() != fields[QUEUE_FIELD].to_bits();
        let limit = if fields[REQUESTED_TIME_FIELD] >= 0.0 {
            fields[REQUESTED_TIME_FIELD]
        } else {
            self.used_times += 1;
            run
        };
        let submit = fields[SUBMIT_FIELD];
        Some(SimulatedJob {
            processors,
            times: JobTimes { submit, run, limit },
        })
    }

    /// Adds a sentence about each finding to the workload's assumptions.
    fn add_assumptions(&self, workload: &mut Workload) {
        let jobs = u64::try_from(workload.len()).unwrap_or(u64::MAX);
        let some = |count: u64, verb| error::some(count, jobs, verb);
        if self.used_processors > 0 {
            let some = some(self.used_processors, Verb::Have);
            workload.assume(format!(
                "{some} no requested processors: the allocated ones are taken"
            ));
        }
        if self.used_times > 0 {
            let some = some(self.used_times, Verb::Have);
            workload.assume(format!("{some} no requested time: {RUN_TIME_TAKEN}"));
        }
        let alike = |count, why| (count, why, why);
        let left_out = [
            alike(self.no_processors, "without processors"),
            alike(self.no_run_time, "without a run time"),
            alike(self.no_submit_time, "without a submit time"),
            alike(self.early, "with a submit time below 0"),
            (
                self.cancelled,
                "cancelled before it ran",
                "cancelled before they ran",
            ),
            (
                self.parts,
                "that is a part of another, by status and job number",
                "that are parts of others, by status and job number",
            ),
        ];
        for (count, one, several) in left_out.into_iter().filter(|(count, ..)| *count > 0) {
            let why = if count == 1 { one } else { several };
            workload.assume(format!("left out: {} {why}", error::jobs(count)));
        }
        if self.waits == 0 && jobs > 0 {
            workload.assume(
                "the trace has no wait times: its submit times may be start times, and are taken \
                 as they are"
                    .to_owned(),
            );
        }
        if self.preceding > 0 {
            let some = some(self.preceding, Verb::Name);
            workload.assume(format!("{some} a preceding job, which is not waited for"));
        }
        if self.unknown_preceding > 0 {
            let some = some(self.unknown_preceding, Verb::Name);
            workload.assume(format!(
                "{some} a preceding job that is no earlier one of the trace: it is not waited for"
            ));
        }
        if self.repeated > 0 {
            workload.assume(format!(
                "{} of an earlier one's number: each is simulated, and the results have the number \
                 more than once",
                error::jobs(self.repeated)
            ));
        }
        if self.several_queues {
            workload.assume("the queues of the trace are taken as one".to_owned());
        }
    }
}

/// Records a `Key: value` comment; other comments are ignored.
fn read_comment(workload: &mut Workload, comment: &[u8]) {
    let text = String::from_utf8_lossy(comment);
    let Some((key, value)) = text.split_once(':') else {
        return;
    };
    let (key, value) = (key.trim(), value.trim());
    if !key.is_empty() && !key.contains(char::is_whitespace) {
        workload.add_header(key, value);
    }
}

/// The number at the beginning of a header's value, if it is positive.
fn first_number(value: &str) -> Option<u64> {
    let word = value.split_whitespace().next()?;
    word.parse().ok().filter(|number| *number > 0)
}

/// The error of the fields of a line.
#[derive(Debug)]
enum LineError {
    /// There are too few fields.
    Missing { found: usize },
    /// There are too many fields.
    TooMany { found: usize },
    /// A field, by its index, is not a number.
    NotNumber { index: usize, found: String },
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |index: usize| FIELDS.get(index).copied().unwrap_or_default();
        match self {
            Self::Missing { found } => {
                let (number, name) = (found + 1, name(*found));
                write!(
                    f,
                    "expected 18 fields, found {found}: field {number} ({name}) is missing"
                )
            }
            Self::TooMany { found } => write!(f, "expected 18 fields, found {found}"),
            Self::NotNumber { index, found } => {
                let (number, name) = (index + 1, name(*index));
                write!(
                    f,
                    "field {number} ({name}): expected a number, found `{found}`"
                )
            }
        }
    }
}

impl std::error::Error for LineError {}

fn split(line: &[u8]) -> Result<[f64; 18], LineError> {
    let mut fields = [0.0; 18];
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    for (index, field) in fields.iter_mut().enumerate() {
        let Some(word) = words.next() else {
            return Err(LineError::Missing { found: index });
        };
        *field = parse(word).ok_or_else(|| LineError::NotNumber {
            index,
            found: excerpt(&String::from_utf8_lossy(word)),
        })?;
    }
    match words.count() {
        0 => Ok(fields),
        more => Err(LineError::TooMany { found: 18 + more }),
    }
}

fn parse(word: &[u8]) -> Option<f64> {
    let (digits, negative) = match word {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    // Fast path: nearly all are small whole numbers.
    if (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) {
        let number = digits
            .iter()
            .fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        let number = f64::from(number);
        return Some(if negative { -number } else { number });
    }
    let number = std::str::from_utf8(word).ok()?.parse::<f64>().ok()?;
    Some(number).filter(|number| number.is_finite())
}

/// A number without fraction, from 0 to 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked: whole, not negative, below 2^53"
)]
pub(crate) fn whole(number: f64) -> Option<u64> {
    let fits = number.fract().abs() <= 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
    fits.then_some(number as u64)
}

/// Writes a workload as SWF, with -1 for fields that a simulation does not have.
///
/// # Errors
///
/// A job requests anything other than cores on any nodes, which the format cannot express.
pub fn write(workload: &Workload) -> Result<String, Error> {
    let mut text = String::with_capacity(workload.len() * 64 + 256);
    text.push_str("; Version: 2.2\n");
    for (key, value) in workload.header() {
        if !["Version", "MaxJobs", "MaxRecords"].contains(&key.as_str()) {
            let _ = writeln!(text, "; {key}: {value}");
        }
    }
    let jobs = workload.len();
    let _ = writeln!(text, "; MaxJobs: {jobs}\n; MaxRecords: {jobs}");
    if workload.header_value("MaxProcs").is_none() {
        let _ = writeln!(text, "; MaxProcs: {}", workload.max_cores());
    }
    let written = WRITTEN_COLUMNS.map(|name| workload.numbers_by_submission(name));
    for index in 0..jobs {
        let id = workload.id[index].get();
        let shape = &workload.shapes[workload.shape[index].index()];
        if !shape.is_cores_alone() || shape.cores_per_slot != 1 || !shape.is_exact() {
            return Err(Error::new(format!(
                "job {id} asks for more than cores anywhere: SWF cannot say that\nhint: write JSON lines"
            )));
        }
        let limit = workload.limit[index];
        let _ = write!(text, "{id} {} ", workload.submit[index]);
        let _ = write!(text, "-1 {} {} -1 -1 ", workload.run[index], shape.slots);
        let _ = write!(text, "{} ", shape.slots);
        if limit.is_finite() {
            let _ = write!(text, "{limit}");
        } else {
            text.push_str("-1");
        }
        text.push_str(" -1 1");
        for column in &written {
            let number = column[index];
            let _ = write!(text, " {}", if number.is_nan() { -1.0 } else { number });
        }
        text.push_str(" -1 -1\n");
    }
    Ok(text)
}
