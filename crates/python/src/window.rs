//! Windows: memory that all ranks of the host have mapped.
#![allow(unsafe_code)]

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use ringfold::{DataType, SharedWindow, Window as Pages};
use ringfold_foreign::Region;

use crate::element::{format_of, name_of};

/// Memory that all ranks of the host have mapped, as a buffer of one dimension.
/// `Communicator.alloc` makes it.
///
/// `numpy.asarray` and `torch.frombuffer` use it without a copy. The memory lives as long as the
/// window or an object that uses it.
#[pyclass(frozen, weakref, module = "ringfold")]
pub(crate) struct Window {
    pub(crate) shared: SharedWindow<u8>,
    pub(crate) data_type: DataType,
    region: Region,
    /// The shape and the strides of views.
    shape: [isize; 1],
    strides: [isize; 1],
}

impl Window {
    pub(crate) fn new(mut pages: Pages<u8>, data_type: DataType) -> Self {
        let region = Region::of(&mut pages);
        let size = data_type.bytes();
        let shape = [(region.bytes() / size).cast_signed()];
        let strides = [size.cast_signed()];
        Self { shared: pages.share(), data_type, region, shape, strides }
    }

    /// The length in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.region.bytes()
    }

    /// The elements that fit.
    pub(crate) const fn len(&self) -> usize {
        self.shape[0].unsigned_abs()
    }
}

#[pymethods]
impl Window {
    /// The name of the type of an element, as in "float32".
    #[getter]
    fn dtype(&self) -> &'static str {
        name_of(self.data_type)
    }

    /// The address of the memory.
    #[getter]
    fn address(&self) -> usize {
        self.region.start().expose_provenance()
    }

    /// The length in bytes.
    #[getter]
    const fn nbytes(&self) -> usize {
        self.region.bytes()
    }

    const fn __len__(&self) -> usize {
        self.len()
    }

    fn __repr__(&self) -> String {
        format!("<ringfold.Window of {} {}>", self.len(), self.dtype())
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: Python passes NULL or a view to fill in.
        let Some(view) = (unsafe { view.as_mut() }) else {
            return Err(PyBufferError::new_err("the view is NULL"));
        };
        let window = slf.get();
        let wants = |flag: c_int| flags & flag == flag;
        view.buf = window.region.start().cast();
        view.len = window.region.bytes().cast_signed();
        view.itemsize = window.strides[0];
        view.readonly = 0;
        view.ndim = 1;
        let format = format_of(window.data_type).as_ptr().cast_mut();
        view.format = if wants(ffi::PyBUF_FORMAT) { format } else { std::ptr::null_mut() };
        let shape = (&raw const window.shape).cast_mut().cast();
        view.shape = if wants(ffi::PyBUF_ND) { shape } else { std::ptr::null_mut() };
        let strides = (&raw const window.strides).cast_mut().cast();
        view.strides = if wants(ffi::PyBUF_STRIDES) { strides } else { std::ptr::null_mut() };
        view.suboffsets = std::ptr::null_mut();
        view.internal = std::ptr::null_mut();
        // The view keeps this object.
        view.obj = slf.into_any().into_ptr();
        Ok(())
    }
}
