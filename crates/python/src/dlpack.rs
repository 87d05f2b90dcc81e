//! DLPack: tensors of other libraries.
//!
//! A capsule lends its tensor to one consumer. A call takes the tensor over and renames the
//! capsule, so no other consumer can free the tensor while the call runs. A capsule of a refused
//! tensor stays as it is.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::slice::from_raw_parts;

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule};
use pyo3::{ffi, intern};
use ringfold_foreign::Region;

use crate::element::Element;
use crate::fault::raise;
use crate::format;
use crate::queue::Fault;
use crate::region::{Access, region};

/// A tensor that a call has taken over. Its producer keeps the memory until this is dropped, which
/// takes the GIL.
pub(crate) struct Tensor {
    managed: NonNull<c_void>,
    deleter: Option<Deleter>,
}

// SAFETY: DLPack allows any thread to call the deleter.
unsafe impl Send for Tensor {}
// SAFETY: nothing reads a tensor but its release.
unsafe impl Sync for Tensor {}

impl Drop for Tensor {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: `take_over` has made this the only owner, so this is the one call.
            unsafe { deleter(self.managed.as_ptr()) }
        }
    }
}

type Deleter = unsafe extern "C" fn(*mut c_void);

const TENSOR: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_TENSOR: &CStr = c"used_dltensor";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// The version of DLPack that this module reads. Later minor versions only add.
const MAJOR: u32 = 1;

const READ_ONLY: u64 = 1;
const IS_COPY: u64 = 2;

/// Memory of the processor, and such memory that a device knows too.
const DEVICES: [i32; 3] = [1, 3, 11];

/// `DLTensor`.
#[repr(C)]
struct Dl {
    data: *mut c_void,
    device_type: i32,
    _device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Unversioned {
    tensor: Dl,
    _context: *mut c_void,
    deleter: Option<Deleter>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    _minor: u32,
    _context: *mut c_void,
    deleter: Option<Deleter>,
    flags: u64,
    tensor: Dl,
}

/// Takes the tensor of an object with `__dlpack__` over.
pub(crate) fn take_over(
    argument: &Bound<'_, PyAny>,
    name: &str,
    access: Access,
) -> PyResult<(Region, Element, Tensor)> {
    let py = argument.py();
    let refuse = |why: &str| raise(py, Fault::Argument(format!("{name} {why}")));
    let lend = match argument.getattr(intern!(py, "__dlpack__")) {
        Ok(lend) => lend,
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => {
            return Err(no_memory(argument, name));
        }
        Err(error) => return Err(error),
    };
    let device = argument.call_method0(intern!(py, "__dlpack_device__"));
    let device = device.map_err(|error| not_lent(py, name, &error))?;
    let (device, _): (i32, i32) = device.extract()?;
    if !DEVICES.contains(&device) {
        return Err(refuse(OF_DEVICE));
    }
    // A view of torch with the negative bit lends memory of the opposite values.
    if let Some(is_negative) = argument.getattr_opt(intern!(py, "is_neg"))?
        && is_negative.call0()?.is_truthy()?
    {
        return Err(refuse(NEGATIVE));
    }
    let version = [(intern!(py, "max_version"), (MAJOR, 0_u32))].into_py_dict(py)?;
    let capsule = match lend.call((), Some(&version)) {
        // Objects of before version 1 take no such argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => lend.call0(),
        lent => lent,
    };
    let capsule = capsule.map_err(|error| not_lent(py, name, &error))?;
    let capsule = capsule.cast::<PyCapsule>().map_err(|_| refuse(NO_TENSOR))?;
    let lent = Lent::new(capsule).map_err(refuse)?;
    if access == Access::Write
        && let Err(why) = lent.writing
        && !(why == CANNOT_SAY && is_of_torch(argument)?)
    {
        return Err(refuse(why));
    }
    let (address, bytes, element) = memory(lent.tensor).map_err(|why| refuse(&why))?;
    let region = region(address, bytes, name).map_err(|fault| raise(py, fault))?;
    let Lent { managed, deleter, used, .. } = lent;
    // SAFETY: the capsule is valid, and the name lives for ever.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } != 0 {
        return Err(PyErr::fetch(py));
    }
    Ok((region, element, Tensor { managed, deleter }))
}

/// The content of a capsule whose tensor nobody has taken over.
struct Lent<'c> {
    tensor: &'c Dl,
    /// The whole structure, which `deleter` frees.
    managed: NonNull<c_void>,
    deleter: Option<Deleter>,
    /// The name of the capsule after the tensor is taken over.
    used: &'static CStr,
    /// Whether the memory may be written, or the reason why not.
    writing: Result<(), &'static str>,
}

