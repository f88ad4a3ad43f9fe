//! The event loop of the service: the instance's socket, the reaper's socket, the journal, output files and the clock.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use std::{env, iter, mem};

use penstock_idset::IdSet;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::Mode;
use rustix::process::{Pid, PidfdFlags, geteuid, getrlimit, pidfd_open, umask};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::broker::{Backoff, Broker, Server, is_temporary, log, now};
use super::directory::{self, Directory, IfLocked};
use super::empty_files::EmptyFiles;
use super::job_directories::JobDirectories;
use super::job_places::{self, JOB_DIRECTORIES, PlaceOptions};
use super::output_directories::OutputDirectories;
use super::output_usage::OutputCount;
use super::remove_directory::{DirectoryRemover, RemovalFailure};
use super::spawn::RESOURCES;
use super::{procfs, syscalls};
use crate::log::LogContents;
use crate::protocol::{Hello, Output, Request, TaskSpec};
use crate::service::journal::{JournalContents, JournalId};
use crate::service::{
    Chunk, Effect, GuestSettings, JobDirectoryPlaces, ReaderId, Service, Settings, Stream,
    TaskContext, job_directory, pmi_socket,
};
use crate::types::JobId;
use crate::{Client, Error};

/// Bytes of output in one message.
const MAX_OUTPUT_CHUNK_BYTES: usize = 64 << 10;
/// Unsent bytes above which no more output is read.
const MAX_UNSENT_OUTPUT_BYTES: usize = 1 << 20;
/// Time after its start in which a service that takes over tries to register although its name is taken: the instance
/// may not have noticed yet that the service before has ended.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest wait for the end of a process that has failed to start a reaper: the standby of a killed one does not end.
const MAX_REAPER_END: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
/// The longest wait for the end of a reaper's standby after that of the reaper.
const MAX_STANDBY_END: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};
const REAPER_DIRECTORY: &str = "reaper";
const OUTPUT_DIRECTORY: &str = "output";
const PMI_DIRECTORY: &str = "pmi";
const PMIX_DIRECTORY: &str = "pmix";
const PMIX_LOG: &str = "pmix.log";

/// The options of a service.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// The instance's address, `local:///PATH`.
    pub uri: String,
    /// The users whose instance it may be, beside this one and root.
    pub server_users: BTreeSet<u32>,
    /// The directory of journal and reaper. It is created, accessible only to the user.
    pub directory: PathBuf,
    /// The directory of retained output, if it is another one than `output` in `directory`. It is created, accessible
    /// only to the user.
    pub output_directory: Option<PathBuf>,
    /// The name under which the service registers.
    pub name: String,
    /// The program `penstock-reaper`.
    pub reaper: PathBuf,
    /// The guests whose jobs are run, if the user is root.
    pub guests: GuestSettings,
    /// The name of the instance in the paths of job directories.
    pub instance_name: String,
    /// The directory in which job directories are made, in `INSTANCE/jobs`. By default those of guests are in `/run/penstock`, and
    /// those of the user in `directory`.
    pub job_directory: Option<PathBuf>,
    /// The parent of the cgroups of jobs: `auto`, `none` or a path.
    pub cgroup: String,
    /// Time between SIGTERM and SIGKILL, in seconds.
    pub kill_timeout_s: f64,
    /// Bytes of retained output at which a job is killed; 0 for no limit.
    pub output_limit: u64,
    /// Free bytes of the file system of retained output below which no job of a guest with such output is started; 0 for none.
    pub output_reserve: u64,
    /// Bytes of retained output of all jobs of a guest; 0 for no limit.
    pub user_output_limit: u64,
    /// Whether tasks are bound to their cores.
    pub bind: bool,
    /// Whether the journal is flushed to disk before tasks start.
    pub sync: bool,
    /// The reaction to a service that uses the directory.
    pub if_locked: IfLocked,
    /// Whether the service ends when the instance has gone and no job has a process.
    pub end_when_idle: bool,
    /// The instance that the directory's journal belongs to.
    pub journal_owner: JournalOwner,
}

impl ServiceOptions {
    /// The directory of retained output.
    fn output(&self) -> PathBuf {
        let own = || self.directory.join(OUTPUT_DIRECTORY);
        self.output_directory.clone().unwrap_or_else(own)
    }

