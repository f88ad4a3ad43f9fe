//! Replays the inputs that the fuzz targets have found.

use std::path::{Path, PathBuf};

use penstock_checks::{CHECKS, Check};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus")
}

fn replay(target: &str, check: Check) {
    let folder = corpus().join(target);
    let mut files: Vec<PathBuf> = folder
        .read_dir()
        .expect("a folder for each target")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    assert!(files.len() >= 12, "{} has few files", folder.display());
    for file in files {
        // A failing test shows the last one.
        println!("{}", file.display());
        check(&std::fs::read(&file).expect("a file"));
    }
}

#[test]
fn constraint_texts_hold() {
    replay("constraint_text", penstock_checks::constraint_text::check);
}

#[test]
fn hostlist_ops_hold() {
    replay("hostlist_ops", penstock_checks::hostlist_ops::check);
}

#[test]
fn hostlist_texts_hold() {
    replay("hostlist_text", penstock_checks::hostlist_text::check);
}

#[test]
fn idset_ops_hold() {
    replay("idset_ops", penstock_checks::idset_ops::check);
}

#[test]
fn idset_texts_hold() {
    replay("idset_text", penstock_checks::idset_text::check);
}

#[test]
fn jobspec_texts_hold() {
    replay("jobspec_text", penstock_checks::jobspec_text::check);
}

#[test]
fn conversations_with_the_job_manager_hold() {
    replay("manager_messages", penstock_checks::manager_messages::check);
}

#[test]
fn conversations_with_the_resource_module_hold() {
    replay(
        "resource_messages",
        penstock_checks::resource_messages::check,
    );
}

#[test]
fn conversations_with_the_scheduler_hold() {
    replay(
        "scheduler_messages",
        penstock_checks::scheduler_messages::check,
    );
}

#[test]
fn payload_texts_hold() {
    replay("payload_text", penstock_checks::payload_text::check);
}

#[test]
fn pmi_lines_hold() {
    replay("pmi_lines", penstock_checks::pmi_lines::check);
}

#[test]
fn pmix_requests_hold() {
    replay("pmix_requests", penstock_checks::pmix_requests::check);
}

#[test]
fn settings_texts_hold() {
    replay("settings_text", penstock_checks::settings_text::check);
}

#[test]
fn wire_frames_hold() {
    replay("wire_frames", penstock_checks::wire_frames::check);
}

#[test]
fn rset_texts_hold() {
    replay("rset_text", penstock_checks::rset_text::check);
}

#[test]
fn no_folder_is_left_out() {
    let folders = corpus().read_dir().expect("the corpus");
    let mut names: Vec<String> = folders
        .map(|entry| entry.expect("a folder").file_name())
        .map(|name| name.into_string().expect("a readable name"))
        .collect();
    names.sort();
    assert_eq!(names, CHECKS.map(|(name, _)| name));
}
