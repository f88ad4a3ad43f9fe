//! `UsageRequests`: `job-list.usage`, what jobs have used, summed by keys and by spans of time.
//!
//! The sums of a million jobs are made in slices, one for each call of [`Manager::take_messages`](crate::Manager::take_messages).
//! First come the jobs in memory that are active or that others refer to, then the rows of ended jobs in the store, and at
//! last the ended jobs that are not in such a row yet. A job that ends meanwhile is counted once.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Bound;

use penstock_flux::RequestError;
use penstock_flux::errno::EOVERFLOW;
use penstock_flux::job_list::{UsageKey, UsageRequest, UsageResponse, UsageSum};
use penstock_jobspec::job_id::JobId;
use penstock_store::{EndedClass, EndedJob, JobUsage};
use penstock_wire::Message;

use crate::authorize::VisibleJobs;
use crate::census::Census;
use crate::context::Context;
use crate::event::EventTime;
use crate::jobs::is_evictable;
use crate::rpc::{Handled, Reply, Request};
use crate::spec::Spec;
use crate::state::State;

/// Maximum number of jobs in memory that are looked at in one slice: less than a millisecond's work unless many run.
const JOBS_PER_SLICE: usize = if cfg!(debug_assertions) { 3 } else { 5000 };
/// Maximum number of rows of ended jobs that are read in one slice: some milliseconds' work.
const ROWS_PER_SLICE: u32 = if cfg!(debug_assertions) { 2 } else { 8 };
/// Maximum number of jobspecs that are read in one slice, for projects and banks: some milliseconds' work.
const SPECS_PER_SLICE: usize = if cfg!(debug_assertions) { 2 } else { 100 };
/// Maximum number of jobspecs whose project and bank a request has in memory.
const MAX_SPECS: usize = 100_000;
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
    /// The jobs in the rows after this one; the first jobs of the next row were added, as many as `skip`.
    Rows { after: i64, skip: usize },
}

/// A request whose sums are not complete.
#[derive(Debug)]
struct OpenUsage {
    request: Message,
    visible: VisibleJobs,
    by: Vec<UsageKey>,
    times: Vec<f64>,
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
    fn new(request: Request<'_>, visible: VisibleJobs) -> Result<Self, RequestError> {
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
        match self.position {
            Position::Memory(after) => {
                self.add_jobs_in_memory(cx, after)?;
                Ok(false)
            }
            Position::Rows { after, skip } => self.add_rows(cx, census, after, skip),
        }
    }

    fn add_jobs_in_memory(
        &mut self,
        cx: &Context,
        after: Bound<JobId>,
    ) -> Result<(), RequestError> {
        let mut next = Position::Rows {
            after: i64::MIN,
            skip: 0,
        };
        for (looked_at, (id, job)) in cx.jobs.range((after, Bound::Unbounded)).enumerate() {
            if looked_at == JOBS_PER_SLICE {
                break;
            }
            next = Position::Memory(Bound::Excluded(id));
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
                f64::INFINITY
            } else {
                record.t_inactive()
            };
            let queue = self.names.id_of(spec.queue.as_deref());
            let [project, bank] = self.account(spec);
            let names = [queue, project, bank];
            self.add(record.userid(), names, record.job_usage(), end)?;
        }
        if let Position::Memory(Bound::Excluded(last)) = next {
            let rest = (Bound::Excluded(last), Bound::Unbounded);
            if cx.jobs.range(rest).next().is_none() {
                next = Position::Rows {
                    after: i64::MIN,
                    skip: 0,
                };
            }
        }
        self.position = next;
        Ok(())
    }

    /// The project and the bank of a jobspec.
    fn account(&mut self, spec: &Spec) -> [NameId; 2] {
        let names = [spec.project.as_deref(), spec.bank.as_deref()];
        names.map(|name| self.names.id_of(name))
    }

    /// Adds the jobs of the next rows, and behind the last one those that are in no row yet. Returns whether these were the
    /// last.
    fn add_rows(
        &mut self,
        cx: &Context,
        census: &Census,
        mut after: i64,
        mut skip: usize,
    ) -> Result<bool, RequestError> {
        let mut reads = 0;
        let rows = cx.read_store(|store| store.ended_rows(after, ROWS_PER_SLICE));
        let is_last = rows.len() < ROWS_PER_SLICE as usize;
        for row in &rows {
            for (index, job) in row.jobs.iter().enumerate().skip(skip) {
                if reads == SPECS_PER_SLICE {
                    self.position = Position::Rows { after, skip: index };
                    return Ok(false);
                }
                reads += usize::from(self.add_ended(cx, census, &row.class, *job)?);
            }
            (after, skip) = (row.seq, 0);
        }
        self.position = Position::Rows { after, skip };
        if is_last {
            for (class, jobs) in cx.ended_without_row() {
                for job in jobs {
                    self.add_ended(cx, census, class, *job)?;
                }
            }
        }
        Ok(is_last)
    }

    /// Adds an ended job, unless it was purged. Returns whether its jobspec was read.
    fn add_ended(
        &mut self,
        cx: &Context,
        census: &Census,
        class: &EndedClass,
        (job, usage): (EndedJob, JobUsage),
    ) -> Result<bool, RequestError> {
        let queue = class.queue.as_deref();
        if usage.begin <= 0.0
            || !self.has_user(job.userid)
            || !self.has_queue(queue)
            || self.active.contains(&job.id)
            || !census.inactive().has((EventTime::new(job.end), job.id))
        {
            return Ok(false);
        }
        let queue = self.names.id_of(queue);
        let mut is_read = false;
        let mut account = [0; 2];
        if self.has(UsageKey::Project) || self.has(UsageKey::Bank) {
            if !self.specs.contains_key(&job.spec) {
                is_read = true;
                if self.specs.len() >= MAX_SPECS {
                    self.specs.clear();
                }
                let stored = cx.read_jobspec(job.spec);
                let account = match &stored {
                    Some(stored) => self.account(&stored.spec),
                    None => [self.names.id_of(None); 2],
                };
                self.specs.insert(job.spec, account);
            }
            account = self.specs.get(&job.spec).copied().unwrap_or_default();
        }
        let [project, bank] = account;
        self.add(job.userid, [queue, project, bank], usage, job.end)?;
        Ok(is_read)
    }

    /// Adds what a job has used until its end, to the sum of each span in which it has run.
    fn add(
        &mut self,
        userid: u32,
        [queue, project, bank]: [NameId; 3],
        usage: JobUsage,
        end: f64,
    ) -> Result<(), RequestError> {
        let (Some(first), Some(last)) = (self.times.first(), self.times.last()) else {
            return Ok(());
        };
        let mut begin = usage.begin.max(*first);
        let end = end.min(*last);
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

/// The requests whose sums are not complete, the one whose slice is next first.
#[derive(Debug, Default)]
pub(crate) struct UsageRequests {
    open: VecDeque<OpenUsage>,
}

impl UsageRequests {
    /// `job-list.usage`.
    pub(crate) fn open(&mut self, request: Request<'_>, visible: VisibleJobs) -> Handled {
        let open = OpenUsage::new(request, visible)?;
        if !request.message.is_noresponse() {
            self.open.push_back(open);
        }
        Ok(Reply::Deferred)
    }

    /// Adds the next jobs to the sums of the request that has waited longest, and responds if these are complete.
    pub(crate) fn run_next_slice(&mut self, cx: &mut Context, census: &Census) {
        let Some(mut open) = self.open.pop_front() else {
            return;
        };
        match open.run_slice(cx, census) {
            Ok(false) => self.open.push_back(open),
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
