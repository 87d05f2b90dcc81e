//! Groups of calls that are performed together.
#![allow(unsafe_code)]
#![expect(clippy::too_many_arguments, reason = "these are keywords in Python")]

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use ringfold::{Call, Collective, Rank};

use crate::call::{Called, Common, Given, dispatch, element_of, memories, plan};
use crate::element::operation;
use crate::fault::raise;
use crate::memory::{Memory, Places};
use crate::queue::{Fault, Member, lock};
use crate::region::{Access, Region};

enum Entry {
    Send { data: Region, to: Rank, tag: u32 },
    Recv { data: Region, from: Rank, tag: u32 },
    Call { call: Call, places: Places },
}

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
    member: Arc<Member>,
    calls: Mutex<Calls>,
}

impl CallGroup {
    pub(crate) fn new(member: &Arc<Member>) -> Self {
        Self { member: Arc::clone(member), calls: Mutex::default() }
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

    fn add_call(
        &self,
        py: Python<'_>,
        collective: Collective,
        given: Given<'_, '_>,
        (op, root): (Option<&Bound<'_, PyAny>>, u32),
        (dtype, keep): (Option<&Bound<'_, PyAny>>, Option<Py<PyAny>>),
    ) -> PyResult<()> {
        let (refuse, root) = (|fault| raise(py, fault), Rank(root));
        let memories = memories(&self.member, collective, given, root)?;
        let op = operation(op)?.map_err(refuse)?;
        let element = element_of(dtype, memories.iter().flatten())?.map_err(refuse)?;
        let both = memories.each_ref().map(Option::as_ref);
        let planned = plan(&self.member, collective, both, element, op, root);
        let (call, places) = planned.map_err(refuse)?;
        self.add(Entry::Call { call, places }, memories.into_iter().flatten(), keep);
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

    /// Adds a message from rank `source`.
    #[pyo3(signature = (data, source, tag=0, *, keep=None))]
    fn recv(
        &self,
        data: &Bound<'_, PyAny>,
        source: u32,
        tag: u32,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let memory = Memory::new(data, "the data", Access::Write)?;
        self.add(Entry::Recv { data: memory.region, from: Rank(source), tag }, [memory], keep);
        Ok(())
    }

    /// Adds `Communicator.all_reduce`.
    #[pyo3(signature = (input, output=None, op=None, *, dtype=None, keep=None))]
    fn all_reduce(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        self.add_call(
            input.py(),
            Collective::AllReduce,
            [Some(input), output],
            (op, 0),
            (dtype, keep),
        )
    }

    /// Adds `Communicator.all_gather`.
    #[pyo3(signature = (input, output=None, *, dtype=None, keep=None))]
    fn all_gather(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        self.add_call(
            input.py(),
            Collective::AllGather,
            [Some(input), output],
            (None, 0),
            (dtype, keep),
        )
    }

    /// Adds `Communicator.reduce_scatter`.
    #[pyo3(signature = (input, output=None, op=None, *, dtype=None, keep=None))]
    fn reduce_scatter(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        self.add_call(
            input.py(),
            Collective::ReduceScatter,
            [Some(input), output],
            (op, 0),
            (dtype, keep),
        )
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
        self.add_call(
            buffer.py(),
            Collective::Broadcast,
            [Some(buffer), None],
            (None, root),
            (dtype, keep),
        )
    }

    /// Adds `Communicator.reduce`.
    #[pyo3(signature = (input, output=None, op=None, root=0, *, dtype=None, keep=None))]
    fn reduce(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        root: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let given = [Some(input), output];
        self.add_call(input.py(), Collective::Reduce, given, (op, root), (dtype, keep))
    }

    /// Adds `Communicator.scan`.
    #[pyo3(signature = (input, output=None, op=None, *, dtype=None, keep=None))]
    fn scan(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let given = [Some(input), output];
        self.add_call(input.py(), Collective::Scan, given, (op, 0), (dtype, keep))
    }

    /// Adds `Communicator.exscan`.
    #[pyo3(signature = (input, output=None, op=None, *, dtype=None, keep=None))]
    fn exscan(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let given = [Some(input), output];
        self.add_call(input.py(), Collective::Exscan, given, (op, 0), (dtype, keep))
    }

    /// Adds `Communicator.all_to_all`.
    #[pyo3(signature = (input, output=None, *, dtype=None, keep=None))]
    fn all_to_all(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let given = [Some(input), output];
        self.add_call(input.py(), Collective::AllToAll, given, (None, 0), (dtype, keep))
    }

    /// Adds `Communicator.gather`.
    #[pyo3(signature = (input, output=None, root=0, *, dtype=None, keep=None))]
    fn gather(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        root: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let given = [Some(input), output];
        self.add_call(input.py(), Collective::Gather, given, (None, root), (dtype, keep))
    }

    /// Adds `Communicator.scatter`.
    #[pyo3(signature = (input, output=None, root=0, *, dtype=None, keep=None))]
    fn scatter(
        &self,
        py: Python<'_>,
        input: Option<&Bound<'_, PyAny>>,
        output: Option<&Bound<'_, PyAny>>,
        root: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        self.add_call(py, Collective::Scatter, [input, output], (None, root), (dtype, keep))
    }

    /// Performs the calls, and forgets them. Waits until all are done, unless `async_op` is set.
    #[pyo3(signature = (*, async_op=false, timeout=None))]
    fn run(&self, py: Python<'_>, async_op: bool, timeout: Option<f64>) -> Called {
        let Calls { entries, memories, kept } = std::mem::take(&mut *lock(&self.calls));
        check_apart(&entries).map_err(|fault| raise(py, fault))?;
        let keep = Some(kept.into_pyobject(py)?.into_any().unbind());
        let common = Common { dtype: None, async_op, timeout, keep };
        dispatch(py, &self.member, memories, common, move |communicator| {
            let wire = communicator.wire();
            communicator.group(|group| {
                for entry in &entries {
                    // SAFETY: `dispatch` keeps the memory until the calls are done, and no two of
                    // them write the same. The caller of the binding must not use it meanwhile.
                    unsafe {
                        match *entry {
                            Entry::Send { data, to, tag } => group.send(data.slice(), to, tag),
                            Entry::Recv { data, from, tag } => {
                                group.recv(data.slice_mut(), from, tag);
                            }
                            Entry::Call { call, places } => {
                                group.perform(&Call { wire, ..call }, places.buffers());
                            }
                        }
                    }
                }
            })
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

/// Refuses calls of which one writes what another one uses.
fn check_apart(entries: &[Entry]) -> Result<(), Fault> {
    let mut used = Vec::new();
    let mut add = |region: Region, is_written: bool| {
        if region.bytes > 0 {
            let start = region.address.addr();
            used.push((start, start.saturating_add(region.bytes), is_written));
        }
    };
    for entry in entries {
        match *entry {
            Entry::Send { data, .. } => add(data, false),
            Entry::Recv { data, .. } => add(data, true),
            Entry::Call { places: Places::InPlace(both), .. } => add(both, true),
            Entry::Call { places: Places::Apart { input, output }, .. } => {
                add(input, false);
                add(output, true);
            }
        }
    }
    used.sort_unstable();
    let (mut written_to, mut used_to) = (0, 0);
    for (start, end, is_written) in used {
        if start < written_to || is_written && start < used_to {
            let text = "two calls of the group use the same memory, and one of them writes it";
            return Err(Fault::Argument(text.to_owned()));
        }
        used_to = used_to.max(end);
        if is_written {
            written_to = end;
        }
    }
    Ok(())
}
