//! `UsageRequests`: `job-list.usage`, what jobs have used, summed by keys and by spans of time.
//!
//! The sums of a million jobs are made in slices, one for each call of [`Manager::take_messages`](crate::Manager::take_messages).
//! First come the jobs in memory that are active or that others refer to, then the rows of ended jobs in the store, and at
//! last the ended jobs that are not in such a row yet. A job that ends meanwhile is counted once.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Bound;

use penstock_flux::RequestError;
use penstock_flux::errno::{EAGAIN, EOVERFLOW};
use penstock_flux::job_list::{UsageKey, UsageRequest, UsageResponse, UsageSum};
use penstock_jobspec::job_id::JobId;
use penstock_store::{EndedClass, EndedJob, JobUsage};
use penstock_wire::Message;

use crate::authorize::VisibleJobs;
use crate::census::Census;
use crate::context::{Context, ReadLimit};
use crate::event::EventTime;
use crate::jobs::is_evictable;
use crate::rpc::{Handled, Reply, Request};
use crate::spec::Spec;
use crate::state::State;

/// Maximum number of jobs in memory that are looked at in one slice: less than a millisecond's work unless many run.
const JOBS_PER_SLICE: usize = if cfg!(debug_assertions) { 3 } else { 5000 };
/// Maximum number of rows of ended jobs that are read in one slice: some milliseconds' work.
const ROWS_PER_SLICE: u32 = if cfg!(debug_assertions) { 2 } else { 8 };
/// Number of additions to sums, one for each span that a job has run in, after which a slice ends: a millisecond's work.
const ADDITIONS_PER_SLICE: usize = if cfg!(debug_assertions) { 4 } else { 10_000 };
/// Maximum number of jobspecs that are read in one slice, for projects and banks: some milliseconds' work.
const SPECS_PER_SLICE: usize = if cfg!(debug_assertions) { 2 } else { 100 };
/// Maximum number of jobspecs whose project and bank a request has in memory.
const MAX_SPECS: usize = 100_000;
/// Maximum number of open requests of a user.
const MAX_OPEN_OF_USER: usize = 4;
/// Maximum number of sums of a request.
const MAX_SUMS: usize = 50_000;

/// The number of a name in [`Names`].
type NameId = u32;

/// The values of the keys of a sum, by number, and the number of its span.
type SumKey = (Option<u32>, [NameId; 3], usize);

/// Queues, projects and banks by number; `None` is one of them.
#[derive(Debug, Default)]
struct Names {
    ids: HashMap<Option<Box<str>>, NameId>,
    all: Vec<Option<Box<str>>>,
}

impl Names {
    fn id_of(&mut self, name: Option<&str>) -> NameId {
        let name = name.map(Box::from);
        let next = NameId::try_from(self.all.len()).unwrap_or(NameId::MAX);
        let all = &mut self.all;
        *self.ids.entry(name).or_insert_with_key(|name| {
            all.push(name.clone());
            next
        })
    }

    fn text(&self, id: NameId) -> Option<String> {
        let name = self.all.get(id as usize)?;
        name.as_deref().map(str::to_owned)
    }
}

/// The jobs that are to be added next.
#[derive(Debug)]
enum Position {
    /// The jobs in memory behind this bound.
    Memory(Bound<JobId>),
    /// The jobs in the rows after this one, but for the first jobs of a row that were added.
    Rows { after: i64, added: AddedJobs },
    /// These jobs, which were in no row when the last one had been read.
    Rest(Vec<(EndedClass, Vec<(EndedJob, JobUsage)>)>),
}

/// The jobs at the beginning of a row that were added. The row may be removed before the others are added.
#[derive(Clone, Copy, Debug, Default)]
struct AddedJobs {
    row: i64,
    jobs: usize,
}

impl Position {
    const FIRST_ROW: Self = Self::Rows {
        after: i64::MIN,
        added: AddedJobs { row: 0, jobs: 0 },
    };
}

