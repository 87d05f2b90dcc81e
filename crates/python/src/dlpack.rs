//! DLPack: tensors of other libraries.
//!
//! The capsule stays unconsumed, so its own destructor frees the tensor.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::slice::from_raw_parts;

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule};
use ringfold::DataType;

use crate::element::Element;
use crate::fault::raise;
use crate::queue::Fault;
use crate::region::Region;

/// A tensor that a capsule lends.
pub(crate) struct Tensor {
    pub(crate) capsule: Py<PyAny>,
    pub(crate) region: Region,
    pub(crate) element: Element,
    pub(crate) is_read_only: bool,
}

const TENSOR: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

/// The version of DLPack that this module reads. Later minor versions only add.
const MAJOR: u32 = 1;

const READ_ONLY: u64 = 1;

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

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    _minor: u32,
    _context: *mut c_void,
    _deleter: *mut c_void,
    flags: u64,
    tensor: Dl,
}

/// The tensor of an object with `__dlpack__`.
pub(crate) fn tensor(argument: &Bound<'_, PyAny>, name: &str) -> PyResult<Tensor> {
    let py = argument.py();
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
        let text = format!("{name} is in the memory of a device; copy it to the processor's first");
        return Err(raise(py, Fault::Argument(text)));
    }
    let version = [(intern!(py, "max_version"), (MAJOR, 0_u32))].into_py_dict(py)?;
    let capsule = match lend.call((), Some(&version)) {
        // Objects of before version 1 take no such argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => lend.call0(),
        lent => lent,
    };
    let capsule = capsule.map_err(|error| not_lent(py, name, &error))?;
    let read = read(capsule.cast::<PyCapsule>()?);
    let (region, element, is_read_only) =
        read.map_err(|why| raise(py, Fault::Argument(format!("{name} {why}"))))?;
    Ok(Tensor { capsule: capsule.unbind(), region, element, is_read_only })
}

fn read(capsule: &Bound<'_, PyCapsule>) -> Result<(Region, Element, bool), &'static str> {
    let (tensor, is_read_only) = if capsule.is_valid_checked(Some(VERSIONED)) {
        let Ok(pointer) = capsule.pointer_checked(Some(VERSIONED)) else { return Err(NO_TENSOR) };
        // SAFETY: a capsule of this name points to this structure, and lives during the borrow.
        let versioned = unsafe { pointer.cast::<Versioned>().as_ref() };
        if versioned.major != MAJOR {
            return Err("has a version of DLPack that ringfold does not know");
        }
        (&versioned.tensor, versioned.flags & READ_ONLY != 0)
    } else {
        let Ok(pointer) = capsule.pointer_checked(Some(TENSOR)) else { return Err(NO_TENSOR) };
        // SAFETY: a capsule of this name points to a structure that begins with the tensor.
        (unsafe { pointer.cast::<Dl>().as_ref() }, false)
    };
    let dimensions = usize::try_from(tensor.ndim).unwrap_or_default();
    let list = |list: *const i64| {
        if list.is_null() || dimensions == 0 {
            return &[][..];
        }
        // SAFETY: a tensor has as many sizes, and strides unless they are NULL, as dimensions.
        unsafe { from_raw_parts(list, dimensions) }
    };
    let (shape, strides) = (list(tensor.shape), list(tensor.strides));
    let is_empty = shape.contains(&0);
    let mut expected = 1_i64;
    for (size, stride) in shape.iter().zip(strides).rev() {
        if !is_empty && *size != 1 && *stride != expected {
            return Err("is not contiguous in C order; pass a contiguous copy");
        }
        expected = expected.saturating_mul(*size);
    }
    let count = shape
        .iter()
        .try_fold(1_usize, |count, size| count.checked_mul(usize::try_from(*size).ok()?));
    let element = element(tensor).ok_or("has elements that are not whole bytes")?;
    let bytes = count.and_then(|count| count.checked_mul(element.bytes()));
    let bytes = bytes.ok_or("is longer than the address space")?;
    let offset = usize::try_from(tensor.byte_offset).map_err(|_| NO_TENSOR)?;
    let address = tensor.data.cast::<u8>().wrapping_add(offset);
    Ok((Region { address, bytes }, element, is_read_only))
}

const NO_TENSOR: &str = "has a capsule without a tensor of DLPack";

/// The element of a tensor, or `None` if it is not whole bytes.
fn element(tensor: &Dl) -> Option<Element> {
    let bits = usize::from(tensor.bits) * usize::from(tensor.lanes);
    if !bits.is_multiple_of(8) || bits == 0 {
        return None;
    }
    let known = match (tensor.code, tensor.bits, tensor.lanes) {
        (6, 8, 1) => return Some(Element::Bool),
        (0, 8, 1) => DataType::I8,
        (0, 32, 1) => DataType::I32,
        (0, 64, 1) => DataType::I64,
        (1, 8, 1) => DataType::U8,
        (1, 32, 1) => DataType::U32,
        (1, 64, 1) => DataType::U64,
        (2, 16, 1) => DataType::F16,
        (2, 32, 1) => DataType::F32,
        (2, 64, 1) => DataType::F64,
        (4, 16, 1) => DataType::Bf16,
        (10, 8, 1) => DataType::F8E4M3,
        (12, 8, 1) => DataType::F8E5M2,
        _ => return Some(Element::Opaque(bits / 8)),
    };
    Some(Element::Known(known))
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
