//! The directories of retained output: that of new jobs, and others in which jobs have theirs that began under an earlier service.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::broker::log;
use super::directory;
use super::output_usage::free_bytes;
use crate::service::{OutputPlace, Stream, retained_file};
use crate::types::JobId;

/// The file in the service's directory with the absolute paths of the directories, each with a zero byte after it.
const LIST_FILE: &str = "output-directories";

/// The directories of retained output of the jobs that a service has.
#[derive(Debug)]
pub(super) struct OutputDirectories {
    present: PathBuf,
    former: Vec<(PathBuf, OutputPlace)>,
}

impl OutputDirectories {
    /// Finds the directories of these jobs' output among those of earlier services, and records them with that of new jobs.
    pub(super) fn new(service: &Path, present: PathBuf, jobs: &[JobId]) -> io::Result<Self> {
        let list = service.join(LIST_FILE);
        let recorded = match fs::read(&list) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let own = fs::canonicalize(&present)?;
        let device = fs::metadata(&own)?.dev();
        let mut former = Vec::new();
        for path in recorded.split(|byte| *byte == 0) {
            let path = PathBuf::from(OsString::from_vec(path.to_vec()));
            let has_output = |job: &JobId| has_output(&path, *job);
            let is_former = path.is_absolute() && path != own && jobs.iter().any(has_output);
            // Another user may have made it since.
            if !is_former || directory::open_private(&path).is_err() {
                continue;
            }
            let place = match fs::metadata(&path)?.dev() {
                same if same == device => OutputPlace::Present,
                other => OutputPlace::Former(other),
            };
            former.push((path, place));
        }
        let mut bytes = Vec::new();
        for path in former.iter().map(|(path, _)| path).chain([&own]) {
            bytes.extend_from_slice(path.as_os_str().as_bytes());
            bytes.push(0);
        }
        if bytes != recorded
            && let Err(error) = replace(&list, &bytes)
        {
            // The next service may not find this directory. That is better than no service.
            log(&format!("cannot write `{}`: {error}", list.display()));
        }
        Ok(Self { present, former })
    }

    /// The directory of new jobs' output.
    pub(super) fn present(&self) -> &Path {
        &self.present
    }

    /// The directory of a job's output, and where it is.
    pub(super) fn of_job(&self, job: JobId) -> (&Path, OutputPlace) {
        let mut former = self.former.iter();
        let found = former.find(|(path, _)| has_output(path, job));
        found.map_or(
            (self.present.as_path(), OutputPlace::Present),
            |(path, place)| (path.as_path(), *place),
        )
    }

    /// The free bytes of each file system.
    pub(super) fn free_space(&self) -> Vec<(OutputPlace, u64)> {
        let present = (self.present.as_path(), OutputPlace::Present);
        let former = self
            .former
            .iter()
            .map(|(path, place)| (path.as_path(), *place));
        let paths: BTreeMap<_, _> = former
            .chain([present])
            .map(|(path, place)| (place, path))
            .collect();
        let measured = paths.into_iter();
        measured
            .map(|(place, path)| (place, free_bytes(path)))
            .collect()
    }
}

fn replace(file: &Path, contents: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, contents)?;
    fs::rename(new, file)
}

fn has_output(directory: &Path, job: JobId) -> bool {
    let mut streams = Stream::ALL.into_iter();
    streams.any(|stream| retained_file(directory, job, stream).exists())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt;

    use super::*;

    #[test]
    fn output_of_jobs_of_earlier_services_is_found_until_they_end() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = |name: &str| folder.path().join(name);
        for name in ["service", "one", "two", "three"] {
            let mut builder = fs::DirBuilder::new();
            builder.mode(0o700).create(path(name)).expect("made");
        }
        let jobs = [1, 2, 3].map(JobId::new);
        let open = |name: &str, jobs: &[JobId]| {
            let service = path("service");
            OutputDirectories::new(&service, path(name), jobs).expect("readable")
        };
        let write = |name: &str, job: JobId| {
            let file = retained_file(&path(name), job, Stream::Stdout);
            fs::write(file, "text").expect("written");
        };
        open("one", &[]);
        write("one", jobs[0]);
        let second = open("two", &jobs[..1]);
        assert_eq!(second.of_job(jobs[0]).0, path("one"));
        assert_eq!(second.of_job(jobs[1]).0, path("two"));
        assert_eq!(second.present(), path("two"));
        write("two", jobs[1]);
        // They are on one file system.
        assert_eq!(second.free_space().len(), 1);
        let third = open("three", &jobs[..2]);
        let found = jobs.map(|job| third.of_job(job).0.to_owned());
        assert_eq!(found, ["one", "two", "three"].map(path));
        // A list that cannot be written ends no service.
        let unwritable = path("service").join("output-directories.new");
        fs::create_dir(&unwritable).expect("made");
        assert_eq!(open("one", &jobs[..2]).present(), path("one"));
        fs::remove_dir(&unwritable).expect("removed");
        // The first job has ended.
        let third = open("three", &jobs[1..2]);
        assert_eq!(third.of_job(jobs[1]).0, path("two"));
        assert_eq!(third.former.len(), 1);
    }
}