    fn places(&self) -> PlaceOptions<'_> {
        PlaceOptions {
            service: &self.directory,
            instance: &self.instance_name,
            named: self.job_directory.as_deref(),
        }
    }
}

/// The instance that a service's journal belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalOwner {
    /// The instance at the address for which the journal was created.
    Address,
    /// The instance that has the directory in its state, at whatever address.
    State,
}

/// Runs a service in this process. Returns when it is of no use, with
/// [`end_when_idle`](ServiceOptions::end_when_idle); otherwise it runs until it is killed, by SIGTERM for example, and its
/// tasks continue after that.
///
/// # Errors
///
/// Fails if the directory is unsuitable or used by another service, if there is no instance, or if the instance rejects
/// the registration.
pub fn run_service(options: ServiceOptions) -> Result<(), Error> {
    syscalls::accept_signal(libc::SIGTERM);
    // Beyond RLIMIT_FSIZE a write of the journal fails, and is retried. The reaper resets its signals.
    syscalls::ignore_signal(libc::SIGXFSZ);
    // Another process opens an output file on which this one has a lease.
    syscalls::ignore_signal(libc::SIGIO);
    let server = Server::new(&options.uri, &options.server_users)?;
    create_private(&options.directory)?;
    let mut directory = Directory::open(&options.directory, directory::JOURNAL_FILE)?;
    // Another service is ended only if this one can replace it.
    read_journal(&directory, &options)?;
    check_reaper(&options.directory.join(REAPER_DIRECTORY))?;
    let broker = Broker::connect(&server)?;
    directory.lock(directory::LOCK_FILE, "execution service", options.if_locked)?;
    let journal = read_journal(&directory, &options)?;
    let output = options.output();
    create_private(&output)?;
    directory::open_private(&output)?;
    if options.output_directory.is_some() {
        directory::claim_output(&output, &options.directory)?;
    }
    for name in [
        REAPER_DIRECTORY,
        PMI_DIRECTORY,
        PMIX_DIRECTORY,
        JOB_DIRECTORIES,
    ] {
        create_private(&options.directory.join(name))?;
    }
    let earlier_jobs = journal.jobs.keys().copied().collect();
    let (places, former) = job_places::prepare(options.places(), &earlier_jobs)?;
    let failed = |error: io::Error| Error::system("the service failed", &error);
    let settings = settings(&options, places.clone()).map_err(failed)?;
    let mut service = Service::new(settings, journal);
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|errno| failed(errno.into()))?;
    let removals = event.try_clone().map_err(failed)?;
    let (remover, removal_failures) = DirectoryRemover::start(removals).map_err(failed)?;
    for parent in iter::once(&options.directory.join(PMIX_DIRECTORY)).chain(&former) {
        remove_old_job_directories(parent, &service, &remover);
    }
    let known = service.known_jobs().collect();
    let outputs = OutputDirectories::new(&options.directory, output.clone(), known);
    service.register();
    let mut event_loop = EventLoop {
        server,
        empty_files: EmptyFiles::new(output),
        job_directories: JobDirectories::start(
            remover.clone(),
            options.reaper.with_file_name("penstock-imp"),
            event,
        )
        .map_err(failed)?,
        places,
        remover,
        removal_failures,
        outputs,
        log: directory.open_log().map_err(failed)?,
        log_len: 0,
        is_torn: false,
        directory,
        broker: Some(broker),
        reaper: None,
        reapers: Vec::new(),
        broker_backoff: Backoff::default(),
        reaper_backoff: Backoff::default(),
        reads: VecDeque::new(),
        counted: None,
        is_announced: false,
        started_at: Instant::now(),
        options,
    };
    event_loop.run(&mut service).map_err(failed)?;
    match service.failure() {
        Some(text) => Err(Error::directory(text.to_owned())),
        None => Ok(()),
    }
}

/// Reads the journal, and checks that it is that of the same instance: the one at this address, unless the directory is
/// the instance's own.
fn read_journal(directory: &Directory, options: &ServiceOptions) -> Result<JournalContents, Error> {
    let journal = if let Some(journal) = directory.decode_log(JournalContents::decode)? {
        journal
    } else {
        let id = procfs::random_id()
            .map_err(|error| Error::system("cannot draw a random number", &error))?;
        JournalContents::new(&options.uri, JournalId(id))
    };
    if journal.instance == options.uri || options.journal_owner == JournalOwner::State {
        return Ok(journal);
    }
    Err(Error::directory(format!(
        "directory `{}` belongs to the instance at `{}`: expected `{}`",
        options.directory.display(),
        journal.instance,
        options.uri
    )))
}

