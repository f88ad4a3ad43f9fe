//! The vocabulary of the protocols: numbers, topics and names as constants, requests, responses and the histogram of
//! statistics as classes.

mod hook_request;
mod requests;
mod responses;
mod start_request;

use penstock_flux::alloc::AllocResponseType;
use penstock_flux::{
    flags, job_ingest, job_state, limits, pmix_attribute, pmix_status, role, topic, urgency,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for (name, flag) in [
        ("TOPIC", flags::TOPIC),
        ("PAYLOAD", flags::PAYLOAD),
        ("NORESPONSE", flags::NORESPONSE),
        ("ROUTE", flags::ROUTE),
        ("UPSTREAM", flags::UPSTREAM),
        ("PRIVATE", flags::PRIVATE),
        ("STREAMING", flags::STREAMING),
        ("USER", flags::USER),
    ] {
        module.add(name, flag)?;
    }
    for (name, kind) in [
        ("ALLOC_SUCCESS", AllocResponseType::Success),
        ("ALLOC_ANNOTATE", AllocResponseType::Annotate),
        ("ALLOC_DENY", AllocResponseType::Deny),
        ("ALLOC_CANCEL", AllocResponseType::Cancel),
    ] {
        module.add(name, kind as u8)?;
    }
    module.add("MATCHTAG_MAX", flags::MATCHTAG_MAX)?;
    module.add("MAX_JOBSPEC_BYTES", limits::MAX_JOBSPEC_BYTES)?;
    module.add("MAX_PING_BYTES", limits::MAX_PING_BYTES)?;
    module.add("MAX_PMIX_REQUEST_BYTES", limits::MAX_PMIX_REQUEST_BYTES)?;
    module.add("SUBMIT_WAITABLE", job_ingest::WAITABLE)?;
    module.add("URGENCY_HOLD", urgency::HOLD)?;
    module.add("URGENCY_DEFAULT", urgency::DEFAULT)?;
    module.add("URGENCY_EXPEDITE", urgency::EXPEDITE)?;
    module.add("NODEID_ANY", flags::NODEID_ANY)?;
    module.add("USERID_UNKNOWN", flags::USERID_UNKNOWN)?;
    module.add("ROLE_OWNER", role::OWNER)?;
    module.add("ROLE_USER", role::USER)?;
    module.add("ROLE_LOCAL", role::LOCAL)?;
    module.add("topic", topics(module.py())?)?;
    let py = module.py();
    for (name, bits) in [
        ("job_state", job_state::ALL),
        ("job_result", job_state::result::ALL),
    ] {
        module.add(name, constants(py, name, bits)?)?;
    }
    module.add(
        "pmix_status",
        constants(py, "pmix_status", pmix_status::ALL)?,
    )?;
    module.add(
        "pmix_attribute",
        constants(py, "pmix_attribute", pmix_attribute::ALL)?,
    )?;
    module.add_function(wrap_pyfunction!(exit_status, module)?)?;
    module.add_class::<Histogram>()?;
    requests::register(module)?;
    hook_request::register(module)?;
    start_request::register(module)?;
    responses::register(module)
}

/// The exit status of a task as a shell shows it, from its wait status.
#[pyfunction]
fn exit_status(wait_status: i32) -> i32 {
    penstock_flux::exec::exit_status(wait_status)
}

/// Builds the class `topic` with a nested class for each service, so that `topic.log.APPEND` reads as in Rust.
fn topics(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let services = PyDict::new(py);
    for (service, topics) in [
        ("service", topic::service::ALL),
        ("event", topic::event::ALL),
        ("broker", topic::broker::ALL),
        ("log", topic::log::ALL),
        ("job_ingest", topic::job_ingest::ALL),
        ("job_manager", topic::job_manager::ALL),
        ("job_list", topic::job_list::ALL),
        ("job_info", topic::job_info::ALL),
        ("kvs", topic::kvs::ALL),
        ("resource", topic::resource::ALL),
        ("sched", topic::sched::ALL),
        ("exec_method", topic::exec_method::ALL),
        ("job_exec", topic::job_exec::ALL),
        ("hooks", topic::hooks::ALL),
        ("pmix", topic::pmix::ALL),
        ("pmix_exec", topic::pmix_exec::ALL),
        ("pmix_server", topic::pmix_server::ALL),
    ] {
        let constants = PyDict::new(py);
        for (name, topic) in topics {
            constants.set_item(name, topic)?;
        }
        services.set_item(service, class(&format!("topic.{service}"), &constants)?)?;
    }
    services.set_item("JOB_EXCEPTION", topic::JOB_EXCEPTION)?;
    services.set_item("DISCONNECT", topic::DISCONNECT)?;
    services.set_item("PING", topic::PING)?;
    services.set_item("STATS_GET", topic::STATS_GET)?;
    class("topic", &services)
}

/// Builds a class of numbers or names.
fn constants<'py, T: IntoPyObject<'py> + Copy>(
    py: Python<'py>,
    name: &str,
    values: &[(&str, T)],
) -> PyResult<Bound<'py, PyAny>> {
    let members = PyDict::new(py);
    for (name, value) in values {
        members.set_item(name, *value)?;
    }
    class(name, &members)
}

/// A class that is a namespace of constants.
fn class<'py>(name: &str, members: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    let py = members.py();
    members.set_item("__module__", "penstock._core")?;
    members.set_item("__qualname__", name)?;
    let (_, name) = name.rsplit_once('.').unwrap_or(("", name));
    py.get_type::<PyType>().call1((name, (), members))
}

/// Counts durations by buckets, for the statistics of a service.
#[pyclass(module = "penstock._core")]
struct Histogram(penstock_flux::Histogram);

#[pymethods]
impl Histogram {
    #[new]
    fn new() -> Self {
        Self(penstock_flux::Histogram::of_work())
    }

    /// Counts a duration in seconds.
    fn observe(&mut self, seconds: f64) {
        self.0.observe(seconds);
    }

    /// The counts so far, as services send them.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.0.stats();
        let dict = PyDict::new(py);
        dict.set_item("count", stats.count)?;
        dict.set_item("sum", stats.sum)?;
        dict.set_item("le", stats.le)?;
        dict.set_item("buckets", stats.buckets)?;
        Ok(dict)
    }
}
