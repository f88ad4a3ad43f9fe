//! `Histogram`: durations of the daemon's work.

use pyo3::prelude::*;
use pyo3::types::PyDict;

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

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Histogram>()
}