/// Checks that the reaper of a directory, or the log of one that has ended, is of this version.
fn check_reaper(path: &Path) -> Result<(), Error> {
    if !path.exists() {
        return Ok(());
    }
    match Client::connect(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(Error::other_version(error.to_string()).in_file(path))
        }
        Err(_) => {
            let directory = Directory::open(path, directory::LOG_FILE)?;
            directory.decode_log(LogContents::decode).map(drop)
        }
    }
}

fn create_private(path: &Path) -> Result<(), Error> {
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| {
            Error::system(
                &format!("cannot create directory `{}`", path.display()),
                &error,
            )
        })
}

fn settings(options: &ServiceOptions, job_directories: JobDirectoryPlaces) -> io::Result<Settings> {
    let mask = umask(Mode::empty());
    umask(mask);
    let set = sched_getaffinity(None)?;
    let mut cpus = IdSet::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)) {
        cpus.insert(u32::try_from(cpu).map_err(io::Error::other)?);
    }
    let hard_limits = RESOURCES.into_iter().map(|resource| {
        let hard_limit = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        (resource as u32, hard_limit)
    });
    let bytes = |text: std::ffi::OsString| text.into_vec();
    let environment = env::vars_os().map(|(name, value)| (bytes(name), bytes(value)));
    let directory = env::current_dir()?.into_os_string().into_vec();
    Ok(Settings {
        name: options.name.clone(),
        owner: geteuid().as_raw(),
        guests: geteuid().is_root().then_some(options.guests),
        boot: procfs::boot_id()?,
        task_context: TaskContext {
            uri: options.uri.clone(),
            job_directories,
            pmi_sockets: options.directory.join(PMI_DIRECTORY),
            pmix_directories: options.directory.join(PMIX_DIRECTORY),
            pmix_log: options.directory.join(PMIX_LOG),
            programs: env::current_exe()?.with_file_name(""),
            environment: environment.collect(),
            directory: CString::new(directory)?,
            output: options.output(),
            cpus,
            bind: options.bind,
            umask: mask.bits(),
            hard_limits: hard_limits.collect(),
        },
        kill_timeout_s: options.kill_timeout_s,
        output_limit: options.output_limit,
        output_reserve: options.output_reserve,
        user_output_limit: options.user_output_limit,
        end_when_idle: options.end_when_idle,
    })
}

/// A reaper that this process has started.
struct StartedReaper {
    child: Child,
    pidfd: OwnedFd,
}

struct EventLoop {
    options: ServiceOptions,
    server: Server,
    outputs: OutputDirectories,
    empty_files: EmptyFiles,
    remover: DirectoryRemover,
    removal_failures: Receiver<RemovalFailure>,
    job_directories: JobDirectories,
    places: JobDirectoryPlaces,
    directory: Directory,
    log: File,
    log_len: u64,
    /// Whether a failed write may have left a part of a record behind `log_len`.
    is_torn: bool,
    broker: Option<Broker>,
    reaper: Option<Client>,
    /// Reapers that this process has started: its children.
    reapers: Vec<StartedReaper>,
    broker_backoff: Backoff,
    reaper_backoff: Backoff,
    /// Output to read when there is room for it.
    reads: VecDeque<(ReaderId, JobId, Stream, u64)>,
    /// The count of guests' output that has begun.
    counted: Option<OutputCount>,
    is_announced: bool,
    started_at: Instant,
}

impl EventLoop {
    fn run(&mut self, service: &mut Service) -> io::Result<()> {
        loop {
            self.connect_broker(service);
            self.connect_reaper(service);
            self.read_output(service);
            self.count_output(service);
            service.advance(now());
            self.carry_out(service);
            if service.is_finished() {
                log("the instance has gone, and no job runs: ending");
                let reaper = self.options.directory.join(REAPER_DIRECTORY);
                directory::wait_for_standby_end(&reaper, MAX_STANDBY_END)?;
                return Ok(());
            }
            if service.failure().is_some() && self.broker.is_some() {
                if !self.is_taking_over(service) {
                    return Ok(());
                }
                self.disconnect_broker(service);
                continue;
            }
            if service.is_synchronized() && !mem::replace(&mut self.is_announced, true) {
                self.broker_backoff = Backoff::default();
                log(&format!("ready, {} jobs", service.jobs()));
            }
            self.wait(service)?;
        }
    }