impl<'c> Lent<'c> {
    fn new(capsule: &'c Bound<'_, PyCapsule>) -> Result<Self, &'static str> {
        let managed = |name| {
            let pointer = capsule
                .is_valid_checked(Some(name))
                .then(|| capsule.pointer_checked(Some(name)).ok());
            pointer.flatten()
        };
        if let Some(managed) = managed(VERSIONED) {
            // SAFETY: a capsule of this name points to this structure, and lives for `'c`.
            let versioned = unsafe { managed.cast::<Versioned>().as_ref() };
            if versioned.major != MAJOR {
                return Err("has a version of DLPack that ringfold does not know");
            }
            let writing = match versioned.flags {
                flags if flags & READ_ONLY != 0 => Err("is read-only, and the call writes it"),
                flags if flags & IS_COPY != 0 => Err(COPY),
                _ => Ok(()),
            };
            let (tensor, deleter) = (&versioned.tensor, versioned.deleter);
            return Ok(Self { tensor, managed, deleter, used: USED_VERSIONED, writing });
        }
        if let Some(managed) = managed(TENSOR) {
            // SAFETY: a capsule of this name points to this structure, and lives for `'c`.
            let unversioned = unsafe { managed.cast::<Unversioned>().as_ref() };
            let (tensor, deleter) = (&unversioned.tensor, unversioned.deleter);
            let writing = Err(CANNOT_SAY);
            return Ok(Self { tensor, managed, deleter, used: USED_TENSOR, writing });
        }
        let is_used =
            [USED_TENSOR, USED_VERSIONED].map(|used| capsule.is_valid_checked(Some(used)));
        Err(if is_used.contains(&true) { USED } else { NO_TENSOR })
    }
}

const OF_DEVICE: &str = "is in the memory of a device; copy it to the processor's first";
const NEGATIVE: &str = "is a view with the negative bit, and its memory has the opposite values; \
    pass tensor.resolve_neg()";
const NO_TENSOR: &str = "has a capsule without a tensor of DLPack";
const USED: &str = "has a capsule of DLPack whose tensor another consumer has taken over; \
    `__dlpack__` must make a capsule for each call";
const COPY: &str = "lends a copy of its memory, and the call writes it; pass an object that lends \
    its own";
const CANNOT_SAY: &str = "comes by a capsule of DLPack before version 1, which cannot say that the \
    call may write it; pass a numpy array or another object with the buffer protocol, or \
    (address, bytes) with a dtype";

/// Whether the object is a tensor of torch, which has no read-only tensors.
fn is_of_torch(argument: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = argument.py();
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let Ok(torch) = modules.get_item(intern!(py, "torch")) else { return Ok(false) };
    argument.is_instance(&torch.getattr(intern!(py, "Tensor"))?)
}

/// The address and the length of a tensor, and its elements.
fn memory(tensor: &Dl) -> Result<(*mut u8, usize, Element), String> {
    if !DEVICES.contains(&tensor.device_type) {
        return Err(OF_DEVICE.to_owned());
    }
    let dimensions = usize::try_from(tensor.ndim).map_err(|_| NO_TENSOR)?;
    let list = |list: *const i64| {
        if list.is_null() || dimensions == 0 {
            return &[][..];
        }
        // SAFETY: a tensor has as many sizes, and strides unless they are NULL, as dimensions.
        unsafe { from_raw_parts(list, dimensions) }
    };
    let (shape, strides) = (list(tensor.shape), list(tensor.strides));
    if shape.len() < dimensions {
        return Err(NO_TENSOR.to_owned());
    }
    let is_empty = shape.contains(&0);
    let mut expected = 1_i64;
    for (size, stride) in shape.iter().zip(strides).rev() {
        if !is_empty && *size != 1 && *stride != expected {
            return Err("is not contiguous in C order; pass a contiguous copy".to_owned());
        }
        expected = expected.saturating_mul(*size);
    }
    let count = shape
        .iter()
        .try_fold(1_usize, |count, size| count.checked_mul(usize::try_from(*size).ok()?));
    let element = format::of_tensor(tensor.code, tensor.bits, tensor.lanes);
    let element = element.map_err(|why| why.to_string())?;
    let bytes = count.and_then(|count| count.checked_mul(element.bytes()));
    let bytes = bytes.ok_or("is longer than the address space")?;
    let offset = usize::try_from(tensor.byte_offset).map_err(|_| NO_TENSOR)?;
    let address = tensor.data.cast::<u8>().wrapping_add(offset);
    Ok((address, bytes, element))
}

/// An exception if `argument` is no memory at all.
#[cold]
fn no_memory(argument: &Bound<'_, PyAny>, name: &str) -> PyErr {
    let given = argument.get_type().name().map_or_else(|_| String::new(), |it| it.to_string());
    let text = format!(
        "{name} is a {given}, which has no memory that ringfold can use; pass an object with the \
         buffer protocol or DLPack, or a tuple (address, bytes)"
    );
    raise(argument.py(), Fault::Argument(text))
}

/// The exception of a buffer that DLPack refuses.
#[cold]
fn not_lent(py: Python<'_>, name: &str, error: &PyErr) -> PyErr {
    // torch knows no number for some devices, and says so by a ValueError.
    if !error.is_instance_of::<PyBufferError>(py) && !error.is_instance_of::<PyValueError>(py) {
        return error.clone_ref(py);
    }
    raise(py, Fault::Argument(format!("{name} does not lend its memory: {}", error.value(py))))
}
