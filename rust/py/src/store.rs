//! The functions of `penstock store`: check, copy, replace and repair the database of an instance.

use std::collections::BTreeMap;
use std::path::PathBuf;

use penstock_manager::{JobProblem, ProblemEffect, check_jobs, check_meta};
use penstock_store::maintenance::{self, Replacement};
use penstock_store::{BadRow, Error, Store};
use pyo3::prelude::*;

use crate::errors::raised;

/// The path of the database before, and what may be lost, for the user.
type Replaced = (Option<PathBuf>, Vec<String>);

/// The problems of a database, which an instance may use.
#[pyfunction]
fn check_store(py: Python<'_>, path: PathBuf) -> PyResult<Vec<String>> {
    let problems = py.detach(|| {
        let mut problems = maintenance::check(&path)?;
        let read = |store: Store| Ok((bad_values(&store)?, check_jobs(&store)?));
        match Store::open_reader(&path).and_then(read) {
            Ok((rows, jobs)) => {
                problems.extend(rows.iter().map(BadRow::to_string));
                problems.extend(jobs.iter().map(describe));
            }
            // The check has found the reason, too.
            Err(_) if !problems.is_empty() => {}
            Err(error) => problems.push(error.to_string()),
        }
        Ok::<_, Error>(problems)
    });
    problems.map_err(raised)
}

/// The bytes that each user has in a database, which an instance may use.
#[pyfunction]
fn store_bytes_by_user(py: Python<'_>, path: PathBuf) -> PyResult<BTreeMap<u32, u64>> {
    let bytes = py.detach(|| Store::open_reader(&path)?.bytes_by_user());
    bytes.map_err(raised)
}

/// The rows that a start leaves out for their texts, but for those of jobs.
fn bad_values(store: &Store) -> Result<Vec<BadRow>, Error> {
    let mut bad = check_meta(store)?;
    for (seq, line) in store.resource_events()? {
        let event = penstock_resource::Event::from_json(&line);
        bad.extend(
            event
                .err()
                .map(|error| BadRow::of_resource_event(seq, error)),
        );
    }
    Ok(bad)
}

fn describe(problem: &JobProblem) -> String {
    let JobProblem { id, reason, effect } = problem;
    match effect {
        ProblemEffect::LeftOut => format!("job {id} is left out: {reason}"),
        ProblemEffect::WithoutResources | ProblemEffect::WrongFacts => {
            format!("job {id}: {reason}")
        }
    }
}

#[pyfunction]
fn back_up_store(py: Python<'_>, path: PathBuf, to: PathBuf) -> PyResult<()> {
    py.detach(|| maintenance::back_up(&path, &to))
        .map_err(raised)
}

/// Writes to a new file, or to the standard output.
#[pyfunction]
#[pyo3(signature = (path, to))]
fn export_store(py: Python<'_>, path: PathBuf, to: Option<PathBuf>) -> PyResult<()> {
    let exported = py.detach(|| match to {
        Some(to) => maintenance::export_file(&path, &to),
        None => maintenance::export(&path),
    });
    exported.map_err(raised)
}

#[pyfunction]
fn import_store(py: Python<'_>, path: PathBuf, source: PathBuf) -> PyResult<Replaced> {
    let replacement = py.detach(|| maintenance::import(&path, &source));
    replacement.map(to_python).map_err(raised)
}

#[pyfunction]
#[pyo3(signature = (path, backup))]
fn restore_store(py: Python<'_>, path: PathBuf, backup: Option<PathBuf>) -> PyResult<Replaced> {
    let replacement = py.detach(|| maintenance::restore(&path, backup.as_deref()));
    replacement.map(to_python).map_err(raised)
}

/// Replaces a damaged database by one with what can be read of it.
#[pyfunction]
fn repair_store(py: Python<'_>, path: PathBuf) -> PyResult<Replaced> {
    let replacement = py.detach(|| {
        let mut salvage = maintenance::salvage(&path)?;
        for row in bad_values(salvage.store())? {
            salvage.leave_out_row(&row)?;
        }
        for JobProblem { id, reason, effect } in check_jobs(salvage.store())? {
            match effect {
                ProblemEffect::LeftOut => salvage.leave_out(id, &reason)?,
                ProblemEffect::WithoutResources => salvage.leave_out_r(id, &reason)?,
                // The next start makes these again.
                ProblemEffect::WrongFacts => {}
            }
        }
        salvage.install()
    });
    replacement.map(to_python).map_err(raised)
}

/// Rewrites a database without free pages.
#[pyfunction]
fn vacuum_store(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    py.detach(|| maintenance::vacuum(&path)).map_err(raised)
}

fn to_python(replacement: Replacement) -> Replaced {
    (replacement.old, replacement.losses)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(check_store, module)?)?;
    module.add_function(wrap_pyfunction!(store_bytes_by_user, module)?)?;
    module.add_function(wrap_pyfunction!(back_up_store, module)?)?;
    module.add_function(wrap_pyfunction!(export_store, module)?)?;
    module.add_function(wrap_pyfunction!(import_store, module)?)?;
    module.add_function(wrap_pyfunction!(restore_store, module)?)?;
    module.add_function(wrap_pyfunction!(repair_store, module)?)?;
    module.add_function(wrap_pyfunction!(vacuum_store, module)?)
}
