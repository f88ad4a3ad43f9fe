//! `penstock-reaper`: starts tasks, reaps them, and retains their statuses for a service.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use penstock_exec::UsageError;
use penstock_exec::linux::{CgroupPlace, Options, serve};

const USAGE: &str = "\
usage: penstock-reaper --directory DIR [--idle-timeout SECONDS] [--cgroup PLACE]

Runs tasks for a service that connects to DIR/socket, and outlives it. DIR must belong to the user and have mode 700.
Without processes and connections it ends after SECONDS (60; 0 for never). The next reaper of DIR reports the statuses
that were not acknowledged.

Three processes run: if the one that starts the tasks is killed, its parent, the standby, takes its place, and then that
one's parent.

PLACE is where the cgroups of jobs are made: the path of a cgroup, or `auto` for the reaper's own, or `none`.
";

const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.first().and_then(|first| first.to_str()) {
        Some("--help" | "-h") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some("--version") => {
            println!("penstock-reaper {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(error) => {
            eprint!("penstock-reaper: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(&options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("penstock-reaper: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Options, UsageError> {
    let mut directory = None;
    let mut idle_timeout = Some(DEFAULT_IDLE_TIMEOUT);
    let mut cgroup = CgroupPlace::Auto;
    let mut arguments = arguments.into_iter();
    while let Some(option) = arguments.next() {
        let name = option.to_string_lossy();
        let value = arguments.next();
        match (name.as_ref(), value) {
            ("--directory", Some(value)) => directory = Some(PathBuf::from(value)),
            ("--idle-timeout", Some(value)) => {
                let text = value.to_string_lossy();
                let seconds = text.parse::<u32>().map_err(|_| {
                    format!("invalid idle time-out `{text}`: expected whole seconds")
                })?;
                idle_timeout = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            }
            ("--cgroup", Some(value)) => {
                let text = value.to_string_lossy();
                cgroup = CgroupPlace::from(text.as_ref());
                if !cgroup.is_valid() {
                    let expected = "auto, none or an absolute path";
                    return Err(format!("invalid --cgroup `{text}`: expected {expected}").into());
                }
            }
            ("--directory" | "--idle-timeout" | "--cgroup", None) => {
                return Err(format!("`{name}` needs a value").into());
            }
            _ => return Err(format!("unknown argument `{name}`").into()),
        }
    }
    Ok(Options {
        directory: directory.ok_or("`--directory` is missing")?,
        idle_timeout,
        cgroup,
        imp: std::env::current_exe()
            .map_err(|error| format!("cannot find `penstock-imp`: {error}"))?
            .with_file_name("penstock-imp"),
    })
}
