//! A key-value store of the caller, in Python.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ringfold::{KeyValueStore, StoreError};

/// The most bytes of a value. Values are numbers and unique ids.
const VALUE_BYTES_MAX: usize = 4096;

/// An object with the methods `set(key, value)`, `get(key)` and `wait(key, timeout)`.
pub(crate) struct PythonStore(pub(crate) Py<PyAny>);

/// The value that a method has returned.
fn value(returned: &Bound<'_, PyAny>) -> Result<Option<Vec<u8>>, StoreError> {
    if returned.is_none() {
        return Ok(None);
    }
    let Ok(bytes) = returned.extract::<Vec<u8>>() else {
        let class = returned.get_type().name()?;
        return Err(format!("the store returned a {class}, not bytes").into());
    };
    if bytes.len() > VALUE_BYTES_MAX {
        let length = bytes.len();
        return Err(format!("a value of {length} bytes, above {VALUE_BYTES_MAX}").into());
    }
    Ok(Some(bytes))
}

impl KeyValueStore for PythonStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        Python::attach(|py| {
            self.0.call_method1(py, "set", (key, PyBytes::new(py, value)))?;
            Ok(())
        })
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Python::attach(|py| value(&self.0.bind(py).call_method1("get", (key,))?))
    }

    fn wait(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, StoreError> {
        let timeout = timeout.as_secs_f64();
        Python::attach(|py| {
            let found = value(&self.0.bind(py).call_method1("wait", (key, timeout))?)?;
            found.ok_or_else(|| format!("no value within {timeout} s").into())
        })
    }
}
