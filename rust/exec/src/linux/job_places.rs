//! The places of job directories: those of new jobs, and others in which jobs have theirs that began under an earlier service.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::broker::log;
use super::directory::open_unwritable;
use super::job_directories::make_public_parents;
use super::output_directories::update;
use crate::Error;
use crate::service::{JobDirectoryPlaces, job_directory};
use crate::types::JobId;

/// The directory in which those of guests' jobs are made by default.
const RUNTIME_DIRECTORY: &str = "/run/penstock";
/// The directory of job directories, in that of the service or of the instance.
pub(super) const JOB_DIRECTORIES: &str = "jobs";
/// The file in the service's directory with the parents of job directories.
const LIST_FILE: &str = "job-directories";

/// The options of a service that say where job directories are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceOptions<'a> {
    /// The directory of the service.
    pub(super) service: &'a Path,
    /// The name of the instance in the paths.
    pub(super) instance: &'a str,
    /// The directory in which job directories are made, if it is not the default.
    pub(super) named: Option<&'a Path>,
}

impl PlaceOptions<'_> {
    /// The parent of job directories in a directory of several instances.
    fn job_directories(self, parent: &Path) -> PathBuf {
        parent.join(self.instance).join(JOB_DIRECTORIES)
    }
}

/// The places of job directories, and all parents of job directories that are this service's. The one that the options name is made,
/// in its parent.
///
/// # Errors
///
/// Fails if another user could make files in the directory that the options name, or if it cannot be made.
pub(super) fn prepare(
    options: PlaceOptions<'_>,
    earlier_jobs: &BTreeSet<JobId>,
) -> Result<(JobDirectoryPlaces, BTreeSet<PathBuf>), Error> {
    let own = options.service.join(JOB_DIRECTORIES);
    let runtime = options.job_directories(Path::new(RUNTIME_DIRECTORY));
    let mut places = JobDirectoryPlaces {
        guests: runtime.clone(),
        own: own.clone(),
        former: BTreeMap::new(),
    };
    if let Some(directory) = options.named {
        let named = options.job_directories(directory);
        make(directory)
            .and_then(|()| make_public_parents(&named.join("0")))
            .map_err(|error| {
                let action = format!("cannot make job directory `{}`", directory.display());
                Error::system(&action, &error)
            })?;
        open_unwritable(directory)?;
        (places.guests, places.own) = (named.clone(), named);
    }
    let list = options.service.join(LIST_FILE);
    let mut former = Vec::new();
    if let Err(error) = update(&list, &places.own, earlier_jobs, &mut former) {
        // Directories of jobs that continue may not be removed. That is better than no service.
        log(&format!("cannot update `{}`: {error}", list.display()));
    }
    // A recorded path has no links; another user may have put one there since.
    former.retain(|path| is_resolved(path) && open_unwritable(path).is_ok());
    let defaults = [Some(own), geteuid().is_root().then_some(runtime)];
    let resolved = |path: PathBuf| fs::canonicalize(path).ok();
    former.extend(defaults.into_iter().flatten().filter_map(resolved));
    let present = [&places.guests, &places.own].map(PathBuf::clone);
    let mut parents: BTreeSet<_> = present.into_iter().filter_map(resolved).collect();
    for parent in former {
        if parents.insert(parent.clone()) {
            let jobs = earlier_jobs.iter();
            let jobs = jobs.filter(|job| job_directory(&parent, **job).is_dir());
            places.former.extend(jobs.map(|job| (*job, parent.clone())));
        }
    }
    Ok((places, parents))
}

fn is_resolved(path: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|resolved| resolved == path)
}

/// Makes a directory that guests can enter and not list, unless there is one.
fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o711)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::service::DirectoryOwner;

    const OWNER: DirectoryOwner = DirectoryOwner::Service;

    /// A folder with the directory of a service.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("made");
        fs::create_dir_all(folder.path().join("service/jobs")).expect("made");
        folder
    }

    fn places(
        folder: &Path,
        named: Option<&str>,
        jobs: &[u64],
    ) -> Result<JobDirectoryPlaces, Error> {
        let named = named.map(|name| folder.join(name));
        let options = PlaceOptions {
            service: &folder.join("service"),
            instance: "job-places",
            named: named.as_deref(),
        };
        let jobs = jobs.iter().map(|job| JobId::new(*job)).collect();
        prepare(options, &jobs).map(|(places, _)| places)
    }

    /// Makes the directory of a job, and returns it.
    fn make_job(places: &JobDirectoryPlaces, job: u64) -> PathBuf {
        let path = places.directory(JobId::new(job), OWNER);
        fs::create_dir(&path).expect("made");
        path
    }

    #[test]
    fn jobs_that_continue_have_their_directories_in_former_places() {
        let folder = folder();
        let open = |named, jobs: &[u64]| places(folder.path(), named, jobs).expect("prepared");
        let first = make_job(&open(None, &[]), 1);
        assert_eq!(first, folder.path().join("service/jobs/1"));
        let second = make_job(&open(Some("a"), &[1]), 2);
        assert_eq!(second, folder.path().join("a/job-places/jobs/2"));
        for named in [Some("b"), None, Some("a")] {
            let found = open(named, &[1, 2, 3]);
            for (job, path) in [(1, &first), (2, &second)] {
                assert_eq!(found.directory(JobId::new(job), OWNER), *path, "{named:?}");
            }
            assert!(!found.former.contains_key(&JobId::new(3)));
        }
        // No job is left that may have one elsewhere.
        open(Some("b"), &[]);
        let found = open(Some("b"), &[2]);
        assert_eq!(found.former, BTreeMap::new());
    }

    #[test]
    fn a_former_place_is_no_link_and_no_other_user_can_write_to_it() {
        let folder = folder();
        let open = |named, jobs: &[u64]| places(folder.path(), named, jobs).expect("prepared");
        make_job(&open(Some("a"), &[]), 1);
        let jobs = folder.path().join("a/job-places/jobs");
        let mode = |mode| fs::set_permissions(&jobs, Permissions::from_mode(mode));
        let is_found = || !open(None, &[1]).former.is_empty();
        assert!(is_found());
        mode(0o777).expect("own");
        assert!(!is_found());
        mode(0o711).expect("own");
        assert!(is_found());
        let moved = folder.path().join("moved");
        fs::rename(folder.path().join("a"), &moved).expect("renamed");
        symlink(&moved, folder.path().join("a")).expect("made");
        assert!(!is_found());
    }

    #[test]
    fn the_named_directory_is_made_in_its_parent_and_checked() {
        let folder = folder();
        let open = |named| places(folder.path(), Some(named), &[]);
        let error = open("no/a").expect_err("no parent").to_string();
        let text = format!(
            "cannot make job directory `{}/no/a`",
            folder.path().display()
        );
        assert!(error.starts_with(&text), "{error}");
        open("a").expect("made");
        for name in ["a", "a/job-places", "a/job-places/jobs"] {
            let metadata = fs::metadata(folder.path().join(name)).expect("there");
            assert_eq!(metadata.permissions().mode() & 0o7777, 0o711, "{name}");
        }
        let mode = Permissions::from_mode(0o733);
        fs::set_permissions(folder.path().join("a"), mode).expect("own");
        let error = open("a").expect_err("others can write").to_string();
        assert!(error.ends_with("has mode 733: expected 711"), "{error}");
    }
}
