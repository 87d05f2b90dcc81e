//! Operations of the user, as functions of Python.
#![allow(unsafe_code)]

use std::panic::resume_unwind;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};
use ringfold::{Collective, Communicator as Ranks, DataType, Error, Rank, UserOp as Op};
use ringfold_foreign::Places;

use crate::call::{Called, Common, Given, dispatch, element_of, memories, start};
use crate::element::{Element, format_of};
use crate::ended::Ends;
use crate::fault::raise;
use crate::handle::interrupt_with;
use crate::memory::Memory;
use crate::queue::{CallQueue, Fault};
use crate::region::overlap;

/// An operation that `Communicator.register_op` has made, for `Communicator.all_reduce_by`.
#[pyclass(frozen, module = "ringfold")]
pub(crate) struct UserOp {
    op: Op<u8>,
    element: Element,
}

/// A function in Python, and the format of the elements that it gets.
struct Function {
    function: Py<PyAny>,
    format: &'static str,
    /// Those of its communicator, whose calls it must not wait for.
    ends: Arc<Ends>,
}

impl UserOp {
    /// The elements that a caller names: by a data type, or by a number of bytes.
    pub(crate) fn element(dtype: &Bound<'_, PyAny>) -> PyResult<Element> {
        dtype.extract().map_or_else(|_| Element::named(dtype), |bytes| Ok(Element::Opaque(bytes)))
    }

    /// Registers an operation on all ranks.
    pub(crate) fn register(
        ranks: &mut Ranks,
        name: &str,
        function: Py<PyAny>,
        element: Element,
        ends: Arc<Ends>,
    ) -> Result<Self, Error> {
        let function = Function { function, format: format(element), ends };
        let combine = move |into: &mut [u8], from: &[u8]| function.combine(into, from);
        let op = ranks.register_op_on_bytes(name, element.bytes(), combine)?;
        Ok(Self { op, element })
    }

    /// Makes the all-reduce of `Communicator.all_reduce_by`.
    pub(crate) fn all_reduce(
        &self,
        py: Python<'_>,
        queue: &Arc<CallQueue>,
        given: Given<'_, '_>,
        common: Common<'_, '_>,
    ) -> Called {
        let refuse = |fault| raise(py, fault);
        let memories = memories(queue, Collective::AllReduce, given, Rank(0))?;
        self.check(py, common.dtype, &memories)?;
        let regions = memories.each_ref().map(|memory| memory.as_ref().map(|it| it.region));
        let both = |input, output| {
            let is_one = input == output;
            if is_one { Some(Places::InPlace(output)) } else { Places::apart(input, output) }
        };
        let places = Places::new(regions, true, both).ok_or_else(|| refuse(overlap()))?;
        let (op, memories) = (self.op.clone(), memories.into_iter().flatten());
        if common.async_op {
            let handle = start(py, queue, memories, common, move |ranks, requests| {
                // SAFETY: `start` keeps the memory, and its owner does not use it meanwhile.
                let started =
                    ranks.start_all_reduce_by_in((), move |()| unsafe { places.copied() }, &op);
                requests.push(started?);
                Ok(())
            });
            return handle.map(Some);
        }
        dispatch(py, queue, memories, common, move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not use it meanwhile.
            ranks.all_reduce_by(unsafe { places.copied() }, &op)
        })
    }

    /// Checks the types and the lengths of buffers.
    fn check(
        &self,
        py: Python<'_>,
        dtype: Option<&Bound<'_, PyAny>>,
        memories: &[Option<Memory>; 2],
    ) -> PyResult<()> {
        let memories = || memories.iter().flatten();
        let refuse = |text| Err(raise(py, Fault::Argument(text)));
        let is_known = matches!(self.element, Element::Known(_));
        if is_known && memories().all(|memory| memory.element.is_some()) {
            let found = element_of(py, dtype, memories())?;
            if found != self.element {
                return refuse(format!(
                    "the operation combines {}, and the buffers have {found}",
                    self.element
                ));
            }
        }
        let lens: Vec<_> = memories().map(|memory| memory.region.bytes()).collect();
        let size = self.element.bytes();
        if let Some(len) = lens.iter().find(|len| !len.is_multiple_of(size)) {
            return refuse(format!("a buffer has {len} bytes, not elements of {size} bytes"));
        }
        if lens.iter().any(|len| *len != lens[0]) {
            return refuse(format!("the buffers have different lengths in bytes: {lens:?}"));
        }
        Ok(())
    }
}

/// The format of the elements of a function's views: unsigned integers for types that memoryview
/// lacks, and otherwise bytes.
fn format(element: Element) -> &'static str {
    match element {
        Element::Bool => "?",
        Element::Opaque(_) => "B",
        Element::Known(DataType::F16) => "H",
        Element::Known(data_type) => format_of(data_type).to_str().unwrap_or("B"),
    }
}

impl Function {
    /// Combines by the function. Its exception becomes a panic, which fails the call on all ranks.
    fn combine(&self, into: &mut [u8], from: &[u8]) {
        let combined = Python::try_attach(|py| {
            self.ends.calling(|| self.call(py, into, from)).map_err(|error| {
                let text = error.to_string();
                error.clone_ref(py).write_unraisable(py, Some(self.function.bind(py)));
                interrupt_with(py, error);
                text
            })
        });
        let combined = combined.unwrap_or_else(|| Err("the interpreter has ended".to_owned()));
        if let Err(text) = combined {
            resume_unwind(Box::new(text));
        }
    }

    /// Calls the function with copies, which it may keep: nobody can take memory of a call back
    /// from Python.
    fn call(&self, py: Python<'_>, into: &mut [u8], from: &[u8]) -> PyResult<()> {
        let (result, other) = (PyByteArray::new(py, into), PyBytes::new(py, from));
        let views = (self.view(result.as_any())?, self.view(other.as_any())?);
        self.function.call1(py, views)?;
        let result = result.to_vec();
        if result.len() != into.len() {
            let text = "the function has resized the memory of its first view";
            return Err(PyValueError::new_err(text));
        }
        into.copy_from_slice(&result);
        Ok(())
    }

    fn view<'py>(&self, bytes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        PyMemoryView::from(bytes)?.call_method1("cast", (self.format,))
    }
}
