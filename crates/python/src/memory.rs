//! The memory of arguments: objects with the buffer protocol or DLPack, and addresses.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringfold_foreign::Region;

use crate::dlpack;
use crate::element::Element;
use crate::fault::raise;
use crate::format;
use crate::queue::Fault;
use crate::region::{Access, region};

/// A view of a buffer. Python keeps the memory until the view is dropped, which takes the GIL.
struct View(Box<ffi::Py_buffer>);

// SAFETY: Python allows any thread that holds the GIL to release a view.
unsafe impl Send for View {}
// SAFETY: nothing reads a view but its release.
unsafe impl Sync for View {}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: Python filled in the view. `Lease` is dropped with the GIL: by a method, or as a
        // field of the Python object `Kept`.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.0) }
    }
}

/// The owner that keeps the memory of an argument.
enum Lease {
    View {
        _view: View,
    },
    Tensor {
        _tensor: dlpack::Tensor,
    },
    /// The caller of the binding alone.
    Caller,
}

/// An argument's memory.
pub(crate) struct Memory {
    pub(crate) region: Region,
    /// `None` for an address without a type.
    pub(crate) element: Option<Element>,
    lease: Lease,
}

/// Leases that outlive a method. Python drops the object with the GIL.
#[pyclass(frozen)]
struct Kept {
    _leases: Vec<Lease>,
    _object: Option<Py<PyAny>>,
}

/// Makes an object that keeps the memory of a call and the caller's `object`.
pub(crate) fn keep(
    py: Python<'_>,
    memories: impl IntoIterator<Item = Memory>,
    object: Option<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let leases = memories.into_iter().map(|memory| memory.lease).collect();
    Ok(Py::new(py, Kept { _leases: leases, _object: object })?.into_any())
}

impl Memory {
    /// The memory of the argument `name`.
    #[inline]
    pub(crate) fn new(argument: &Bound<'_, PyAny>, name: &str, access: Access) -> PyResult<Self> {
        // SAFETY: the object is alive.
        if unsafe { ffi::PyObject_CheckBuffer(argument.as_ptr()) } == 1 {
            return Self::of_buffer(argument, name, access);
        }
        if let Ok(pair) = argument.cast::<PyTuple>() {
            return Self::of_address(pair, name);
        }
        Self::of_dlpack(argument, name, access)
    }

    fn of_buffer(argument: &Bound<'_, PyAny>, name: &str, access: Access) -> PyResult<Self> {
        let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::uninit());
        let flags = ffi::PyBUF_C_CONTIGUOUS | ffi::PyBUF_FORMAT;
        let flags = if access == Access::Write { flags | ffi::PyBUF_WRITABLE } else { flags };
        // SAFETY: the object is alive, and the view has room for the result.
        if unsafe { ffi::PyObject_GetBuffer(argument.as_ptr(), view.as_mut_ptr(), flags) } != 0 {
            return Err(refused(argument, name, access));
        }
        // SAFETY: Python has filled it in.
        let view = View(unsafe { view.assume_init() });
        let buffer = &view.0;
        let (bytes, size) = (buffer.len.unsigned_abs(), buffer.itemsize.unsigned_abs());
        // SAFETY: a format is NULL or ends in a zero, and lives as long as the view.
        let format = (!buffer.format.is_null()).then(|| unsafe { CStr::from_ptr(buffer.format) });
        let element = format::of_buffer(format.map(CStr::to_bytes), size);
        let refuse = |fault| raise(argument.py(), fault);
        let element = element.map_err(|why| refuse(Fault::Argument(format!("{name} {why}"))))?;
        let region = region(buffer.buf.cast(), bytes, name).map_err(refuse)?;
        Ok(Self { region, element: Some(element), lease: Lease::View { _view: view } })
    }

    /// A pair of an address and a number of bytes.
    fn of_address(pair: &Bound<'_, PyTuple>, name: &str) -> PyResult<Self> {
        let refuse = |fault| raise(pair.py(), fault);
        let (address, bytes): (usize, usize) = pair.extract().map_err(|_| {
            refuse(Fault::Argument(format!("{name} is a tuple that is not (address, bytes)")))
        })?;
        let address = std::ptr::with_exposed_provenance_mut(address);
        let region = region(address, bytes, name).map_err(refuse)?;
        Ok(Self { region, element: None, lease: Lease::Caller })
    }

    fn of_dlpack(argument: &Bound<'_, PyAny>, name: &str, access: Access) -> PyResult<Self> {
        let (region, element, tensor) = dlpack::take_over(argument, name, access)?;
        Ok(Self { region, element: Some(element), lease: Lease::Tensor { _tensor: tensor } })
    }
}

/// The error of an object that gives no view of its buffer.
#[cold]
fn refused(argument: &Bound<'_, PyAny>, name: &str, access: Access) -> PyErr {
    let py = argument.py();
    let error = PyErr::fetch(py);
    let mut view = MaybeUninit::<ffi::Py_buffer>::uninit();
    // SAFETY: the object is alive, and the view has room for the result.
    if unsafe { ffi::PyObject_GetBuffer(argument.as_ptr(), view.as_mut_ptr(), ffi::PyBUF_FULL_RO) }
        != 0
    {
        let again = PyErr::fetch(py);
        let why = again.value(py);
        let text =
            format!("{name} gives no view of its memory: {why}; pass a view as bytes or numbers");
        return raise(py, Fault::Argument(text));
    }
    // SAFETY: Python has filled it in.
    let view = View(Box::new(unsafe { view.assume_init() }));
    // SAFETY: the view is valid.
    let is_contiguous =
        unsafe { ffi::PyBuffer_IsContiguous(&raw const *view.0, b'C'.cast_signed()) } == 1;
    let text = if !is_contiguous {
        format!("{name} is not contiguous in C order; pass a contiguous copy")
    } else if access == Access::Write && view.0.readonly != 0 {
        format!("{name} is read-only, and the call writes it")
    } else {
        format!("{name} gives no view of its memory: {}", error.value(py))
    };
    raise(py, Fault::Argument(text))
}
