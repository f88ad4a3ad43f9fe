//! `ResourceModule` and `ResourceLedger`: the inventory of an instance, and RFC 28 at its end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use penstock_resource::{Config, Effect, Error};
use penstock_wire::Message;
use pyo3::prelude::*;

use crate::errors::raised;
use crate::idset::PyIdSet;
use crate::manager::JobManager;
use crate::resource::PyResourceSet;
use crate::wire::Batch;

/// The most bytes of a file with R. That of 100,000 nodes with a graph has some 60 MB.
const MAX_FILE_BYTES: u64 = 256 << 20;

fn config(exclude: Option<String>, properties: BTreeMap<String, String>) -> Config {
    Config {
        exclude,
        properties,
    }
}

/// The services `resource` and `groups`, with the job manager that performs their effects.
#[pyclass(module = "penstock._core", frozen)]
struct ResourceModule {
    module: Mutex<penstock_resource::ResourceModule>,
    manager: Py<JobManager>,
}

/// Performs effects of a module. Returns the messages to be sent and the lines for the log.
fn perform(
    module: &mut penstock_resource::ResourceModule,
    effects: Vec<Effect>,
    manager: &JobManager,
) -> PyResult<(Vec<Message>, Vec<String>)> {
    let (mut messages, mut log) = (Vec::new(), Vec::new());
    for effect in effects {
        match effect {
            Effect::Append(line) => {
                let mut manager = manager.lock()?;
                manager.append_resource_event(&line).map_err(raised)?;
            }
            Effect::ReadEvents(request) => {
                let events = manager.lock().map_err(Error::store).and_then(|manager| {
                    let events = manager.store().resource_events();
                    events.map(lines).map_err(Error::store)
                });
                module.respond_events(&request, events);
            }
            Effect::ReadAllocated(request) => {
                let allocated = manager
                    .lock()
                    .map_err(Error::store)
                    .and_then(|manager| manager.allocated().map_err(Error::store));
                module.respond_sched_status(&request, allocated);
            }
            Effect::ReadFile(reload) => {
                let text = read_file(&reload.path).map_err(|error| error.to_string());
                let allocated = manager
                    .lock()
                    .map_err(Error::store)
                    .and_then(|manager| manager.allocated().map_err(Error::store));
                module.respond_reload(&reload, text, allocated);
            }
            Effect::SetInventory(inventory) => manager.lock()?.set_inventory(*inventory),
            Effect::Send(message) => messages.push(message),
            Effect::Warn(line) => log.push(line),
        }
    }
    Ok((messages, log))
}

/// The lines of events that are read with their rows.
fn lines(events: Vec<(i64, String)>) -> Vec<String> {
    events.into_iter().map(|(_, line)| line).collect()
}

/// Performs the effects of a call, and those that follow from them.
fn perform_all(
    module: &mut penstock_resource::ResourceModule,
    manager: &JobManager,
) -> PyResult<()> {
    loop {
        let effects = module.take_effects();
        if effects.is_empty() {
            return Ok(());
        }
        perform(module, effects, manager)?;
    }
}

/// The text of a file that a user has named.
fn read_file(path: &Path) -> io::Result<String> {
    // Opening a pipe would wait for a writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("expected a file"));
    }
    let mut text = String::new();
    let mut file = File::open(path)?.take(MAX_FILE_BYTES + 1);
    let length = file.read_to_string(&mut text)?;
    if length as u64 > MAX_FILE_BYTES {
        let text = format!("more than {MAX_FILE_BYTES} bytes");
        return Err(io::Error::other(text));
    }
    Ok(text)
}

impl ResourceModule {
    /// Runs `work` on the module without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut penstock_resource::ResourceModule, &JobManager) -> T + Send,
    ) -> T {
        let manager = self.manager.get();
        // A panic leaves a module that the broker gives no further messages.
        py.detach(|| {
            let mut module = self.module.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut module, manager)
        })
    }
}

#[pymethods]
impl ResourceModule {
    #[new]
    #[pyo3(signature = (manager, resources, *, exclude, properties, executable, now))]
    fn new(
        py: Python<'_>,
        manager: Py<JobManager>,
        resources: &Bound<'_, PyResourceSet>,
        exclude: Option<String>,
        properties: BTreeMap<String, String>,
        executable: Option<&Bound<'_, PyIdSet>>,
        now: f64,
    ) -> PyResult<Self> {
        let (jobs, base) = (manager.get(), resources.get().snapshot());
        let executable = executable.map(|ranks| ranks.get().snapshot(py));
        let module = py.detach(|| {
            let events = jobs.lock()?.store().resource_events().map_err(raised)?;
            let eventlog = events.iter().map(|(row, line)| (*row, line.as_str()));
            let config = config(exclude, properties);
            penstock_resource::ResourceModule::new(base, config, executable, eventlog, now)
                .map_err(raised)
        });
        Ok(Self {
            module: Mutex::new(module?),
            manager,
        })
    }

    fn handle(&self, py: Python<'_>, batch: &Bound<'_, Batch>, now: f64) -> PyResult<()> {
        Batch::lend(py, batch, |messages| {
            let mut module = self.module.lock().unwrap_or_else(PoisonError::into_inner);
            for message in messages {
                module.handle(message, now);
                perform_all(&mut module, self.manager.get())?;
            }
            Ok(())
        })
    }

    fn take_output(&self, py: Python<'_>) -> PyResult<(Batch, Vec<String>)> {
        let (messages, log) = self.with(py, |module, manager| {
            let effects = module.take_output();
            perform(module, effects, manager)
        })?;
        Ok((Batch { messages }, log))
    }

    fn configure(
        &self,
        py: Python<'_>,
        exclude: Option<String>,
        properties: BTreeMap<String, String>,
        now: f64,
    ) -> PyResult<()> {
        let config = config(exclude, properties);
        self.with(py, |module, manager| {
            module.configure(config, now).map_err(raised)?;
            perform_all(module, manager)
        })
    }

    #[getter]
    fn resources(&self, py: Python<'_>) -> PyResourceSet {
        let resources = self.with(py, |module, _| module.ledger().resources().clone());
        PyResourceSet::new(resources)
    }
}

/// The inventory that resources and a configuration give.
#[pyclass(module = "penstock._core", frozen)]
struct ResourceLedger(penstock_resource::Ledger);

#[pymethods]
impl ResourceLedger {
    #[new]
    #[pyo3(signature = (resources, exclude = None, properties = BTreeMap::new()))]
    fn new(
        resources: &Bound<'_, PyResourceSet>,
        exclude: Option<String>,
        properties: BTreeMap<String, String>,
    ) -> PyResult<Self> {
        let config = config(exclude, properties);
        let ledger = penstock_resource::Ledger::new(resources.get().snapshot(), config);
        ledger.map(Self).map_err(raised)
    }

    fn check(&self) -> PyResult<()> {
        self.0.check().map_err(raised)
    }

    fn find(&self, text: &str) -> PyResult<PyIdSet> {
        let found = self.0.find(text);
        found.map(PyIdSet::new).map_err(raised)
    }

    #[getter]
    fn resources(&self) -> PyResourceSet {
        PyResourceSet::new(self.0.resources().clone())
    }

    #[getter]
    fn exclude(&self) -> PyIdSet {
        PyIdSet::new(self.0.exclude().clone())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ResourceModule>()?;
    module.add_class::<ResourceLedger>()
}
