//! The cgroups of a reaper over a hierarchy in memory, which follows the kernel's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use penstock_exec::cgroup::{BaseSettings, CgroupFs, Cgroups, SERVICE_CGROUP};
use penstock_exec::{CgroupId, CgroupLimits, Step};

#[derive(Debug, Default, Clone)]
struct Node {
    processes: BTreeSet<u32>,
    controllers: BTreeSet<String>,
    enabled: BTreeSet<String>,
    files: BTreeMap<String, String>,
    is_frozen: bool,
    is_delegated: bool,
    is_read_only: bool,
}

/// cgroups by their paths; the root is empty.
#[derive(Debug, Clone)]
struct Tree {
    nodes: BTreeMap<String, Node>,
    has_kill: bool,
}

impl Tree {
    /// A root with controllers, of which those named are enabled, and this process in `/site`.
    fn new(controllers: &[&str], enabled: &[&str]) -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let root = Node {
            controllers: names(controllers),
            enabled: names(enabled),
            ..Node::default()
        };
        let site = Node {
            controllers: names(enabled),
            processes: BTreeSet::from([1, 2]),
            ..Node::default()
        };
        let nodes = [(String::new(), root), ("/site".to_owned(), site)];
        Self {
            nodes: nodes.into(),
            has_kill: true,
        }
    }

    fn node(&mut self, path: &str) -> &mut Node {
        self.nodes.get_mut(path).expect("a cgroup")
    }

    fn is_populated(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let mut nodes = self.nodes.iter();
        nodes.any(|(name, node)| {
            (name == path || name.starts_with(&below)) && !node.processes.is_empty()
        })
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn words<T: ToString>(names: &BTreeSet<T>) -> String {
    let names: Vec<_> = names.iter().map(T::to_string).collect();
    names.join(" ") + "\n"
}

impl CgroupFs for Tree {
    fn read(&mut self, path: &str) -> io::Result<String> {
        let (cgroup, name) = path.rsplit_once('/').expect("a file");
        let is_populated = self.is_populated(cgroup);
        let node = self.nodes.get(cgroup).ok_or(errno(libc::ENOENT))?;
        Ok(match name {
            "cgroup.controllers" => words(&node.controllers),
            "cgroup.subtree_control" => words(&node.enabled),
            "cgroup.procs" => words(&node.processes).replace(' ', "\n"),
            "cgroup.events" => format!(
                "populated {}\nfrozen {}\n",
                u8::from(is_populated),
                u8::from(node.is_frozen)
            ),
            _ => node.files.get(name).cloned().ok_or(errno(libc::ENOENT))?,
        })
    }

    fn write(&mut self, path: &str, text: &str) -> io::Result<()> {
        let (cgroup, name) = path.rsplit_once('/').expect("a file");
        if !self.nodes.contains_key(cgroup) {
            return Err(errno(libc::ENOENT));
        }
        match name {
            "cgroup.procs" => {
                let pid = text.parse().expect("a pid");
                for node in self.nodes.values_mut() {
                    node.processes.remove(&pid);
                }
                self.node(cgroup).processes.insert(pid);
            }
            "cgroup.subtree_control" => {
                let node = self.node(cgroup);
                let controller = text.strip_prefix('+').expect("an addition").to_owned();
                if !node.controllers.contains(&controller) {
                    return Err(errno(libc::ENOENT));
                }
                if !cgroup.is_empty() && !node.processes.is_empty() {
                    return Err(errno(libc::EBUSY));
                }
                node.enabled.insert(controller.clone());
                let below = format!("{cgroup}/");
                for (path, node) in &mut self.nodes {
                    let name = path.strip_prefix(&below);
                    if name.is_some_and(|name| !name.contains('/')) {
                        node.controllers.insert(controller.clone());
                    }
                }
            }
            "cgroup.kill" => {
                let below = format!("{cgroup}/");
                for (path, node) in &mut self.nodes {
                    if path == cgroup || path.starts_with(&below) {
                        node.processes.clear();
                    }
                }
            }
            _ => {
                let node = self.node(cgroup);
                let (controller, _) = name.split_once('.').expect("a controller's file");
                if !node.controllers.contains(controller) {
                    return Err(errno(libc::ENOENT));
                }
                node.files.insert(name.to_owned(), text.to_owned());
            }
        }
        Ok(())
    }

    fn make(&mut self, path: &str) -> io::Result<()> {
        let (parent, _) = path.rsplit_once('/').expect("a cgroup below the root");
        let parent = self.nodes.get(parent).ok_or(errno(libc::ENOENT))?;
        if parent.is_read_only {
            return Err(errno(libc::EACCES));
        }
        let node = Node {
            controllers: parent.enabled.clone(),
            ..Node::default()
        };
        match self.nodes.insert(path.to_owned(), node) {
            None => Ok(()),
            Some(old) => {
                self.nodes.insert(path.to_owned(), old);
                Err(errno(libc::EEXIST))
            }
        }
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        let node = self.nodes.get(path).ok_or(errno(libc::ENOENT))?;
        let below = format!("{path}/");
        if !node.processes.is_empty() || self.nodes.keys().any(|name| name.starts_with(&below)) {
            return Err(errno(libc::EBUSY));
        }
        self.nodes.remove(path);
        Ok(())
    }

    fn children(&mut self, path: &str) -> Vec<String> {
        let below = format!("{path}/");
        let names = self
            .nodes
            .keys()
            .filter_map(|name| name.strip_prefix(&below));
        let names = names.filter(|name| !name.contains('/'));
        names.map(str::to_owned).collect()
    }

    fn is_writable(&self, path: &str) -> bool {
        let (cgroup, name) = path.rsplit_once('/').expect("a file");
        let node = self.nodes.get(cgroup);
        node.is_some_and(|node| !node.is_read_only) && (name != "cgroup.kill" || self.has_kill)
    }

    fn is_delegated(&self, path: &str) -> bool {
        self.nodes.get(path).is_some_and(|node| node.is_delegated)
    }
}

fn place() -> BaseSettings {
    BaseSettings {
        own: "/site".to_owned(),
        parent: None,
        name: "jobs".to_owned(),
        earlier: None,
    }
}

/// Opens the base that an earlier reaper may have made.
fn open(tree: Tree) -> Cgroups<Tree> {
    let place = BaseSettings {
        earlier: Some("/site/jobs".to_owned()),
        ..place()
    };
    Cgroups::open(tree, &place).expect("cgroups may be made")
}

fn memory() -> CgroupLimits {
    CgroupLimits {
        memory: Some(1 << 20),
        ..CgroupLimits::default()
    }
}

fn node(cgroups: &Cgroups<Tree>, path: &str) -> Option<Node> {
    cgroups.fs().nodes.get(path).cloned()
}

const NONE: CgroupLimits = CgroupLimits {
    memory: None,
    pids: None,
    cpu_millis: None,
};

#[test]
fn an_empty_cgroup_is_used_again() {
    let mut cgroups = open(Tree::new(&[], &[]));
    let first = cgroups.take(&NONE).expect("made");
    let second = cgroups.take(&NONE).expect("made");
    assert_eq!(cgroups.path(second), "/site/jobs/1");
    assert!(cgroups.release(first));
    assert_eq!(cgroups.take(&NONE), Ok(first));
    assert_eq!(cgroups.fs().nodes.len(), 5, "root, site, jobs, two cgroups");
}

#[test]
fn a_cgroup_with_a_process_is_not_released() {
    let mut cgroups = open(Tree::new(&[], &[]));
    let cgroup = cgroups.take(&NONE).expect("made");
    let mut tree = cgroups.fs().clone();
    tree.node("/site/jobs/0").processes.insert(10);
    let known = BTreeSet::from([cgroup]);
    let place = BaseSettings {
        earlier: Some("/site/jobs".to_owned()),
        ..place()
    };
    let mut cgroups = Cgroups::open(tree, &place).expect("the base exists");
    assert_eq!(cgroups.restore(&known), known);
    assert!(!cgroups.release(cgroup));
    cgroups.kill(cgroup);
    assert!(cgroups.release(cgroup));
    assert_eq!(
        cgroups.take(&NONE),
        Ok(CgroupId(1)),
        "no number is used twice"
    );
}

#[test]
fn what_is_left_of_unknown_jobs_is_killed_and_removed() {
    let mut tree = Tree::new(&[], &[]);
    tree.make("/site/jobs").expect("new");
    tree.make("/site/jobs/7").expect("new");
    tree.make("/site/jobs/7/inner").expect("new");
    tree.node("/site/jobs/7/inner").processes.insert(10);
    let mut cgroups = open(tree);
    assert_eq!(cgroups.restore(&BTreeSet::new()), BTreeSet::new());
    assert_eq!(cgroups.fs().nodes.len(), 3, "root, site, jobs");
}

#[test]
fn a_cgroup_that_its_job_has_changed_is_removed() {
    let mut tree = Tree::new(&[], &[]);
    tree.make("/site/jobs").expect("new");
    for (number, is_frozen) in [("0", true), ("1", false)] {
        tree.make(&format!("/site/jobs/{number}")).expect("new");
        tree.node(&format!("/site/jobs/{number}")).is_frozen = is_frozen;
    }
    tree.make("/site/jobs/1/inner").expect("new");
    let known = BTreeSet::from([CgroupId(0), CgroupId(1)]);
    let mut cgroups = open(tree);
    assert_eq!(cgroups.restore(&known), known);
    assert!(cgroups.release(CgroupId(0)));
    assert!(cgroups.release(CgroupId(1)));
    assert_eq!(cgroups.fs().nodes.len(), 3, "root, site, jobs");
}

#[test]
fn limits_are_written_to_a_cgroup_of_their_own() {
    // `/site` has no process, or controllers could not be enabled there.
    let mut tree = Tree::new(&["memory", "pids", "cpu"], &["memory", "pids", "cpu"]);
    tree.node("/site").processes.clear();
    let mut cgroups = open(tree);
    let plain = cgroups.take(&NONE).expect("made");
    assert!(cgroups.release(plain));
    assert_eq!(node(&cgroups, "/site").expect("there").enabled.len(), 0);
    let limits = CgroupLimits {
        memory: Some(64 << 20),
        pids: Some(20),
        cpu_millis: Some(1500),
    };
    let limited = cgroups.take(&limits).expect("made");
    assert_ne!(limited, plain);
    let files = node(&cgroups, "/site/jobs/1").expect("made").files;
    let expected = [
        ("cpu.max", "150000 100000"),
        ("memory.max", "67108864"),
        ("pids.max", "20"),
    ];
    assert_eq!(
        files,
        expected
            .map(|(name, value)| (name.into(), value.into()))
            .into()
    );
    assert!(cgroups.release(limited));
    assert!(
        node(&cgroups, "/site/jobs/1").is_none(),
        "it is not for others"
    );
}

#[test]
fn a_controller_that_does_not_exist_fails_the_job() {
    let mut cgroups = open(Tree::new(&["pids"], &["pids"]));
    let failure = cgroups.take(&memory()).expect_err("no controller");
    assert_eq!(failure.step, Step::MemoryLimit);
    assert_eq!(failure.errno, libc::EOPNOTSUPP);
    assert!(cgroups.take(&NONE).is_ok());
}

#[test]
fn a_controller_is_not_enabled_above_processes_of_others() {
    let mut cgroups = open(Tree::new(&["memory"], &["memory"]));
    let failure = cgroups.take(&memory()).expect_err("`/site` has processes");
    assert_eq!(failure.step, Step::MemoryLimit);
    let processes = node(&cgroups, "/site").expect("there").processes;
    assert_eq!(processes, BTreeSet::from([1, 2]), "they are not moved");
}

#[test]
fn the_service_moves_to_a_leaf_of_a_delegated_cgroup() {
    let mut tree = Tree::new(&["memory"], &["memory"]);
    tree.node("/site").is_delegated = true;
    let mut cgroups = open(tree);
    let limited = cgroups.take(&memory()).expect("enabled");
    assert_eq!(cgroups.path(limited), "/site/jobs/0");
    let leaf = format!("/site/{SERVICE_CGROUP}");
    let processes = node(&cgroups, &leaf).expect("made").processes;
    assert_eq!(processes, BTreeSet::from([1, 2]));
    // Another reaper is in the leaf.
    let place = BaseSettings {
        own: leaf,
        name: "other".to_owned(),
        ..place()
    };
    let other = Cgroups::open(cgroups.fs().clone(), &place).expect("cgroups may be made");
    assert_eq!(other.base(), "/site/other");
}

#[test]
fn oom_kills_are_counted() {
    let mut tree = Tree::new(&["memory"], &["memory"]);
    tree.make("/site/jobs").expect("new");
    tree.make("/site/jobs/0").expect("new");
    let events = "low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\noom_group_kill 0\n";
    let files = &mut tree.node("/site/jobs/0").files;
    files.insert("memory.events".to_owned(), events.to_owned());
    let mut cgroups = open(tree);
    cgroups.restore(&BTreeSet::from([CgroupId(0)]));
    assert_eq!(cgroups.oom_kills(CgroupId(0)), 2);
}

#[test]
fn no_cgroup_is_made_where_that_is_not_allowed() {
    let mut read_only = Tree::new(&[], &[]);
    read_only.node("/site").is_read_only = true;
    assert!(Cgroups::open(read_only, &place()).is_err());

    // Processes can be moved from `/site` to `/other` only by a user who may write to the root.
    let mut elsewhere = Tree::new(&[], &[]);
    elsewhere.make("/other").expect("new");
    elsewhere.node("").is_read_only = true;
    let place_elsewhere = BaseSettings {
        parent: Some("/other".to_owned()),
        ..place()
    };
    assert!(Cgroups::open(elsewhere, &place_elsewhere).is_err());

    let mut old_kernel = Tree::new(&[], &[]);
    old_kernel.has_kill = false;
    assert!(Cgroups::open(old_kernel, &place()).is_err());
}

#[test]
fn a_reaper_leaves_nothing() {
    let mut cgroups = open(Tree::new(&[], &[]));
    let cgroup = cgroups.take(&NONE).expect("made");
    assert!(cgroups.release(cgroup));
    cgroups.close();
    assert_eq!(cgroups.fs().nodes.len(), 2, "root, site");
}
