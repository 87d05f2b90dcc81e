//! Memory that stays registered with RDMA devices.

use std::sync::Mutex;

use pyo3::prelude::*;
use ringfold_foreign::lock;

use crate::memory::{Memory, keep};

/// Memory that RDMA devices know. `Communicator.register` makes it.
///
/// The memory stays registered until `close`, the end of a `with` block, or the end of this object.
/// It lives as long.
#[pyclass(frozen, weakref, module = "ringfold")]
pub(crate) struct Registration {
    /// The registration, if a device has one, and the owner of the memory. The registration ends
    /// first.
    open: Mutex<Option<(Option<ringfold::Registration>, Py<PyAny>)>>,
    nbytes: usize,
}

impl Registration {
    pub(crate) fn new(
        py: Python<'_>,
        registration: Option<ringfold::Registration>,
        memory: Memory,
    ) -> PyResult<Self> {
        let nbytes = memory.region.bytes();
        let open = Mutex::new(Some((registration, keep(py, [memory], None)?)));
        Ok(Self { open, nbytes })
    }
}

#[pymethods]
impl Registration {
    /// The length of the memory in bytes.
    #[getter]
    const fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Whether a device of this rank has the memory registered.
    #[getter]
    fn is_registered(&self) -> bool {
        matches!(*lock(&self.open), Some((Some(_), _)))
    }

    /// Deregisters the memory. A call that uses it ends first. May be called again.
    fn close(&self, py: Python<'_>) {
        let open = lock(&self.open).take();
        if let Some((registration, memory)) = open {
            // A device may take long for long memory.
            py.detach(|| drop(registration));
            drop(memory);
        }
    }

    const fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (exception, value, traceback))]
    fn __exit__(
        &self,
        exception: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> bool {
        let _ = (value, traceback);
        self.close(exception.py());
        false
    }

    fn __repr__(&self) -> String {
        let is = if self.is_registered() { "registered" } else { "not registered" };
        format!("<ringfold.Registration of {} bytes, {is}>", self.nbytes)
    }
}
