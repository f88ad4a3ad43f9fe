//! The directories of retained output: that of new jobs, and others in which jobs have theirs that began under an earlier service.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::iter;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::broker::log;
use super::directory::{self, write_private};
use super::output_usage::free_bytes;
use crate::service::{OutputPlace, Stream, retained_file};
use crate::types::JobId;

/// The file in the service's directory with the absolute paths of the directories, each with a zero byte after it.
const LIST_FILE: &str = "output-directories";

/// The directories of retained output of the jobs that a service has.
#[derive(Debug)]
pub(super) struct OutputDirectories {
    service: PathBuf,
    present: PathBuf,
    /// The directories of earlier starts, whether they can be used now or not.
    former: Vec<PathBuf>,
    /// The jobs that may have output there.
    earlier_jobs: BTreeSet<JobId>,
}

impl OutputDirectories {
    /// Reads the directories of earlier services, in which these jobs may have output, and records them with that of new jobs.
    pub(super) fn new(service: &Path, present: PathBuf, earlier_jobs: BTreeSet<JobId>) -> Self {
        let list = service.join(LIST_FILE);
        let mut former = Vec::new();
        if let Err(error) = update(&list, &present, &earlier_jobs, &mut former) {
            // Output of jobs that continue may not be found. That is better than no service.
            log(&format!("cannot update `{}`: {error}", list.display()));
        }
        for path in &former {
            if let Err(error) = directory::open_former_output(path, service) {
                log(&format!("output of running jobs may be missing: {error}"));
            }
        }
        Self {
            service: service.to_owned(),
            present,
            former,
            earlier_jobs,
        }
    }

    /// The directory of new jobs' output.
    pub(super) fn present(&self) -> &Path {
        &self.present
    }

    /// The file of a job's stream.
    pub(super) fn file(&self, job: JobId, stream: Stream) -> PathBuf {
        let found = self.files(job, stream).next();
        let path = found.map(|(path, ..)| path);
        path.unwrap_or_else(|| retained_file(&self.present, job, stream))
    }

    /// The place of a job's output, and its size in all directories.
    pub(super) fn measure(&self, job: JobId) -> (OutputPlace, u64) {
        let (mut first, mut size) = (None::<OutputPlace>, 0_u64);
        for stream in Stream::ALL {
            for (_, place, bytes) in self.files(job, stream) {
                first = Some(first.map_or(place, |first| first.min(place)));
                size = size.saturating_add(bytes);
            }
        }
        (first.unwrap_or(OutputPlace::Present), size)
    }

    /// The files of a job's stream, with place and size. That in the present directory is the first one: tasks that an earlier
    /// service has not started write to it.
    fn files(
        &self,
        job: JobId,
        stream: Stream,
    ) -> impl Iterator<Item = (PathBuf, OutputPlace, u64)> {
        let former = self
            .former
            .iter()
            .filter(move |_| self.earlier_jobs.contains(&job));
        let directories = iter::once(&self.present).chain(former);
        directories.filter_map(move |directory| {
            let path = retained_file(directory, job, stream);
            let bytes = fs::symlink_metadata(&path).ok()?.len();
            Some((path, self.place(directory)?, bytes))
        })
    }

    /// The file system of a directory; `None` if a former one cannot be used. Another user or service may have made it since.
    fn place(&self, directory: &Path) -> Option<OutputPlace> {
        if directory == self.present {
            return Some(OutputPlace::Present);
        }
        let device = directory::open_former_output(directory, &self.service)
            .ok()?
            .metadata()
            .ok()?
            .dev();
        let is_present = fs::metadata(&self.present).is_ok_and(|present| present.dev() == device);
        Some(if is_present {
            OutputPlace::Present
        } else {
            OutputPlace::Former(device)
        })
    }

    /// The free bytes of each file system.
    pub(super) fn free_space(&self) -> Vec<(OutputPlace, u64)> {
        let directories = self.former.iter().chain([&self.present]);
        let paths: BTreeMap<_, _> = directories
            .filter_map(|path| Some((self.place(path)?, path)))
            .collect();
        let measured = paths.into_iter();
        measured
            .map(|(place, path)| (place, free_bytes(path)))
            .collect()
    }
}

/// Reads the list, and adds the present directory to it. The others are forgotten when no job of an earlier start is left: a missing
/// one may be on a file system that is not mounted now.
pub(super) fn update(
    list: &Path,
    present: &Path,
    earlier_jobs: &BTreeSet<JobId>,
    former: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let recorded = match fs::read(list) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let own = fs::canonicalize(present)?;
    if !earlier_jobs.is_empty() {
        let paths = recorded.split(|byte| *byte == 0);
        let paths = paths.map(|path| PathBuf::from(OsString::from_vec(path.to_vec())));
        former.extend(paths.filter(|path| path.is_absolute() && *path != own));
    }
    let mut bytes = Vec::new();
    for path in former.iter().chain([&own]) {
        bytes.extend_from_slice(path.as_os_str().as_bytes());
        bytes.push(0);
    }
    if bytes == recorded {
        return Ok(());
    }
    replace(list, &bytes)
}

