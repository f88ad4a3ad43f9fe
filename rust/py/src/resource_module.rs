//! `ResourceModule` and `ResourceLedger`: the inventory of an instance, and RFC 28 at its end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_resource::{Config, Error, Instance};
use penstock_rset::ResourceSet;
use pyo3::prelude::*;

use crate::errors::{is_error, raised};
use crate::idset::PyIdSet;
use crate::manager::JobManager;
use crate::resource::PyResourceSet;
use crate::wire::Batch;

fn config(exclude: Option<String>, properties: BTreeMap<String, String>) -> Config {
    Config {
        exclude,
        properties,
    }
}

/// Locks a value, also after a panic of another thread: every change is atomic.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The job manager, whose store has the resource eventlog, and a Python callable that checks a growth.
struct PyInstance<'a> {
    manager: &'a JobManager,
    check_growth: &'a Py<PyAny>,
}

impl Instance for PyInstance<'_> {
    fn append_event(&mut self, line: &str) -> Result<(), Error> {
        let mut manager = self.manager.lock().map_err(Error::store)?;
        manager.append_resource_event(line).map_err(Error::store)
    }

    fn events(&mut self) -> Result<Vec<String>, Error> {
        let manager = self.manager.lock().map_err(Error::store)?;
        manager.store().resource_events().map_err(Error::store)
    }

    fn allocated_resources(&mut self) -> Result<ResourceSet, Error> {
        let manager = self.manager.lock().map_err(Error::store)?;
        manager.allocated().map_err(Error::store)
    }

    fn check_growth(&mut self, grown: &ResourceSet) -> Result<(), Error> {
        Python::attach(|py| {
            let grown = PyResourceSet::new(grown.clone());
            let checked = self.check_growth.call1(py, (grown,));
            checked.map(drop).map_err(|error| {
                let text = error.value(py).to_string();
                if is_error(py, &error) {
                    Error::growth(text)
                } else {
                    Error::store(text)
                }
            })
        })
    }
}

/// The services `resource` and `groups`, sans-IO: requests in, responses out.
#[pyclass(module = "penstock._core", frozen)]
struct ResourceModule {
    module: Mutex<penstock_resource::ResourceModule>,
    manager: Py<JobManager>,
    check_growth: Py<PyAny>,
}

impl ResourceModule {
    fn instance(&self) -> PyInstance<'_> {
        PyInstance {
            manager: self.manager.get(),
            check_growth: &self.check_growth,
        }
    }

    /// Runs `work` on the module without the GIL, because a thread that holds the module may take the GIL to call
    /// `check_growth`.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut penstock_resource::ResourceModule) -> T + Send,
    ) -> T {
        py.detach(|| work(&mut lock(&self.module)))
    }
}

#[pymethods]
impl ResourceModule {
    #[new]
    #[pyo3(signature = (manager, resources, *, exclude, properties, check_growth))]
    fn new(
        py: Python<'_>,
        manager: Py<JobManager>,
        resources: &Bound<'_, PyResourceSet>,
        exclude: Option<String>,
        properties: BTreeMap<String, String>,
        check_growth: Py<PyAny>,
    ) -> PyResult<Self> {
        let (jobs, base) = (manager.get(), resources.get().snapshot());
        let module = py.detach(|| {
            let eventlog = PyInstance {
                manager: jobs,
                check_growth: &check_growth,
            }
            .events()?;
            let eventlog = eventlog.iter().map(String::as_str);
            let config = config(exclude, properties);
            penstock_resource::ResourceModule::new(base, config, eventlog)
        });
        Ok(Self {
            module: Mutex::new(module.map_err(|error| raised(&error))?),
            manager,
            check_growth,
        })
    }

    fn handle(&self, py: Python<'_>, batch: &Bound<'_, Batch>, now: f64) {
        Batch::lend(py, batch, |messages| {
            let mut module = lock(&self.module);
            for message in messages {
                module.handle(message, now, &mut self.instance());
            }
        });
    }

    fn flush(&self, py: Python<'_>) -> PyResult<Batch> {
        let flushed = self.with(py, |module| {
            if let Some(inventory) = module.take_inventory() {
                let mut manager = self.manager.get().lock().map_err(Error::store)?;
                manager.set_inventory(inventory);
            }
            Ok(module.flush())
        });
        let messages = flushed.map_err(|error: Error| raised(&error))?;
        Ok(Batch { messages })
    }

    fn configure(
        &self,
        py: Python<'_>,
        exclude: Option<String>,
        properties: BTreeMap<String, String>,
        now: f64,
    ) -> PyResult<()> {
        let config = config(exclude, properties);
        self.with(py, |module| {
            module.configure(config, now, &mut self.instance())
        })
        .map_err(|error| raised(&error))
    }

    fn take_log(&self, py: Python<'_>) -> Vec<String> {
        self.with(py, penstock_resource::ResourceModule::take_log)
    }

    #[getter]
    fn resources(&self, py: Python<'_>) -> PyResourceSet {
        let resources = self.with(py, |module| module.ledger().resources().clone());
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
        ledger.map(Self).map_err(|error| raised(&error))
    }

    fn check(&self) -> PyResult<()> {
        self.0.check().map_err(|error| raised(&error))
    }

    fn find(&self, text: &str) -> PyResult<PyIdSet> {
        let found = self.0.find(text);
        found.map(PyIdSet::new).map_err(|error| raised(&error))
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
