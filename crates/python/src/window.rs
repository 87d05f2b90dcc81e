//! Windows: memory that all ranks of the host have mapped.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use ringfold::{Call, Communicator, DataType, Error, Rank, Window as Pages, Windows};

use crate::element::name_of;
use crate::region::Region;

/// A window of one communicator.
pub(crate) type Shared = Arc<Mutex<Pages<u8>>>;

/// Memory that all ranks of the host have mapped, as a buffer of one dimension.
/// `Communicator.alloc` makes it.
///
/// `numpy.asarray` and `torch.frombuffer` use it without a copy. The memory lives as long as the
/// window or an object that uses it.
#[pyclass(frozen, weakref, module = "ringfold")]
pub(crate) struct Window {
    pub(crate) shared: Shared,
    pub(crate) data_type: DataType,
    region: Region,
    /// The shape and the strides of views.
    shape: [isize; 1],
    strides: [isize; 1],
}

// SAFETY: the address of the memory belongs to no thread, and the object only hands it out.
unsafe impl Sync for Window {}

impl Window {
    pub(crate) fn new(mut pages: Pages<u8>, data_type: DataType) -> Self {
        let region = Region { address: pages.as_mut_ptr(), bytes: pages.len() };
        let size = data_type.bytes();
        let shape = [(region.bytes / size).cast_signed()];
        let strides = [size.cast_signed()];
        Self { shared: Arc::new(Mutex::new(pages)), data_type, region, shape, strides }
    }

    /// The length in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.region.bytes
    }

    /// The elements that fit.
    pub(crate) const fn len(&self) -> usize {
        self.shape[0].unsigned_abs()
    }
}

/// The format of a buffer of this type. Types that the module `struct` lacks are unsigned integers.
const fn format(data_type: DataType) -> &'static CStr {
    match data_type {
        DataType::I8 => c"b",
        DataType::U8 | DataType::F8E4M3 | DataType::F8E5M2 => c"B",
        DataType::I32 => c"i",
        DataType::U32 => c"I",
        DataType::I64 => c"q",
        DataType::U64 => c"Q",
        DataType::F16 => c"e",
        DataType::Bf16 => c"H",
        DataType::F32 => c"f",
        DataType::F64 => c"d",
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
        self.region.address.expose_provenance()
    }

    /// The length in bytes.
    #[getter]
    const fn nbytes(&self) -> usize {
        self.region.bytes
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
        view.buf = window.region.address.cast();
        view.len = window.region.bytes.cast_signed();
        view.itemsize = window.strides[0];
        view.readonly = 0;
        view.ndim = 1;
        let format = format(window.data_type).as_ptr().cast_mut();
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

/// Locks a window. Only calls of its communicator use it, and they follow one another.
fn unused(window: &Shared, rank: Rank) -> Result<MutexGuard<'_, Pages<u8>>, Error> {
    match window.try_lock() {
        Ok(window) => Ok(window),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Error::Argument {
            rank,
            call: "allreduce",
            what: "another communicator uses the window at this time".to_owned(),
        }),
    }
}

/// Performs an all-reduce in windows, from byte `at`.
pub(crate) fn all_reduce(
    communicator: &mut Communicator,
    call: &Call,
    input: Option<&Shared>,
    output: &Shared,
    at: usize,
) -> Result<(), Error> {
    let rank = communicator.rank();
    let mut output = unused(output, rank)?;
    let input = input.map(|input| unused(input, rank)).transpose()?;
    let windows = match &input {
        None => Windows::InPlace(&mut output),
        Some(input) => Windows::Apart { input, output: &mut output },
    };
    communicator.perform_in_windows(call, windows, at)
}
