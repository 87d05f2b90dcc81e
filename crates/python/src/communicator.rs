//! Communicators, as Python sees them.
#![allow(unsafe_code)]
#![expect(clippy::too_many_arguments, reason = "these are keywords in Python")]

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use ringfold::{Call, Collective, Communicator as Ranks, DataType, Error, Rank, Wire};

use crate::call::{Called, Common, OwnedParts, OwnedUneven, dispatch, perform, perform_uneven};
use crate::call_group::CallGroup;
use crate::element::{Element, operation};
use crate::fault::raise;
use crate::handle::{duration, poll, wait_or_abort, watch_signals};
use crate::memory::{Memory, Places};
use crate::queue::{Fault, Member, Ticket, lock};
use crate::region::Access;
use crate::user_op::UserOp;
use crate::window::{self, Window};

/// The membership of this process in a group of ranks.
///
/// All ranks of a communicator must make the same calls in the same order, with equal lengths,
/// types, operations and roots. Several threads may use a communicator; its calls follow one
/// another in the order in which they were made.
///
/// Memory is any object with the buffer protocol or DLPack whose elements are contiguous: a numpy
/// array, a torch tensor of the CPU, an array.array. A tuple (address, bytes) with `dtype` also is.
/// `dtype` names the type of the elements, in place of that of the object. `op` is the name of an
/// operation, as in "sum", or a `PreMulSum`. With `async_op` a call returns a `Handle` at once, and
/// runs in the background. The memory belongs to the call until it is done, and `keep` is an object
/// that lives until then. `timeout` is the time in seconds that this call may take, in place of
/// that of `set_timeout`.
///
/// A call raises an ArgumentError before anything moves. It raises a FailedError if the job has
/// failed: all surviving ranks get the same cause, and all later calls raise it too.
/// KeyboardInterrupt in a blocking call aborts the communicator.
#[pyclass(frozen, weakref, module = "ringfold")]
pub(crate) struct Communicator {
    pub(crate) member: Arc<Member>,
}

impl Communicator {
    pub(crate) fn new(mut ranks: Ranks) -> Self {
        watch_signals(&mut ranks);
        Self { member: Member::new(ranks) }
    }

    /// Makes a blocking call that finds something.
    fn find<R: Send + 'static>(
        &self,
        py: Python<'_>,
        memories: impl IntoIterator<Item = Memory>,
        find: impl FnOnce(&mut Ranks) -> Result<R, Error> + Send + 'static,
    ) -> PyResult<R> {
        let found = Arc::new(Mutex::new(None));
        let place = Arc::clone(&found);
        let common = Common { dtype: None, async_op: false, timeout: None, keep: None };
        dispatch(py, &self.member, memories, common, move |ranks| {
            *lock(&place) = Some(find(ranks)?);
            Ok(())
        })?;
        taken(py, &found)
    }

    /// Does something rare on all ranks, after all calls before it.
    fn make<R: Send + 'static>(
        &self,
        py: Python<'_>,
        make: impl FnOnce(&mut Ranks) -> Result<R, Error> + Send + 'static,
    ) -> PyResult<R> {
        let refuse = |fault| raise(py, fault);
        let made = Arc::new(Mutex::new(None));
        let (ticket, place) = (Ticket::new(&self.member, Box::new(())), Arc::clone(&made));
        let work = move |ranks: &mut Ranks| {
            *lock(&place) = Some(make(ranks)?);
            Ok(())
        };
        self.member.check_nested().map_err(refuse)?;
        self.member.submit(None, work, &ticket).map_err(refuse)?;
        wait_or_abort(py, &ticket)?;
        taken(py, &made)
    }
}

/// The result that a call has left.
fn taken<R>(py: Python<'_>, place: &Mutex<Option<R>>) -> PyResult<R> {
    let result = lock(place).take();
    result.ok_or_else(|| raise(py, Fault::Defect("a call without a result".to_owned())))
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.member.close();
    }
}