/// The rest of a slice.
#[derive(Debug)]
struct Slice {
    /// Additions to sums; the last job may make more.
    additions: usize,
    specs: usize,
    reads: ReadLimit,
}

impl Slice {
    fn is_done(&self) -> bool {
        self.additions == 0 || self.specs == 0
    }
}

/// A request whose sums are not complete.
#[derive(Debug)]
struct OpenUsage {
    request: Message,
    visible: VisibleJobs,
    by: Vec<UsageKey>,
    times: Vec<f64>,
    /// The time of the request, up to which all jobs are added.
    now: f64,
    userid: Option<u32>,
    queues: Option<Vec<String>>,
    position: Position,
    names: Names,
    /// The project and the bank of the jobs with a jobspec, by its key.
    specs: HashMap<i64, [NameId; 2]>,
    /// The jobs that were active when they were added.
    active: HashSet<JobId>,
    sums: BTreeMap<SumKey, UsageSum>,
}

impl OpenUsage {
    fn new(request: Request<'_>, visible: VisibleJobs, now: f64) -> Result<Self, RequestError> {
        let UsageRequest {
            by,
            times,
            userid,
            queues,
        } = request.payload()?;
        let is_ascending = times.is_sorted_by(|one, next| one < next);
        if times.len() < 2 || !is_ascending || !times.iter().all(|time| time.is_finite()) {
            let text = "`times`: expected at least two finite numbers that ascend";
            return Err(RequestError::invalid(text));
        }
        Ok(Self {
            request: request.message.header(),
            visible,
            by,
            times,
            now,
            userid,
            queues,
            position: Position::Memory(Bound::Unbounded),
            names: Names::default(),
            specs: HashMap::new(),
            active: HashSet::new(),
            sums: BTreeMap::new(),
        })
    }

    fn has(&self, key: UsageKey) -> bool {
        self.by.contains(&key)
    }

    fn has_user(&self, userid: u32) -> bool {
        self.userid.is_none_or(|only| only == userid) && self.visible.contain_those_of(userid)
    }

    fn has_queue(&self, queue: Option<&str>) -> bool {
        let queues = self.queues.as_ref();
        queues.is_none_or(|queues| queue.is_some_and(|queue| queues.iter().any(|q| q == queue)))
    }

    /// Adds the jobs of the next slice. Returns whether these were the last.
    fn run_slice(&mut self, cx: &Context, census: &Census) -> Result<bool, RequestError> {
        let mut slice = Slice {
            additions: ADDITIONS_PER_SLICE,
            specs: SPECS_PER_SLICE,
            reads: cx.read_limit(),
        };
        let position = std::mem::replace(&mut self.position, Position::Rest(Vec::new()));
        self.position = match position {
            Position::Memory(after) => self.add_jobs_in_memory(cx, &mut slice, after)?,
            Position::Rows { after, added } => {
                self.add_rows(cx, census, &mut slice, after, added)?
            }
            Position::Rest(rest) => self.add_rest(cx, census, &mut slice, rest)?,
        };
        Ok(matches!(&self.position, Position::Rest(rest) if rest.is_empty()))
    }

    fn add_jobs_in_memory(
        &mut self,
        cx: &Context,
        slice: &mut Slice,
        after: Bound<JobId>,
    ) -> Result<Position, RequestError> {
        let mut next = None;
        for (looked_at, (id, job)) in cx.jobs.range((after, Bound::Unbounded)).enumerate() {
            if looked_at == JOBS_PER_SLICE || slice.is_done() {
                break;
            }
            next = Some(id);
            let record = &job.record;
            let is_active = record.state() != State::Inactive;
            if record.t_run() <= 0.0 || (!is_active && is_evictable(record)) {
                continue;
            }
            let spec = record.spec();
            if !self.has_user(record.userid()) || !self.has_queue(spec.queue.as_deref()) {
                continue;
            }
            let end = if is_active {
                self.active.insert(id);
                self.now
            } else {
                record.t_inactive()
            };
            let queue = self.names.id_of(spec.queue.as_deref());
            let [project, bank] = self.account(spec);
            let names = [queue, project, bank];
            self.add(slice, record.userid(), names, record.job_usage(), end)?;
        }
        let rest = next.map(|last| (Bound::Excluded(last), Bound::Unbounded));
        let rest = rest.filter(|rest| cx.jobs.range(*rest).next().is_some());
        Ok(rest.map_or(Position::FIRST_ROW, |(last, _)| Position::Memory(last)))
    }