    fn connect_broker(&mut self, service: &mut Service) {
        if self.broker.is_some() || !self.broker_backoff.is_due() {
            return;
        }
        match Broker::connect(&self.server) {
            Ok(broker) => {
                self.broker = Some(broker);
                service.register();
            }
            Err(_) => self.broker_backoff.record_failure(),
        }
    }

    fn connect_reaper(&mut self, service: &mut Service) {
        if self.reaper.is_some() || !self.reaper_backoff.is_due() {
            return;
        }
        match self.open_reaper() {
            Ok((client, hello)) => {
                self.reaper = Some(client);
                self.reaper_backoff = Backoff::default();
                service.handle_reaper_connection(hello);
            }
            Err(error) => {
                let is_expected = error.kind() == ErrorKind::WouldBlock;
                if self.reaper_backoff.is_fresh() && !is_expected {
                    log(&format!("cannot start a reaper: {error}"));
                }
                self.reaper_backoff.record_failure();
            }
        }
    }

    /// Connects to the reaper of the directory, and starts one if none is running.
    fn open_reaper(&mut self) -> io::Result<(Client, Hello)> {
        let directory = self.options.directory.join(REAPER_DIRECTORY);
        let client = match Client::connect(&directory) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused
                ) =>
            {
                if directory::has_standby(&directory)? {
                    // It is about to listen, or to end.
                    return Err(ErrorKind::WouldBlock.into());
                }
                let (reaper, is_listening) = start_reaper(&self.options, &directory)?;
                self.reapers.push(reaper);
                if !is_listening {
                    return Err(ErrorKind::WouldBlock.into());
                }
                Client::connect(&directory)?
            }
            result => result?,
        };
        let hello = client.hello();
        Ok((client, hello))
    }

    /// Waits for the next input, and passes it in.
    fn wait(&mut self, service: &mut Service) -> io::Result<()> {
        let timeout = self.timeout(service).map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut fds = Vec::with_capacity(3 + self.reapers.len());
        if let Some(broker) = &self.broker {
            fds.push(broker.poll_fd());
        }
        if let Some(reaper) = &self.reaper {
            fds.push(PollFd::new(reaper.stream(), PollFlags::IN));
        }
        fds.push(PollFd::from_borrowed_fd(
            self.job_directories.event(),
            PollFlags::IN,
        ));
        for reaper in &self.reapers {
            fds.push(PollFd::new(&reaper.pidfd, PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let mut ready = fds.iter().map(|fd| fd.revents().intersects(ready));
        let is_broker_ready = self.broker.is_some() && ready.next() == Some(true);
        let is_reaper_ready = self.reaper.is_some() && ready.next() == Some(true);
        let is_directory_ready = ready.next() == Some(true);
        let has_reaper_ended = ready.any(|is_ready| is_ready);
        drop(fds);
        if is_directory_ready {
            for (job, result) in self.job_directories.take_results() {
                service.finish_job_directory(job, result);
            }
            for failure in self.removal_failures.try_iter() {
                service.log_user(failure.user, &failure.text);
            }
        }
        if has_reaper_ended {
            // Ended reapers are children until they are waited for.
            self.reapers
                .retain_mut(|reaper| matches!(reaper.child.try_wait(), Ok(None)));
        }
        if is_reaper_ready {
            self.receive_from_reaper(service);
        }
        if is_broker_ready {
            self.receive_from_broker(service);
        }
        Ok(())
    }

    /// The timeout of the next wait.
    fn timeout(&self, service: &Service) -> Option<Duration> {
        let deadline = service
            .deadline()
            .map(|at| Duration::try_from_secs_f64(at - now()).unwrap_or_default());
        let broker = self
            .broker
            .is_none()
            .then(|| self.broker_backoff.remaining());
        let reaper = self
            .reaper
            .is_none()
            .then(|| self.reaper_backoff.remaining());
        let has_work = self.can_read_output() || self.counted.is_some();
        let reads = has_work.then_some(Duration::ZERO);
        [deadline, broker, reaper, reads]
            .into_iter()
            .flatten()
            .min()
    }

    fn receive_from_broker(&mut self, service: &mut Service) {
        let Some(broker) = &mut self.broker else {
            return;
        };
        let mut messages = Vec::new();
        let result = broker.receive(&mut messages);
        for message in &messages {
            service.handle(message);
        }
        if let Err(error) = result {
            self.lose_broker(service, &error);
        }
    }

    fn lose_broker(&mut self, service: &mut Service, error: &io::Error) {
        log(&format!(
            "the instance closed the connection: {error}: tasks continue"
        ));
        self.disconnect_broker(service);
    }

    fn disconnect_broker(&mut self, service: &mut Service) {
        self.broker = None;
        self.is_announced = false;
        self.reads.clear();
        self.broker_backoff.record_failure();
        service.handle_disconnect();
    }

    /// Whether the name is to become free: that of the service before.
    fn is_taking_over(&self, service: &Service) -> bool {
        let is_soon = self.started_at.elapsed() < TAKE_OVER_TIMEOUT;
        self.options.if_locked == IfLocked::EndHolder && service.is_name_taken() && is_soon
    }

    fn receive_from_reaper(&mut self, service: &mut Service) {
        let Some(reaper) = &mut self.reaper else {
            return;
        };
        match reaper.receive_available() {
            Ok(messages) => {
                for message in messages {
                    service.handle_reaper_message(message);
                }
            }
            Err(error) if is_temporary(&error) => {}
            Err(error) => self.lose_reaper(service, &error),
        }
    }

    fn lose_reaper(&mut self, service: &mut Service, error: &io::Error) {
        log(&format!("the connection to the reaper is lost: {error}"));
        self.reaper = None;
        service.handle_reaper_loss();
    }

    /// Carries out the service's effects until there are none.
    fn carry_out(&mut self, service: &mut Service) {
        loop {
            service.advance_jobs(now());
            let effects = service.take_effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.perform(effect, service);
            }
        }
        if let Some(broker) = &mut self.broker
            && let Err(error) = broker.flush()
        {
            self.lose_broker(service, &error);
        }
    }

    fn perform(&mut self, effect: Effect, service: &mut Service) {
        match effect {
            Effect::Append(records) => {
                let result = self.append(&records);
                service.finish_write(result, now());
            }
            Effect::Rewrite(contents) => {
                let result = self.rewrite(&contents);
                service.finish_write(result, now());
            }
            Effect::MakeJobDirectory(directory) => {
                let path = self.places.directory(directory.job, directory.owner);
                self.job_directories.make(path, directory);
            }
            Effect::RemoveJobDirectory(job, owner) => {
                let path = self.places.directory(job, owner);
                self.job_directories.remove(path);
            }
            Effect::RemovePmiSocket(job) => {
                let sockets = self.options.directory.join(PMI_DIRECTORY);
                // The socket is missing if the server could not be started.
                let _ = fs::remove_file(pmi_socket(&sockets, job));
            }
            Effect::RemovePmixDirectory(job) => {
                let directories = self.options.directory.join(PMIX_DIRECTORY);
                self.remover.remove(job_directory(&directories, job));
            }
            Effect::ReuseEmptyOutput { job, guest } => self.empty_files.add(job, guest),
            Effect::Request(id, request) => {
                if let Request::Spawn(tasks) = &request {
                    self.provide_output(tasks);
                }
                // A lost request is sent again after the next list.
                if let Some(reaper) = &mut self.reaper
                    && let Err(error) = reaper.send_as(id, &request)
                {
                    self.lose_reaper(service, &error);
                }
                self.empty_files.restore_names();
            }
            Effect::Send(message) => {
                if let Some(broker) = &mut self.broker {
                    broker.send(&message);
                }
            }
            Effect::MeasureOutput(job) => {
                let (place, bytes) = self.outputs.measure(job);
                service.take_output_place(job, place);
                service.take_output_size(job, bytes);
            }
            Effect::MeasureSpace => {
                service.take_free_space(&self.outputs.free_space(), now());
            }
            Effect::CountOutput => match OutputCount::new(self.outputs.present()) {
                Ok(count) => self.counted = Some(count),
                Err(error) => self.abandon_count(service, &error),
            },
            Effect::ReadOutput {
                reader,
                job,
                stream,
                offset,
            } => self.reads.push_back((reader, job, stream, offset)),
            Effect::Log(text) => log(&text.escape_debug().to_string()),
        }
    }

    // --- the journal

    fn append(&mut self, records: &[u8]) -> io::Result<()> {
        if self.is_torn {
            // Records after a part of one could not be read.
            self.log.set_len(self.log_len)?;
        }
        self.is_torn = true;
        self.log.write_all(records)?;
        if self.options.sync {
            self.log.sync_data()?;
        }
        self.is_torn = false;
        self.log_len += records.len() as u64;
        Ok(())
    }

    fn rewrite(&mut self, contents: &[u8]) -> io::Result<()> {
        self.log = self.directory.replace_log(contents)?;
        self.log_len = contents.len() as u64;
        self.is_torn = false;
        Ok(())
    }

    // --- output

    /// Puts empty files where tasks would create files of retained output: those of ended jobs, or new ones.
    fn provide_output(&mut self, tasks: &[TaskSpec]) {
        for task in tasks {
            for output in [&task.stdout, &task.stderr] {
                if let Output::Append(path) | Output::Truncate(path) = output {
                    let path = Path::new(OsStr::from_bytes(path.as_bytes()));
                    let guest = task.guest.map(|guest| guest.uid);
                    self.empty_files.provide(path, guest);
                    // The reaper creates that of a guest, with its group.
                    if guest.is_none() {
                        self.empty_files.create(path);
                    }
                }
            }
        }
    }

    /// Takes a step of a count of guests' output, if one has begun.
    fn count_output(&mut self, service: &mut Service) {
        match self.counted.as_mut().map(OutputCount::step) {
            Some(Ok(Some(files))) => service.take_output_files(&files),
            Some(Ok(None)) => {
                self.counted = None;
                service.finish_output_count(now());
            }
            Some(Err(error)) => self.abandon_count(service, &error),
            None => {}
        }
    }

    /// Ends a count that has failed: what it has found is the use of guests until the next one.
    fn abandon_count(&mut self, service: &mut Service, error: &io::Error) {
        let directory = self.outputs.present().display();
        log(&format!(
            "cannot count the output in `{directory}`: {error}"
        ));
        self.counted = None;
        service.finish_output_count(now());
    }

    fn can_read_output(&self) -> bool {
        let unsent = self.broker.as_ref().map(Broker::unsent_bytes);
        !self.reads.is_empty() && unsent.is_some_and(|unsent| unsent <= MAX_UNSENT_OUTPUT_BYTES)
    }

    fn read_output(&mut self, service: &mut Service) {
        // Each reader once a call: the results of these reads may ask for the next ones.
        for _ in 0..self.reads.len() {
            if !self.can_read_output() {
                return;
            }
            if let Some((reader, job, stream, offset)) = self.reads.pop_front() {
                let path = self.outputs.file(job, stream);
                service.take_output_chunk(reader, read_chunk(&path, offset));
            }
        }
    }
}

/// Starts a reaper. Returns whether it listens: if it was killed meanwhile, its standby is about to listen.
fn start_reaper(options: &ServiceOptions, directory: &Path) -> io::Result<(StartedReaper, bool)> {
    let program = &options.reaper;
    let mut command = Command::new(program);
    command.arg("--directory").arg(directory);
    command.arg("--cgroup").arg(&options.cgroup);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("`{}`: {error}", program.display()))
    })?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    let is_listening = line == "listening\n";
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    if !is_listening {
        poll(
            &mut [PollFd::new(&pidfd, PollFlags::IN)],
            Some(&MAX_REAPER_END),
        )?;
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("it ended with {status}")));
        }
    }
    Ok((StartedReaper { child, pidfd }, is_listening))
}

/// Removes the directories of jobs that are not in the journal.
fn remove_old_job_directories(path: &Path, service: &Service, remover: &DirectoryRemover) {
    let known = service
        .known_jobs()
        .map(|job| job_directory(path, job))
        .collect::<BTreeSet<_>>();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let path = entry.path();
        if !known.contains(&path) {
            remover.remove(path);
        }
    }
}

fn read_chunk(path: &Path, offset: u64) -> Chunk {
    let read = |mut file: File| {
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(MAX_OUTPUT_CHUNK_BYTES as u64)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match File::open(path).and_then(read) {
        Ok(bytes) => Chunk::Data(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Chunk::Missing,
        Err(error) => Chunk::Failed(format!("cannot read `{}`: {error}", path.display())),
    }
}
