//! Groups of calls that are performed together.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use ringfold::{Collective, Rank};
use ringfold_foreign::{Entry, add_to, are_apart, lock};

use crate::call::{Arguments, Called, Common, Given, dispatch, prepare, start};
use crate::fault::raise;
use crate::memory::Memory;
use crate::queue::{CallQueue, Fault};
use crate::region::Access;

#[derive(Default)]
struct Calls {
    entries: Vec<Entry>,
    memories: Vec<Memory>,
    kept: Vec<Py<PyAny>>,
}

/// Calls that are performed together. `Communicator.group` makes it.
///
/// Its methods add calls, and `run` performs them. Its messages start together, so sends and
/// receives in any order do not deadlock. Its collectives begin when its messages are done, in
/// their order. As a context manager it runs at the end of the block, unless the block raises.
#[pyclass(frozen, module = "ringfold")]
pub(crate) struct CallGroup {
    queue: Arc<CallQueue>,
    calls: Mutex<Calls>,
}

impl CallGroup {
    pub(crate) fn new(queue: &Arc<CallQueue>) -> Self {
        Self { queue: Arc::clone(queue), calls: Mutex::default() }
    }

    fn add(
        &self,
        entry: Entry,
        memories: impl IntoIterator<Item = Memory>,
        keep: Option<Py<PyAny>>,
    ) {
        let mut calls = lock(&self.calls);
        calls.entries.push(entry);
        calls.memories.extend(memories);
        calls.kept.extend(keep);
    }

    /// Adds the collective of a method.
    pub(crate) fn add_call(
        &self,
        py: Python<'_>,
        collective: Collective,
        given: Given<'_, '_>,
        arguments: Arguments<'_, '_>,
        (dtype, keep): (Option<&Bound<'_, PyAny>>, Option<Py<PyAny>>),
    ) -> PyResult<()> {
        let (call, places, memories) =
            prepare(py, &self.queue, collective, given, arguments, dtype)?;
        self.add(Entry::Collective { call, places }, memories.into_iter().flatten(), keep);
        Ok(())
    }
}

#[pymethods]
impl CallGroup {
    /// Adds a message to rank `to`. The group may also receive it, if it goes to this rank.
    #[pyo3(signature = (data, to, tag=0, *, keep=None))]
    fn send(
        &self,
        data: &Bound<'_, PyAny>,
        to: u32,
        tag: u32,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let memory = Memory::new(data, "the data", Access::Read)?;
        self.add(Entry::Send { data: memory.region, to: Rank(to), tag }, [memory], keep);
        Ok(())
    }

    /// Adds a message from rank `source` with this tag. None stands for any other rank, and for any
    /// tag.
    #[pyo3(signature = (data, source, tag=Some(0), *, keep=None))]
    fn recv(
        &self,
        data: &Bound<'_, PyAny>,
        source: Option<u32>,
        tag: Option<u32>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let memory = Memory::new(data, "the data", Access::Write)?;
        let (data, from) = (memory.region, source.map(Rank));
        self.add(Entry::Recv { data, from, tag }, [memory], keep);
        Ok(())
    }

    /// Adds `Communicator.broadcast`, in place.
    #[pyo3(signature = (buffer, root=0, *, dtype=None, keep=None))]
    fn broadcast(
        &self,
        buffer: &Bound<'_, PyAny>,
        root: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let arguments = Arguments { root, ..Arguments::default() };
        let given = [Some(buffer), None];
        self.add_call(buffer.py(), Collective::Broadcast, given, arguments, (dtype, keep))
    }

    /// Performs the calls, and forgets them. Waits until all are done, unless `async_op` is set.
    #[pyo3(signature = (*, async_op=false, timeout=None))]
    fn run(&self, py: Python<'_>, async_op: bool, timeout: Option<f64>) -> Called {
        let Calls { entries, memories, kept } = std::mem::take(&mut *lock(&self.calls));
        if !are_apart(&entries) {
            let text = "two calls of the group use the same memory, and one of them writes it";
            return Err(raise(py, Fault::Argument(text.to_owned())));
        }
        let keep = Some(kept.into_pyobject(py)?.into_any().unbind());
        let common = Common { dtype: None, async_op, timeout, keep };
        if async_op {
            let handle = start(py, &self.queue, memories, common, move |ranks, requests| {
                let wire = ranks.wire();
                // SAFETY: `start` keeps the memory until the calls are done, and no two of them
                // write the same. The caller of the binding must not use it meanwhile.
                let add = |(): &mut (), group: &mut ringfold::CallGroup<'_>| unsafe {
                    add_to(group, &entries, wire);
                };
                requests.push(ranks.start_group((), add)?);
                Ok(())
            });
            return handle.map(Some);
        }
        dispatch(py, &self.queue, memories, common, move |communicator| {
            let wire = communicator.wire();
            // SAFETY: `dispatch` keeps the memory until the calls are done, and no two of them
            // write the same. The caller of the binding must not use it meanwhile.
            communicator.group(|group| unsafe { add_to(group, &entries, wire) })
        })
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
    ) -> PyResult<bool> {
        let (_, _) = (value, traceback);
        if exception.is_none() {
            self.run(exception.py(), false, None)?;
        }
        Ok(false)
    }

    fn __len__(&self) -> usize {
        lock(&self.calls).entries.len()
    }
}