    /// The project and the bank of a jobspec.
    fn account(&mut self, spec: &Spec) -> [NameId; 2] {
        let names = [spec.project.as_deref(), spec.bank.as_deref()];
        names.map(|name| self.names.id_of(name))
    }

    /// Adds the jobs of the next rows.
    fn add_rows(
        &mut self,
        cx: &Context,
        census: &Census,
        slice: &mut Slice,
        mut after: i64,
        added: AddedJobs,
    ) -> Result<Position, RequestError> {
        let rows = cx.read_store(|store| store.ended_rows(after, ROWS_PER_SLICE));
        for row in &rows {
            let skip = if row.seq == added.row { added.jobs } else { 0 };
            for (jobs, job) in row.jobs.iter().enumerate().skip(skip) {
                if slice.is_done() {
                    let added = AddedJobs { row: row.seq, jobs };
                    return Ok(Position::Rows { after, added });
                }
                self.add_ended(cx, census, slice, &row.class, *job)?;
            }
            after = row.seq;
        }
        if rows.len() == ROWS_PER_SLICE as usize {
            let added = AddedJobs::default();
            return Ok(Position::Rows { after, added });
        }
        Ok(Position::Rest(cx.ended_without_row().to_vec()))
    }

    /// Adds the next jobs that were in no row.
    fn add_rest(
        &mut self,
        cx: &Context,
        census: &Census,
        slice: &mut Slice,
        mut rest: Vec<(EndedClass, Vec<(EndedJob, JobUsage)>)>,
    ) -> Result<Position, RequestError> {
        while let Some((class, jobs)) = rest.last_mut() {
            if slice.is_done() {
                break;
            }
            if let Some(job) = jobs.pop() {
                self.add_ended(cx, census, slice, class, job)?;
            } else {
                rest.pop();
            }
        }
        Ok(Position::Rest(rest))
    }

    /// Adds an ended job, unless it was purged.
    fn add_ended(
        &mut self,
        cx: &Context,
        census: &Census,
        slice: &mut Slice,
        class: &EndedClass,
        (job, usage): (EndedJob, JobUsage),
    ) -> Result<(), RequestError> {
        let queue = class.queue.as_deref();
        if usage.begin <= 0.0
            || !self.has_user(job.userid)
            || !self.has_queue(queue)
            || self.active.contains(&job.id)
            || !census.inactive().has((EventTime::new(job.end), job.id))
        {
            return Ok(());
        }
        let queue = self.names.id_of(queue);
        let mut account = [0; 2];
        if self.has(UsageKey::Project) || self.has(UsageKey::Bank) {
            if !self.specs.contains_key(&job.spec) {
                slice.specs = slice.specs.saturating_sub(1);
                if self.specs.len() >= MAX_SPECS {
                    self.specs.clear();
                }
                let stored = cx.read_jobspec(job.spec);
                if slice.reads.is_reached(cx) {
                    slice.specs = 0;
                }
                let account = match &stored {
                    Some(stored) => self.account(&stored.spec),
                    None => [self.names.id_of(None); 2],
                };
                self.specs.insert(job.spec, account);
            }
            account = self.specs.get(&job.spec).copied().unwrap_or_default();
        }
        let [project, bank] = account;
        self.add(slice, job.userid, [queue, project, bank], usage, job.end)
    }