fn replace(file: &Path, contents: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    write_private(&new, contents)?;
    fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

    use super::*;

    /// The paths of private directories with these names in a folder.
    fn make_directories<const N: usize>(folder: &Path, names: [&str; N]) -> [PathBuf; N] {
        names.map(|name| {
            let path = folder.join(name);
            let mut builder = fs::DirBuilder::new();
            builder.mode(0o700).create(&path).expect("made");
            path
        })
    }

    fn write(directory: &Path, job: JobId, stream: Stream, text: &str) {
        fs::write(retained_file(directory, job, stream), text).expect("written");
    }

    const JOB: JobId = JobId::new(1);

    #[test]
    fn output_of_jobs_of_earlier_services_is_found() {
        let folder = tempfile::tempdir().expect("a directory");
        let [service, one, two, three] =
            make_directories(folder.path(), ["service", "one", "two", "three"]);
        let jobs = [1, 2, 3].map(JobId::new);
        let open = |present: &Path, jobs: &[JobId]| {
            OutputDirectories::new(&service, present.into(), jobs.iter().copied().collect())
        };
        let found = |directories: &OutputDirectories| {
            jobs.map(|job| {
                let file = directories.file(job, Stream::Stdout);
                file.parent().expect("a directory").to_owned()
            })
        };
        open(&one, &[]);
        write(&one, jobs[0], Stream::Stdout, "text");
        let second = open(&two, &jobs[..1]);
        assert_eq!(found(&second), [&one, &two, &two].map(PathBuf::from));
        assert_eq!(second.present(), two);
        write(&two, jobs[1], Stream::Stdout, "text");
        // They are on one file system.
        assert_eq!(second.free_space().len(), 1);
        assert_eq!(second.measure(jobs[0]), (OutputPlace::Present, 4));
        // This service starts when the first job has ended, and does not forget its directory.
        let third = open(&three, &jobs[1..2]);
        assert_eq!(found(&third), [&three, &two, &three].map(PathBuf::from));
        let third = open(&three, &jobs[..2]);
        assert_eq!(found(&third), [&one, &two, &three].map(PathBuf::from));
        let third = open(&three, &[]);
        assert_eq!(found(&third), [&three, &three, &three].map(PathBuf::from));
        // No job is left that has output elsewhere.
        assert_eq!(open(&three, &jobs[..2]).former, Vec::<PathBuf>::new());
    }

    #[test]
    fn a_job_has_output_in_several_directories() {
        let folder = tempfile::tempdir().expect("a directory");
        let [service, one, two] = make_directories(folder.path(), ["service", "one", "two"]);
        let open = |present: &Path| OutputDirectories::new(&service, present.into(), [JOB].into());
        open(&one);
        write(&one, JOB, Stream::Stdout, "one");
        write(&one, JOB, Stream::Stderr, "");
        let directories = open(&two);
        write(&two, JOB, Stream::Stderr, "later");
        assert_eq!(directories.measure(JOB).1, 8);
        let files = Stream::ALL.map(|stream| directories.file(JOB, stream));
        let expected = [(one, Stream::Stdout), (two, Stream::Stderr)];
        let expected = expected.map(|(path, stream)| retained_file(&path, JOB, stream));
        assert_eq!(files, expected);
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_looked_at_again() {
        let folder = tempfile::tempdir().expect("a directory");
        let [service, disk, two] = make_directories(folder.path(), ["service", "disk", "two"]);
        let [one] = make_directories(&disk, ["one"]);
        let open = |present: &Path| OutputDirectories::new(&service, present.into(), [JOB].into());
        open(&one);
        write(&one, JOB, Stream::Stdout, "one");
        let is_found = |directories: &OutputDirectories| directories.measure(JOB).1 == 3;
        let mode = |mode| fs::set_permissions(&one, fs::Permissions::from_mode(mode));
        // Other users have access.
        mode(0o755).expect("own");
        let directories = open(&two);
        assert!(!is_found(&directories));
        mode(0o700).expect("own");
        assert!(is_found(&directories));
        // Its file system is not mounted, with and without a directory to mount it on.
        let unmounted = folder.path().join("unmounted");
        for mounted in [&disk, &one] {
            fs::rename(mounted, &unmounted).expect("renamed");
            let directories = open(&two);
            assert!(!is_found(&directories));
            fs::rename(&unmounted, mounted).expect("renamed");
            assert!(is_found(&directories));
            assert!(is_found(&open(&two)));
        }
        // It is removed, and another service has one of the same name.
        fs::write(one.join(".service"), folder.path().as_os_str().as_bytes()).expect("written");
        assert!(!is_found(&open(&two)));
    }

    #[test]
    fn a_list_that_cannot_be_read_or_written_ends_no_service() {
        let folder = tempfile::tempdir().expect("a directory");
        let [service, one, two] = make_directories(folder.path(), ["service", "one", "two"]);
        let open = |present: &Path| OutputDirectories::new(&service, present.into(), [JOB].into());
        open(&one);
        write(&one, JOB, Stream::Stdout, "one");
        let unwritable = service.join("output-directories.new");
        fs::create_dir(&unwritable).expect("made");
        assert_eq!(open(&two).measure(JOB).1, 3);
        fs::remove_dir(&unwritable).expect("removed");
        let list = service.join(LIST_FILE);
        fs::remove_file(&list).expect("removed");
        fs::create_dir(&list).expect("made");
        assert_eq!(open(&two).present(), two);
    }
}
