//! `penstock-exec`: an execution service (RFC 32) whose tasks outlive it.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use penstock_exec::UsageError;
use penstock_exec::linux::{
    CgroupPlace, IfLocked, JournalOwner, ServiceOptions, SimulationOptions, pmi_program,
    run_service, run_simulation, serve_pmi,
};
use penstock_exec::service::GuestSettings;
use serde::Deserialize;

const USAGE: &str = "\
usage: penstock-exec [--uri URI] [--directory DIR] [--name NAME] [--kill-timeout SECONDS]
                     [--output-directory DIR] [--output-limit BYTES] [--output-reserve BYTES]
                     [--user-output-limit BYTES] [--job-directory DIR] [--oversubscribe] [--sync] [--reaper PROGRAM]
                     [--cgroup PLACE] [--min-guest-uid UID]
                     [--allow-new-privileges] [--take-over] [--end-when-idle] [--own-directory]
                     [--server-user UID]...
       penstock-exec --simulate [--uri URI] [--name NAME] [--server-user UID]...

Runs the jobs of an instance on this machine. Tasks outlive it: when it is started again, it reports what has ended.

  --uri URI               the instance: local:///path or a path (default $PENSTOCK_URI, else the default socket);
                          `local://UID@/path` is an instance of that user
  --server-user UID       a user whose instance it may be, beside this user and root
  --directory DIR         journal and reaper (default: by the address, in $XDG_STATE_HOME/penstock/exec)
  --name NAME             the name under which it registers (default job-exec)
  --kill-timeout SECONDS  the time between SIGTERM and SIGKILL (default {kill-timeout})
  --output-directory DIR  retained output (default: `output` in --directory)
  --output-limit BYTES    retained output at which a job is killed (default {output-limit}; 0 for no limit)
  --output-reserve BYTES  free space that retained output of guests leaves: with no more, their jobs with such output do
                          not start, or block while they write, and those that continue to write are ended
                          (default {output-reserve}; 0 for none)
  --user-output-limit BYTES
                          retained output of all jobs of a guest (default {user-output-limit}; 0 for no limit)
  --job-directory DIR     job directories, in INSTANCE/jobs (default: those of guests in /run/penstock, others in
                          `jobs` in --directory)
  --oversubscribe         do not bind tasks to their cores
  --sync                  flush the journal to disk before tasks start
  --reaper PROGRAM        the program penstock-reaper (default: beside this program)
  --cgroup PLACE          where cgroups of jobs are made: a cgroup's path, `none`, or `auto`, the service's own
                          (default {cgroup}); it applies to reapers that are started from now on
  --min-guest-uid UID     the least user id whose jobs run, if root runs the service (default {min-guest-uid})
  --allow-new-privileges  let guests' tasks get privileges, by set-user-ID programs for instance
  --take-over             end a service that uses the directory, and continue with its journal
  --end-when-idle         end when the instance has gone and no job has a process
  --own-directory         the directory is in the instance's state: its address may have changed
  --simulate              run nothing: each job succeeds after the time that its jobspec says
";

const NO_INSTANCE_EXIT_CODE: u8 = 69;
/// The daemon that started the service does not start it again.
const UNSUITABLE_EXIT_CODE: u8 = 78;
const OTHER_VERSION_HINT: &str = "hint: start the earlier version until the running jobs have ended, or remove the directory: jobs that run \
    then end as lost, and their tasks continue";

/// The kinds of execution that the command line selects.
enum Mode {
    Service(ServiceOptions),
    Simulation(SimulationOptions),
}

/// The defaults of the configuration's section `exec`, as the Python package declares them.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Defaults {
    kill_timeout: f64,
    oversubscribe: bool,
    output_directory: Option<PathBuf>,
    output_limit: u64,
    output_reserve: u64,
    user_output_limit: u64,
    job_directory: Option<PathBuf>,
    cgroup: String,
    min_guest_uid: u32,
    allow_new_privileges: bool,
}