    /// Adds what a job has used until its end, to the sum of each span in which it has run.
    fn add(
        &mut self,
        slice: &mut Slice,
        userid: u32,
        [queue, project, bank]: [NameId; 3],
        usage: JobUsage,
        end: f64,
    ) -> Result<(), RequestError> {
        let (Some(first), Some(last)) = (self.times.first(), self.times.last()) else {
            return Ok(());
        };
        let mut begin = usage.begin.max(*first);
        let end = end.min(*last).min(self.now);
        let name = |key: UsageKey, id: NameId| if self.has(key) { id } else { 0 };
        let names = [
            name(UsageKey::Queue, queue),
            name(UsageKey::Project, project),
            name(UsageKey::Bank, bank),
        ];
        let userid = self.has(UsageKey::User).then_some(userid);
        let mut span = self.times.partition_point(|time| *time <= begin);
        while begin < end {
            let Some(following) = self.times.get(span).map(|time| time.min(end)) else {
                break;
            };
            let sum = self.sums.entry((userid, names, span - 1)).or_default();
            let seconds = following - begin;
            sum.jobs += 1;
            sum.node_seconds += f64::from(usage.nodes) * seconds;
            sum.core_seconds += f64::from(usage.cores) * seconds;
            sum.gpu_seconds += f64::from(usage.gpus) * seconds;
            begin = following;
            span += 1;
            slice.additions = slice.additions.saturating_sub(1);
        }
        if self.sums.len() > MAX_SUMS {
            let text = format!("more than {MAX_SUMS} sums: expected fewer keys, times or jobs");
            return Err(RequestError::new(EOVERFLOW, text));
        }
        Ok(())
    }

    fn response(&mut self) -> UsageResponse {
        let sums = std::mem::take(&mut self.sums).into_iter();
        let text = |key: UsageKey, id: NameId| {
            let text = self.has(key).then(|| self.names.text(id));
            text.flatten()
        };
        let sums = sums.map(|((userid, [queue, project, bank], span), sum)| UsageSum {
            userid,
            queue: text(UsageKey::Queue, queue),
            project: text(UsageKey::Project, project),
            bank: text(UsageKey::Bank, bank),
            span,
            ..sum
        });
        UsageResponse {
            sums: sums.collect(),
        }
    }
}

/// The requests whose sums are not complete, in their order: one at a time has sums in memory.
#[derive(Debug, Default)]
pub(crate) struct UsageRequests {
    open: VecDeque<OpenUsage>,
}

impl UsageRequests {
    /// `job-list.usage`.
    pub(crate) fn open(&mut self, request: Request<'_>, visible: VisibleJobs, now: f64) -> Handled {
        let open = OpenUsage::new(request, visible, now)?;
        let userid = request.sender.userid;
        let of_user = |open: &&OpenUsage| open.request.credentials().userid == userid;
        if self.open.iter().filter(of_user).count() >= MAX_OPEN_OF_USER {
            let text = format!(
                "{MAX_OPEN_OF_USER} requests of the user are open: expected another one after their responses"
            );
            return Err(RequestError::new(EAGAIN, text));
        }
        if !request.message.is_noresponse() {
            self.open.push_back(open);
        }
        Ok(Reply::Deferred)
    }

    /// Adds the next jobs to the sums of the first request, and responds if these are complete.
    pub(crate) fn run_next_slice(&mut self, cx: &mut Context, census: &Census) {
        let Some(mut open) = self.open.pop_front() else {
            return;
        };
        match open.run_slice(cx, census) {
            Ok(false) => self.open.push_front(open),
            Ok(true) => {
                let response = open.response();
                cx.respond_with(&open.request, &response);
            }
            Err(error) => cx.reject(&open.request, &error),
        }
    }

    /// Whether a request is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Drops the requests of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        self.open
            .retain(|open| open.request.origin() != Some(origin));
    }
}