#[pymethods]
impl Communicator {
    /// The number of this rank, from 0 to `size` - 1.
    #[getter]
    fn rank(&self) -> u32 {
        self.member.rank.0
    }

    /// The number of ranks.
    #[getter]
    fn size(&self) -> usize {
        self.member.size
    }

    /// The name of the group, as in "split 2 color 1". None if it is not a part of another.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.member.name.as_deref()
    }

    fn __repr__(&self) -> String {
        let Member { rank, size, name, .. } = &*self.member;
        let name = name.as_ref().map_or_else(String::new, |name| format!(", {name}"));
        format!("<ringfold.Communicator: rank {rank} of {size}{name}>")
    }

    /// Sets the time in seconds that a call may take, for calls that are made after it: those that
    /// wait in the background keep theirs. A call that takes longer fails on all ranks.
    fn set_timeout(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let timeout = duration(py, "seconds", seconds)?;
        self.member.set_timeout(timeout).map_err(|fault| raise(py, fault))
    }

    /// Divides the ranks into groups: ranks of one `color` get a communicator of their own. `key`
    /// orders the ranks of a group; ranks of equal keys keep their order. A rank without a color
    /// gets None. Every rank must call it.
    #[pyo3(signature = (color, key=0))]
    fn split(&self, py: Python<'_>, color: Option<u32>, key: i64) -> PyResult<Option<Self>> {
        Ok(self.make(py, move |ranks| ranks.split(color, key))?.map(Self::new))
    }

    /// Makes a communicator of the same ranks, for calls that overlap those of this one. Every rank
    /// must call it.
    fn duplicate(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self::new(self.make(py, Ranks::duplicate)?))
    }

    /// Makes a communicator of these `ranks`, in this order. Other ranks get None. Every rank must
    /// call it with the same list.
    fn subset(&self, py: Python<'_>, ranks: Vec<u32>) -> PyResult<Option<Self>> {
        let list: Vec<Rank> = ranks.into_iter().map(Rank).collect();
        Ok(self.make(py, move |ranks| ranks.subset(&list))?.map(Self::new))
    }

    /// Makes all calls on all ranks fail, those that wait included, with an error that names this
    /// rank and the reason. Does not wait, so any thread may call it at any time.
    #[pyo3(signature = (reason="the program called abort"))]
    fn abort(&self, reason: &str) {
        if !self.member.is_forked() {
            self.member.aborter.abort(reason);
        }
    }

    /// The text of the failure, or None while the job has not failed. Makes no call and does not
    /// wait.
    fn failure(&self) -> Option<String> {
        self.member.aborter.failure_cause().map(|cause| cause.to_string())
    }

    /// Leaves the group after the calls in the background. Waits for the other ranks to leave too,
    /// for a few seconds at most, unless `wait` is false. A communicator also closes when nobody
    /// refers to it, and at the end of the process.
    #[pyo3(signature = (*, wait=true))]
    fn close(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        if self.member.is_forked() {
            return Err(raise(py, Fault::Forked));
        }
        if !wait {
            self.member.close();
            return Ok(());
        }
        self.member.check_nested().map_err(|fault| raise(py, fault))?;
        self.member.close();
        let left = poll(py, |slice| self.member.left_within(slice))?;
        left.map_err(|fault| raise(py, fault))
    }

    const fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Closes the communicator, or aborts it first if the block has raised.
    #[pyo3(signature = (exception, value, traceback))]
    fn __exit__(
        &self,
        exception: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = traceback;
        if exception.is_none() {
            self.close(exception.py(), true)?;
        } else {
            let class = exception.getattr("__name__")?;
            self.abort(&format!("the program raised {class}: {}", value.str()?));
            self.member.close();
        }
        Ok(false)
    }

    /// Makes a window of `count` elements, all zero. Every rank must call it with the same
    /// arguments. All ranks of one host have it mapped. It is ordinary memory for every call, and
    /// `all_reduce_window` works in it without a copy.
    #[pyo3(signature = (count, dtype=None))]
    fn alloc(
        &self,
        py: Python<'_>,
        count: usize,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Window> {
        let refuse = |text: &str| raise(py, Fault::Argument(text.to_owned()));
        let data_type = match dtype.map(Element::named).transpose()? {
            None => DataType::F32,
            Some(Ok(Element::Known(data_type))) => data_type,
            Some(Ok(other)) => {
                let text = format!("a window has no {other}; allocate uint8 of the same length");
                return Err(refuse(&text));
            }
            Some(Err(fault)) => return Err(raise(py, fault)),
        };
        let bytes = count.checked_mul(data_type.bytes());
        let bytes = bytes.ok_or_else(|| refuse("a window longer than the address space"))?;
        let pages = self.make(py, move |ranks| ranks.alloc::<u8>(bytes))?;
        Ok(Window::new(pages, data_type))
    }

    /// Reduces `count` elements from element `start` of all ranks' windows `input` into the same
    /// elements of every rank's window `output`. Without an output it works in place. Without a
    /// count it takes all elements from `start`.
    #[pyo3(signature = (input, output=None, op=None, *, start=0, count=None, dtype=None,
        async_op=false, timeout=None))]
    fn all_reduce_window(
        &self,
        input: &Bound<'_, Window>,
        output: Option<&Bound<'_, Window>>,
        op: Option<&Bound<'_, PyAny>>,
        start: usize,
        count: Option<usize>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
    ) -> Called {
        let py = input.py();
        let refuse = |fault| raise(py, fault);
        let op = operation(op)?.map_err(refuse)?;
        let known = Element::Known(input.get().data_type);
        let element = dtype.map(Element::named).transpose()?.unwrap_or(Ok(known));
        let data_type = element.and_then(|element| element.to_combine(op)).map_err(refuse)?;
        let (size, room) = (data_type.bytes(), input.get().bytes());
        let count = count.unwrap_or_else(|| (room / size).saturating_sub(start));
        let (collective, root, wire) = (Collective::AllReduce, Rank(0), Wire::Element);
        let call = Call { collective, count, data_type, op, root, wire };
        let output = output.filter(|output| !output.is(input));
        let into = Arc::clone(&output.unwrap_or(input).get().shared);
        let from = output.map(|_| Arc::clone(&input.get().shared));
        let common = Common { dtype: None, async_op, timeout, keep: None };
        dispatch(py, &self.member, [], common, move |ranks| {
            let call = Call { wire: ranks.wire(), ..call };
            window::all_reduce(ranks, &call, from.as_ref(), &into, start.saturating_mul(size))
        })
    }

    /// Reduces the inputs of all ranks into the output of every rank. In place without an output.
    #[pyo3(signature = (input, output=None, op=None, *, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn all_reduce(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        perform(py, &self.member, Collective::AllReduce, [Some(input), output], (op, 0), common)
    }

    /// Writes the inputs of all ranks, in rank order, to the output of every rank. In place without
    /// an output: block `rank` of the buffer is the input.
    #[pyo3(signature = (input, output=None, *, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn all_gather(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        perform(py, &self.member, Collective::AllGather, [Some(input), output], (None, 0), common)
    }

    /// Reduces the inputs of all ranks, and writes block `rank` of the result to the output. In
    /// place without an output: the result is block `rank` of the buffer.
    #[pyo3(signature = (input, output=None, op=None, *, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn reduce_scatter(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        perform(py, &self.member, Collective::ReduceScatter, [Some(input), output], (op, 0), common)
    }

    /// Writes the input of `root` to the output of every rank. In place without an output. The
    /// other ranks may pass None as the input.
    #[pyo3(signature = (input, output=None, root=0, *, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn broadcast(
        &self,
        py: Python<'_>,
        input: Option<&Bound<'_, PyAny>>,
        output: Option<&Bound<'_, PyAny>>,
        root: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let common = Common { dtype, async_op, timeout, keep };
        perform(py, &self.member, Collective::Broadcast, [input, output], (None, root), common)
    }

    /// Reduces the inputs of all ranks into the output of `root`. In place without an output. The
    /// memory of the other ranks stays as it is.
    #[pyo3(signature = (input, output=None, op=None, root=0, *, dtype=None, async_op=false,
        timeout=None, keep=None))]
    fn reduce(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        root: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        perform(py, &self.member, Collective::Reduce, [Some(input), output], (op, root), common)
    }

    /// Reduces the inputs of ranks 0 to r into the output of every rank r. In place without an
    /// output.
    #[pyo3(signature = (input, output=None, op=None, *, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn scan(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        perform(py, &self.member, Collective::Scan, [Some(input), output], (op, 0), common)
    }

    /// Reduces the inputs of the ranks before it into the output of every rank. The output of rank
    /// 0 stays as it was. In place without an output.
    #[pyo3(signature = (input, output=None, op=None, *, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn exscan(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        perform(py, &self.member, Collective::Exscan, [Some(input), output], (op, 0), common)
    }

    /// Waits until every rank has made this call.
    #[pyo3(signature = (*, async_op=false, timeout=None))]
    fn barrier(&self, py: Python<'_>, async_op: bool, timeout: Option<f64>) -> Called {
        let common = Common { dtype: None, async_op, timeout, keep: None };
        dispatch(py, &self.member, [], common, Ranks::barrier)
    }

    /// Sends block r of the input to every rank r, and writes the block of rank r for this rank to
    /// block r of the output. In place without an output.
    #[pyo3(signature = (input, output=None, *, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn all_to_all(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        perform(py, &self.member, Collective::AllToAll, [Some(input), output], (None, 0), common)
    }

    /// Writes the input of every rank r to block r of the output of `root`. In place on the root
    /// without an output: its own block is the input. Other ranks need no output.
    #[pyo3(signature = (input, output=None, root=0, *, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn gather(
        &self,
        py: Python<'_>,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        root: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let common = Common { dtype, async_op, timeout, keep };
        perform(py, &self.member, Collective::Gather, [Some(input), output], (None, root), common)
    }

    /// Writes block r of the input of `root` to the output of every rank r. In place on the root
    /// without an output: its own block stays there. Other ranks need no input.
    #[pyo3(signature = (input, output=None, root=0, *, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn scatter(
        &self,
        py: Python<'_>,
        input: Option<&Bound<'_, PyAny>>,
        output: Option<&Bound<'_, PyAny>>,
        root: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let common = Common { dtype, async_op, timeout, keep };
        perform(py, &self.member, Collective::Scatter, [input, output], (None, root), common)
    }

    /// Sends part r of the input to every rank r, and writes the part of rank r for this rank to
    /// part r of the output. `send` and `recv` are the parts: a sequence of counts in elements, or
    /// a tuple of counts and displacements. Without `send`, and in place without an output, `recv`
    /// counts for both.
    #[pyo3(signature = (input, output=None, *, send=None, recv, dtype=None, async_op=false,
        timeout=None, keep=None))]
    fn all_to_all_v(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        send: Option<&Bound<'_, PyAny>>,
        recv: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        let recv = OwnedParts::new(Some(recv), "recv")?;
        let send = send.filter(|_| output.is_some());
        let send = send.map_or_else(|| Ok(recv.clone()), |it| OwnedParts::new(Some(it), "send"))?;
        let uneven = OwnedUneven::AllToAll { send, recv };
        perform_uneven(py, &self.member, [Some(input), output], uneven, common)
    }

    /// Writes the input of every rank r to part r of the output of `root`, which alone passes
    /// `parts` and an output. In place on the root without an output.
    #[pyo3(signature = (input, output=None, parts=None, root=0, *, dtype=None, async_op=false,
        timeout=None, keep=None))]
    fn gather_v(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        parts: Option<&Bound<'_, PyAny>>,
        root: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        let parts = OwnedParts::new(parts, "parts")?;
        let uneven = OwnedUneven::Gather { root: Rank(root), parts };
        perform_uneven(py, &self.member, [Some(input), output], uneven, common)
    }

    /// Writes part r of the input of `root`, which alone passes `parts` and an input, to the output
    /// of every rank r. In place on the root without an output.
    #[pyo3(signature = (input, output=None, parts=None, root=0, *, dtype=None, async_op=false,
        timeout=None, keep=None))]
    fn scatter_v(
        &self,
        py: Python<'_>,
        input: Option<&Bound<'_, PyAny>>,
        output: Option<&Bound<'_, PyAny>>,
        parts: Option<&Bound<'_, PyAny>>,
        root: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let common = Common { dtype, async_op, timeout, keep };
        let parts = OwnedParts::new(parts, "parts")?;
        let uneven = OwnedUneven::Scatter { root: Rank(root), parts };
        perform_uneven(py, &self.member, [input, output], uneven, common)
    }

    /// Writes the input of every rank r to part r of every rank's output. All ranks pass the same
    /// counts. In place without an output: this rank's part is the input.
    #[pyo3(signature = (input, output=None, *, parts, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn all_gather_v(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        parts: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        let uneven = OwnedUneven::AllGather { parts: OwnedParts::new(Some(parts), "parts")? };
        perform_uneven(py, &self.member, [Some(input), output], uneven, common)
    }

    /// Reduces part r of all ranks' inputs into the output of every rank r. All ranks pass the same
    /// counts. In place without an output: the result is this rank's part of the buffer.
    #[pyo3(signature = (input, output=None, op=None, *, parts, dtype=None, async_op=false,
        timeout=None, keep=None))]
    fn reduce_scatter_v(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: Option<&Bound<'_, PyAny>>,
        parts: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let (py, common) = (input.py(), Common { dtype, async_op, timeout, keep });
        let op = operation(op)?.map_err(|fault| raise(py, fault))?;
        let parts = OwnedParts::new(Some(parts), "parts")?;
        let uneven = OwnedUneven::ReduceScatter { parts, op };
        perform_uneven(py, &self.member, [Some(input), output], uneven, common)
    }

    /// Sends `data` to rank `to`, which must receive it with the same tag and length. Waits until
    /// the message has left, or until the receiver takes it if it is long.
    #[pyo3(signature = (data, to, tag=0, *, async_op=false, timeout=None, keep=None))]
    fn send(
        &self,
        data: &Bound<'_, PyAny>,
        to: u32,
        tag: u32,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let memory = Memory::new(data, "the data", Access::Read)?;
        let (region, common) = (memory.region, Common { dtype: None, async_op, timeout, keep });
        dispatch(data.py(), &self.member, [memory], common, move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not write it meanwhile.
            ranks.send::<u8>(unsafe { region.slice() }, Rank(to), tag)
        })
    }

    /// Receives the next message of rank `source` into `data`. Waits until it has arrived.
    #[pyo3(signature = (data, source, tag=0, *, async_op=false, timeout=None, keep=None))]
    fn recv(
        &self,
        data: &Bound<'_, PyAny>,
        source: u32,
        tag: u32,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let memory = Memory::new(data, "the data", Access::Write)?;
        let (region, common) = (memory.region, Common { dtype: None, async_op, timeout, keep });
        dispatch(data.py(), &self.member, [memory], common, move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not use it meanwhile.
            ranks.recv::<u8>(unsafe { region.slice_mut() }, Rank(source), tag)
        })
    }

    /// Receives the next message with this tag, of any other rank, into `data`. Returns its sender.
    /// Waits until it has arrived.
    ///
    /// A rank whose next message has another tag is passed over. Among several senders the search
    /// begins behind the one that it found last.
    #[pyo3(signature = (data, tag=0))]
    fn recv_any(&self, data: &Bound<'_, PyAny>, tag: u32) -> PyResult<u32> {
        let memory = Memory::new(data, "the data", Access::Write)?;
        let region = memory.region;
        self.find(data.py(), [memory], move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not use it meanwhile.
            Ok(ranks.recv_any::<u8>(unsafe { region.slice_mut() }, tag)?.0)
        })
    }

    /// The tag and the length in bytes of the next message of rank `source`, or None if it has not
    /// begun to arrive. Does not wait for it, and leaves it to a receive.
    fn probe(&self, py: Python<'_>, source: u32) -> PyResult<Option<(u32, usize)>> {
        self.find(py, [], move |ranks| {
            Ok(ranks.probe(Rank(source))?.map(|message| (message.tag, message.bytes)))
        })
    }

    /// Whether rank `peer` is known to have left the group. The first question about a rank asks
    /// for the news, which follows. Makes no call and does not wait.
    fn has_left(&self, py: Python<'_>, peer: u32) -> PyResult<bool> {
        let Member { size, aborter, .. } = &*self.member;
        if Rank(peer).index() >= *size {
            let text = format!("rank {peer} is not one of the {size} ranks");
            return Err(raise(py, Fault::Argument(text)));
        }
        Ok(!self.member.is_forked() && aborter.left_since(Rank(peer)).is_some())
    }

    /// Sends `data` to rank `to`, and receives the next message of rank `source` into `into`, both
    /// with this tag. Both progress at once, so a ring of ranks does not deadlock.
    #[pyo3(signature = (data, to, into, source, tag=0, *, async_op=false, timeout=None, keep=None))]
    fn send_recv(
        &self,
        data: &Bound<'_, PyAny>,
        to: u32,
        into: &Bound<'_, PyAny>,
        source: u32,
        tag: u32,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let py = data.py();
        let data = Memory::new(data, "the data", Access::Read)?;
        let into = Memory::new(into, "into", Access::Write)?;
        let (from_region, into_region) = (data.region, into.region);
        // Both must lie apart.
        Places::apart(from_region, into_region).map_err(|fault| raise(py, fault))?;
        let common = Common { dtype: None, async_op, timeout, keep };
        dispatch(py, &self.member, [data, into], common, move |ranks| {
            // SAFETY: `dispatch` keeps the memory, and its owner does not use it meanwhile.
            let (data, into) = unsafe { (from_region.slice(), into_region.slice_mut()) };
            ranks.send_recv::<u8, u8>(data, Rank(to), into, Rank(source), tag)
        })
    }

    /// Registers a commutative and associative operation of Python. Every rank must register the
    /// same ones in the same order, under the same names, for elements of the same size.
    ///
    /// `function(into, other)` gets two views of equal length, combines each element of the first
    /// with that of the second, and leaves the result in the first. `dtype` is the type of the
    /// elements, or their length in bytes, at most 16384. The views hold copies, of unsigned
    /// integers for floats of 8 and 16 bits, and of bytes if `dtype` is a length. An exception of
    /// the function fails the call on all ranks with its text. The function runs with the GIL in
    /// the thread of the call, and must not wait for calls of this communicator.
    fn register_op(
        &self,
        py: Python<'_>,
        name: String,
        function: Py<PyAny>,
        dtype: &Bound<'_, PyAny>,
    ) -> PyResult<UserOp> {
        let element = UserOp::element(dtype)?.map_err(|fault| raise(py, fault))?;
        self.make(py, move |ranks| UserOp::register(ranks, &name, function, element))
    }

    /// Reduces the inputs of all ranks, in rank order, by an operation of `register_op` into the
    /// output of every rank. In place without an output.
    #[pyo3(signature = (input, output=None, *, op, dtype=None, async_op=false, timeout=None,
        keep=None))]
    fn all_reduce_by(
        &self,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
        op: &Bound<'_, UserOp>,
        dtype: Option<&Bound<'_, PyAny>>,
        async_op: bool,
        timeout: Option<f64>,
        keep: Option<Py<PyAny>>,
    ) -> Called {
        let common = Common { dtype, async_op, timeout, keep };
        op.get().all_reduce(input.py(), &self.member, [Some(input), output], common)
    }

    /// Makes an empty group of calls that are performed together.
    fn group(&self) -> CallGroup {
        CallGroup::new(&self.member)
    }
}