impl Defaults {
    fn declared() -> Result<Self, UsageError> {
        #[derive(Deserialize)]
        struct Declared {
            defaults: Defaults,
        }
        serde_json::from_str::<Declared>(include_str!("settings.json"))
            .map(|declared| declared.defaults)
            .map_err(|error| format!("settings.json: {error}").into())
    }
}

fn usage() -> String {
    let Ok(defaults) = Defaults::declared() else {
        return USAGE.to_owned();
    };
    USAGE
        .replace("{kill-timeout}", &defaults.kill_timeout.to_string())
        .replace("{output-limit}", &defaults.output_limit.to_string())
        .replace("{output-reserve}", &defaults.output_reserve.to_string())
        .replace(
            "{user-output-limit}",
            &defaults.user_output_limit.to_string(),
        )
        .replace("{cgroup}", &defaults.cgroup)
        .replace("{min-guest-uid}", &defaults.min_guest_uid.to_string())
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    match arguments.first().and_then(|first| first.to_str()) {
        Some("--help" | "-h") => {
            print!("{}", usage());
            return ExitCode::SUCCESS;
        }
        Some("--version") => {
            println!("penstock-exec {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        // As the reaper executes it for a job: no option of the service.
        Some("--serve-pmi") => return serve_pmi_of(arguments.into_iter().skip(1).collect()),
        _ => {}
    }
    let mode = match parse(arguments) {
        Ok(mode) => mode,
        Err(error) => {
            eprint!("penstock-exec: {error}\n\n{}", usage());
            return ExitCode::from(2);
        }
    };
    let result = match mode {
        Mode::Service(options) => run_service(options),
        Mode::Simulation(options) => run_simulation(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("penstock-exec: {error}");
            if error.is_no_instance() {
                ExitCode::from(NO_INSTANCE_EXIT_CODE)
            } else if error.is_other_version() {
                eprintln!("{OTHER_VERSION_HINT}");
                ExitCode::from(UNSUITABLE_EXIT_CODE)
            } else if error.is_other_owner() {
                ExitCode::from(UNSUITABLE_EXIT_CODE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Serves the PMI of the job whose reaper has executed this program.
fn serve_pmi_of(arguments: Vec<OsString>) -> ExitCode {
    let program = match pmi_program(arguments) {
        Ok(program) => program,
        Err(error) => {
            eprintln!("penstock-exec: {error}");
            return ExitCode::from(2);
        }
    };
    match serve_pmi(program) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("penstock-exec: the PMI server has failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Mode, UsageError> {
    let mut options = Options::with_defaults(Defaults::declared()?);
    options.read(arguments)?;
    options.into_mode()
}

/// The options that need a value.
const OPTIONS_WITH_VALUE: [&str; 13] = [
    "--uri",
    "--directory",
    "--name",
    "--kill-timeout",
    "--output-directory",
    "--output-limit",
    "--output-reserve",
    "--user-output-limit",
    "--job-directory",
    "--reaper",
    "--cgroup",
    "--min-guest-uid",
    "--server-user",
];

/// The options that have none.
const FLAGS: [&str; 7] = [
    "--simulate",
    "--oversubscribe",
    "--sync",
    "--take-over",
    "--end-when-idle",
    "--own-directory",
    "--allow-new-privileges",
];

/// The options of a command line.
struct Options {
    uri: Option<String>,
    server_users: BTreeSet<u32>,
    name: String,
    directory: Option<PathBuf>,
    output_directory: Option<PathBuf>,
    job_directory: Option<PathBuf>,
    reaper: Option<PathBuf>,
    cgroup: String,
    min_guest_uid: u32,
    kill_timeout_s: f64,
    output_limit: u64,
    output_reserve: u64,
    user_output_limit: u64,
    /// The set options of [`FLAGS`].
    flags: BTreeSet<&'static str>,
    /// An option that a simulation does not have, since it runs no process.
    option_of_processes: Option<String>,
}

impl Options {
    fn with_defaults(defaults: Defaults) -> Self {
        let flags = [
            (defaults.oversubscribe, "--oversubscribe"),
            (defaults.allow_new_privileges, "--allow-new-privileges"),
        ];
        Self {
            uri: None,
            server_users: BTreeSet::new(),
            name: "job-exec".to_owned(),
            directory: None,
            output_directory: defaults.output_directory,
            job_directory: defaults.job_directory,
            reaper: None,
            cgroup: defaults.cgroup,
            min_guest_uid: defaults.min_guest_uid,
            kill_timeout_s: defaults.kill_timeout,
            output_limit: defaults.output_limit,
            output_reserve: defaults.output_reserve,
            user_output_limit: defaults.user_output_limit,
            flags: flags
                .into_iter()
                .filter_map(|(is_set, flag)| is_set.then_some(flag))
                .collect(),
            option_of_processes: None,
        }
    }

    fn read(&mut self, arguments: Vec<OsString>) -> Result<(), UsageError> {
        let mut arguments = arguments.into_iter();
        while let Some(option) = arguments.next() {
            let option = option.to_string_lossy().into_owned();
            if let Some(flag) = FLAGS.into_iter().find(|flag| *flag == option) {
                self.flags.insert(flag);
            } else if !OPTIONS_WITH_VALUE.contains(&option.as_str()) {
                return Err(format!("unknown argument `{option}`").into());
            } else {
                let value = arguments.next();
                let value = value.ok_or_else(|| format!("`{option}` needs a value"))?;
                self.set_value(&option, value)?;
            }
            if !matches!(
                option.as_str(),
                "--simulate" | "--uri" | "--name" | "--server-user"
            ) {
                self.option_of_processes = Some(option);
            }
        }
        Ok(())
    }

    /// Sets an option of [`OPTIONS_WITH_VALUE`].
    fn set_value(&mut self, option: &str, value: OsString) -> Result<(), UsageError> {
        let text = value.to_string_lossy().into_owned();
        let invalid = |expected: &str| format!("invalid {option} `{text}`: expected {expected}");
        match option {
            "--uri" if text.is_empty() => return Err(invalid("local:///path or a path").into()),
            "--uri" => self.uri = Some(text),
            "--directory" => self.directory = Some(PathBuf::from(value)),
            "--output-directory" => self.output_directory = Some(absolute(Path::new(&value))?),
            "--job-directory" => self.job_directory = Some(absolute(Path::new(&value))?),
            "--reaper" => self.reaper = Some(PathBuf::from(value)),
            "--name" => self.name = text,
            "--cgroup" if !CgroupPlace::from(text.as_str()).is_valid() => {
                return Err(invalid("auto, none or an absolute path").into());
            }
            "--cgroup" => self.cgroup = text,
            "--server-user" => {
                let uid = text.parse().map_err(|_| invalid("a user id"))?;
                self.server_users.insert(uid);
            }
            "--min-guest-uid" => {
                self.min_guest_uid = text.parse().map_err(|_| invalid("a user id"))?;
            }
            "--kill-timeout" => {
                let seconds = text.parse::<f64>().ok();
                let seconds = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
                self.kill_timeout_s = seconds.ok_or_else(|| invalid("seconds"))?;
            }
            _ => {
                let limit = match option {
                    "--output-reserve" => &mut self.output_reserve,
                    "--user-output-limit" => &mut self.user_output_limit,
                    _ => &mut self.output_limit,
                };
                *limit = text.parse().map_err(|_| invalid("a number of bytes"))?;
            }
        }
        Ok(())
    }

    fn into_mode(self) -> Result<Mode, UsageError> {
        let uri = self.uri.or_else(|| env::var("PENSTOCK_URI").ok());
        let (named, uri) = split_user(uri)?;
        let mut server_users = self.server_users;
        server_users.extend(named);
        let uri = absolute_uri(uri)?;
        let has = |flag| self.flags.contains(flag);
        if has("--simulate") {
            if let Some(option) = self.option_of_processes {
                return Err(format!("`{option}` has no effect with `--simulate`").into());
            }
            return Ok(Mode::Simulation(SimulationOptions {
                uri,
                server_users,
                name: self.name,
            }));
        }
        let directory = match self.directory {
            Some(directory) => absolute(&directory)?,
            None => default_directory(&uri)?,
        };
        let reaper = match self.reaper {
            Some(reaper) => reaper,
            None => env::current_exe()
                .map_err(|error| format!("cannot find `penstock-reaper`: {error}"))?
                .with_file_name("penstock-reaper"),
        };
        let instance_name = address_name(&uri);
        Ok(Mode::Service(ServiceOptions {
            uri,
            server_users,
            directory,
            output_directory: self.output_directory,
            name: self.name,
            reaper,
            cgroup: self.cgroup,
            guests: GuestSettings {
                min_uid: self.min_guest_uid,
                no_new_privs: !has("--allow-new-privileges"),
            },
            instance_name,
            job_directory: self.job_directory,
            kill_timeout_s: self.kill_timeout_s,
            output_limit: self.output_limit,
            output_reserve: self.output_reserve,
            user_output_limit: self.user_output_limit,
            bind: !has("--oversubscribe"),
            sync: has("--sync"),
            if_locked: if has("--take-over") {
                IfLocked::EndHolder
            } else {
                IfLocked::Fail
            },
            end_when_idle: has("--end-when-idle"),
            journal_owner: if has("--own-directory") {
                JournalOwner::State
            } else {
                JournalOwner::Address
            },
        }))
    }
}

/// Divides an address `local://UID@/PATH` into the user and the address without it.
fn split_user(uri: Option<String>) -> Result<(Option<u32>, Option<String>), UsageError> {
    let address = uri.as_deref().and_then(|uri| uri.strip_prefix("local://"));
    let parts = address.and_then(|address| address.split_once("@/"));
    let Some((user, path)) = parts.filter(|(user, _)| !user.is_empty() && !user.contains('/'))
    else {
        return Ok((None, uri));
    };
    let Ok(uid) = user.parse() else {
        let text = "expected the user id of the instance's owner; `penstock exec` also reads names";
        return Err(format!("invalid user `{user}` in the address: {text}").into());
    };
    Ok((Some(uid), Some(format!("local:///{path}"))))
}

/// The address with its scheme and an absolute path; by default the default socket.
fn absolute_uri(uri: Option<String>) -> Result<String, UsageError> {
    let path = match uri.filter(|uri| !uri.is_empty()) {
        Some(uri) => match uri.split_once("://") {
            Some(("local", path)) => PathBuf::from(path),
            Some(_) => {
                let text = format!("unsupported address `{uri}`: expected local:///path/to/socket");
                return Err(text.into());
            }
            None => PathBuf::from(uri),
        },
        None => default_socket(),
    };
    Ok(format!("local://{}", absolute(&path)?.display()))
}

fn absolute(path: &Path) -> Result<PathBuf, UsageError> {
    std::path::absolute(path).map_err(|error| format!("`{}`: {error}", path.display()).into())
}

fn default_socket() -> PathBuf {
    let runtime = env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let folder = match runtime {
        Some(runtime) => PathBuf::from(runtime).join("penstock"),
        None => PathBuf::from(format!(
            "/tmp/penstock-{}",
            rustix::process::getuid().as_raw()
        )),
    };
    folder.join("default.sock")
}

/// A directory in the user's state for each address, so that it outlives a reboot.
fn default_directory(uri: &str) -> Result<PathBuf, UsageError> {
    let state = env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty());
    let home = env::var_os("HOME").filter(|path| !path.is_empty());
    let state = match (state, home) {
        (Some(state), _) => PathBuf::from(state),
        (None, Some(home)) => PathBuf::from(home).join(".local/state"),
        (None, None) => return Err("no home directory: name one with `--directory`".into()),
    };
    Ok(state.join("penstock/exec").join(address_name(uri)))
}

/// A file name for an address.
fn address_name(uri: &str) -> String {
    let name = uri.trim_start_matches("local:///");
    name.replace('%', "%25").replace('/', "%2F")
}
