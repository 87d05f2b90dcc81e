//! Communicators, as Python sees them.
#![expect(clippy::too_many_arguments, reason = "these are keywords in Python")]

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ringfold::{Call, Collective, Communicator as Ranks, DataType, Error, Rank, UniqueId, Wire};
use ringfold_foreign::{Places, Region, find_id, lock, register};

use crate::call::{self, Called, Common, dispatch, perform_call, shape};
use crate::call_group::CallGroup;
use crate::element::{Element, operation};
use crate::fault::raise;
use crate::handle::{duration, poll, wait_or_abort, watch_signals};
use crate::memory::Memory;
use crate::prepared::{self, Prepared};
use crate::profile::Profile;
use crate::queue::{CallQueue, Fault, Ticket};
use crate::region::Access;
use crate::registration::Registration;
use crate::user_op::UserOp;
use crate::window::Window;

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
    pub(crate) queue: Arc<CallQueue>,
}

impl Communicator {
    pub(crate) fn new(mut ranks: Ranks) -> Self {
        watch_signals(&mut ranks);
        Self { queue: CallQueue::new(ranks) }
    }

    /// Makes a blocking call that finds something.
    pub(crate) fn find<R: Send + 'static>(
        &self,
        py: Python<'_>,
        memories: impl IntoIterator<Item = Memory>,
        common: Common<'_, '_>,
        find: impl FnOnce(&mut Ranks) -> Result<R, Error> + Send + 'static,
    ) -> PyResult<R> {
        let found = Arc::new(Mutex::new(None));
        let place = Arc::clone(&found);
        dispatch(py, &self.queue, memories, common, move |ranks| {
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
        let (ticket, place) = (Ticket::new(&self.queue), Arc::clone(&made));
        let work = move |ranks: &mut Ranks| {
            *lock(&place) = Some(make(ranks)?);
            Ok(())
        };
        self.queue.check_nested().map_err(refuse)?;
        self.queue.submit(None, work, &ticket).map_err(refuse)?;
        wait_or_abort(py, &ticket)?;
        taken(py, &made)
    }
}

/// Reads the text of an id.
pub(crate) fn read_id(py: Python<'_>, id: &str) -> PyResult<UniqueId> {
    find_id(id).map_err(|error| raise(py, Fault::Argument(format!("the id is {error}"))))
}

/// The result that a call has left.
fn taken<R>(py: Python<'_>, place: &Mutex<Option<R>>) -> PyResult<R> {
    let result = lock(place).take();
    result.ok_or_else(|| raise(py, Fault::Defect("a call without a result".to_owned())))
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.queue.close();
    }
}

#[pymethods]
impl Communicator {
    /// The number of this rank, from 0 to `size` - 1.
    #[getter]
    fn rank(&self) -> u32 {
        self.queue.rank.0
    }

    /// The number of ranks.
    #[getter]
    fn size(&self) -> usize {
        self.queue.size
    }

    /// The name of the group, as in "split 2 color 1". None if it is not a part of another.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.queue.name.as_deref()
    }

    fn __repr__(&self) -> String {
        let CallQueue { rank, size, name, .. } = &*self.queue;
        let name = name.as_ref().map_or_else(String::new, |name| format!(", {name}"));
        format!("<ringfold.Communicator: rank {rank} of {size}{name}>")
    }

    /// Sets the time in seconds that a call may take, for calls that are made after it: those that
    /// wait in the background keep theirs. A call that takes longer fails on all ranks.
    fn set_timeout(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let timeout = duration(py, "seconds", seconds)?;
        self.queue.set_timeout(timeout).map_err(|fault| raise(py, fault))
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

    /// Makes a communicator of the ranks that survive a failure, in their old order and without the
    /// ranks `without`. Every survivor must call it, with the same ranks, once for a communicator.
    /// Ranks that have ended, are stopped or disconnected are left out. Close this communicator
    /// afterwards. Raises RegroupError if too few ranks come, or the others have left this one out.
    #[pyo3(signature = (without=Vec::new()))]
    fn shrink(&self, py: Python<'_>, without: Vec<u32>) -> PyResult<Self> {
        let without: Vec<Rank> = without.into_iter().map(Rank).collect();
        Ok(Self::new(self.make(py, move |ranks| ranks.shrink_without(&without))?))
    }

    /// Makes a communicator of these ranks and at most `newcomers` processes that join the running
    /// job by `init_as_newcomer`. Old ranks keep their numbers. Every rank must call it. Rank 0
    /// passes the `id` of `unique_id`, and the others None. Returns None on every rank if no
    /// newcomer comes within RINGFOLD_JOIN_TIMEOUT: the group stays as it is.
    #[pyo3(signature = (newcomers, id=None))]
    fn grow(&self, py: Python<'_>, newcomers: usize, id: Option<&str>) -> PyResult<Option<Self>> {
        let id = id.map(|id| read_id(py, id)).transpose()?;
        Ok(self.make(py, move |ranks| ranks.grow(newcomers, id.as_ref()))?.map(Self::new))
    }

    /// Waits for the processes that `ringrun --restart` starts in place of dead ranks, and makes a
    /// communicator with them, as `grow` does. Every rank must call it, usually after `shrink`.
    /// Waits for at most `seconds`. Returns None on every rank if no process comes. In a new
    /// process, `init` joins that communicator.
    fn wait_for_replacement(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<Self>> {
        let timeout = duration(py, "seconds", seconds)?;
        Ok(self.make(py, move |ranks| ranks.wait_for_replacement(timeout))?.map(Self::new))
    }

    /// The lasting identity of a rank: its number in the first communicator, from which `shrink`
    /// and groups made this one.
    fn identity(&self, rank: u32) -> PyResult<u32> {
        let identity = self.queue.identities.get(Rank(rank).index());
        let size = self.queue.size;
        identity
            .copied()
            .ok_or_else(|| PyIndexError::new_err(format!("rank {rank} is not below {size}")))
    }

    /// How often the ranks have shrunk or grown, from the first communicator on.
    #[getter]
    fn epoch(&self) -> u64 {
        self.queue.epoch
    }

    /// Makes all calls on all ranks fail, those that wait included, with an error that names this
    /// rank and the reason. Does not wait, so any thread may call it at any time.
    #[pyo3(signature = (reason="the program called abort"))]
    fn abort(&self, reason: &str) {
        if !self.queue.is_forked() {
            self.queue.aborter.abort(reason);
        }
    }

    /// Makes all calls on all ranks fail, those that wait included, with an error of the kind
    /// "revoked". No rank counts as failed, so `shrink` makes a communicator of all that live. One
    /// rank suffices. Does nothing after a failure. Does not wait, so any thread may call it at any
    /// time.
    fn revoke(&self) {
        if !self.queue.is_forked() {
            self.queue.aborter.revoke();
        }
    }

    /// Agrees with the other ranks on the bitwise and of their flags, from 0 to 2**64 - 1, also
    /// after a failure or `revoke`. Absorbs failures of ranks meanwhile. Every rank that lives must
    /// call it, equally often. All ranks that return a value return the same one. Raises
    /// RegroupError if too few ranks come, or the others have agreed without the flag of this one.
    fn agree(&self, py: Python<'_>, flag: u64) -> PyResult<u64> {
        self.make(py, move |ranks| ranks.agree(flag))
    }

    /// Begins a profile of this rank's blocking collectives, in place of one that has begun before,
    /// after all calls before it. Ranks may do so independently of each other. Calls take a few
    /// clock readings longer while there is a profile.
    fn begin_profile(&self, py: Python<'_>) -> PyResult<()> {
        self.make(py, |ranks| ranks.begin_profile())
    }

    /// Ends the profile after all calls before it, and returns it. It is empty if none had begun.
    fn end_profile(&self, py: Python<'_>) -> PyResult<Profile> {
        self.make(py, |ranks| ranks.end_profile()).map(Profile::from)
    }

    /// The ranks that have caused the failure, in ascending order. Empty without a failure, and
    /// after `revoke`. Makes no call and does not wait.
    fn failed_ranks(&self) -> Vec<u32> {
        self.queue.aborter.failed_ranks().into_iter().map(|rank| rank.0).collect()
    }

    /// The text of the failure, or None while the job has not failed. Makes no call and does not
    /// wait.
    fn failure(&self) -> Option<String> {
        self.queue.aborter.failure_cause().map(|cause| cause.to_string())
    }

    /// Leaves the group after the calls in the background. Receives among them whose messages have
    /// not come fail. Waits for the other ranks to leave too, for a few seconds at most, unless
    /// `wait` is false. A communicator also closes when nobody refers to it, and at the end of the
    /// process.
    #[pyo3(signature = (*, wait=true))]
    fn close(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        if self.queue.is_forked() {
            return Err(raise(py, Fault::Forked));
        }
        if !wait {
            self.queue.close();
            return Ok(());
        }
        self.queue.check_nested().map_err(|fault| raise(py, fault))?;
        self.queue.close();
        let left = poll(py, |slice| self.queue.left_within(slice))?;
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
            self.queue.close();
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
            Some(Element::Known(data_type)) => data_type,
            Some(other) => {
                let text = format!("a window has no {other}; allocate uint8 of the same length");
                return Err(refuse(&text));
            }
        };
        let bytes = count.checked_mul(data_type.bytes());
        let bytes = bytes.ok_or_else(|| refuse("a window longer than the address space"))?;
        let pages = self.make(py, move |ranks| ranks.alloc::<u8>(bytes))?;
        Ok(Window::new(pages, data_type))
    }

    /// Registers memory with the RDMA devices of this rank, after the calls before it. Long
    /// messages of all communicators of the process then leave from it, and arrive in it, without a
    /// copy, and no call registers it again. Returns a `Registration`, also for a `with` block.
    ///
    /// Memory may be registered several times, whole and in parts. Without RDMA this does nothing.
    /// If no device registers the memory, as beyond `ulimit -l`, the log says why, and calls use
    /// the memory as any other. Memory of a GPU raises an ArgumentError.
    fn register(&self, memory: &Bound<'_, PyAny>) -> PyResult<Registration> {
        let py = memory.py();
        let memory = Memory::new(memory, "the memory", Access::Write)?;
        let region = memory.region;
        let registration = self.make(py, move |ranks| register(ranks, region))?;
        Registration::new(py, registration, memory)
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
        let (op, known) = (operation(op)?, Element::Known(input.get().data_type));
        let element = dtype.map(Element::named).transpose()?.unwrap_or(known);
        let data_type = element.to_combine(op).map_err(|fault| raise(py, fault))?;
        let (size, room) = (data_type.bytes(), input.get().bytes());
        let count = count.unwrap_or_else(|| (room / size).saturating_sub(start));
        let (collective, root, wire) = (Collective::AllReduce, Rank(0), Wire::Element);
        let call = Call { collective, count, data_type, op, root, wire };
        let output = output.filter(|output| !output.is(input));
        let into = output.unwrap_or(input).get().shared.clone();
        let (from, at) = (output.map(|_| input.get().shared.clone()), start.saturating_mul(size));
        let common = Common { dtype: None, async_op, timeout, keep: None };
        let of = move |ranks: &Ranks| Call { wire: ranks.wire(), ..call };
        if async_op {
            let handle = call::start(py, &self.queue, [], common, move |ranks, requests| {
                requests.push(ranks.start_in_windows(&of(ranks), from.as_ref(), &into, at, ())?);
                Ok(())
            });
            return handle.map(Some);
        }
        dispatch(py, &self.queue, [], common, move |ranks| {
            ranks.perform_in_shared_windows(&of(ranks), from.as_ref(), &into, at)
        })
    }

    /// Waits until every rank has made this call.
    #[pyo3(signature = (*, async_op=false, timeout=None))]
    fn barrier(&self, py: Python<'_>, async_op: bool, timeout: Option<f64>) -> Called {
        let common = Common { dtype: None, async_op, timeout, keep: None };
        let call = Call { count: 0, ..shape(Collective::Barrier, Rank(0)) };
        let places = Places::Apart { input: Region::EMPTY, output: Region::EMPTY };
        perform_call(py, &self.queue, (call, places), [], common)
    }

    /// Whether rank `peer` is known to have left the group. The first question about a rank asks
    /// for the news, which follows. Makes no call and does not wait.
    fn has_left(&self, py: Python<'_>, peer: u32) -> PyResult<bool> {
        let CallQueue { size, aborter, .. } = &*self.queue;
        if Rank(peer).index() >= *size {
            let text = format!("rank {peer} is not one of the {size} ranks");
            return Err(raise(py, Fault::Argument(text)));
        }
        Ok(!self.queue.is_forked() && aborter.left_since(Rank(peer)).is_some())
    }

    /// Registers a commutative and associative operation of Python. Every rank must register the
    /// same ones in the same order, under the same names, for elements of the same size.
    ///
    /// `function(into, other)` gets two views of equal length, combines each element of the first
    /// with that of the second, and leaves the result in the first. `dtype` is the type of the
    /// elements, or their length in bytes, at most 16384. The views hold copies, of unsigned
    /// integers for floats of 8 and 16 bits, and of bytes if `dtype` is a length. An exception of
    /// the function fails the call on all ranks with its text. The function runs with the GIL in
    /// a thread that advances the call, and must not wait for calls of this communicator.
    fn register_op(
        &self,
        py: Python<'_>,
        name: String,
        function: Py<PyAny>,
        dtype: &Bound<'_, PyAny>,
    ) -> PyResult<UserOp> {
        let element = UserOp::element(dtype)?;
        let ends = Arc::clone(&self.queue.ends);
        self.make(py, move |ranks| UserOp::register(ranks, &name, function, element, ends))
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
        op.get().all_reduce(input.py(), &self.queue, [Some(input), output], common)
    }

    /// Has `method`, one of this communicator or of a group of its calls, make a call that is not
    /// started, and returns it as a `Prepared`. Its `start` starts it, as often as the program
    /// wants: `comm.prepare(comm.all_reduce, gradient, op="avg")`.
    ///
    /// The memory stays the call's. Calls have the order of their starts, not that of their
    /// preparations. Does not wait for other ranks. Raises what the method raises, and an
    /// ArgumentError if the method starts no call, or one of another communicator.
    #[pyo3(signature = (method, /, *args, **kwargs))]
    fn prepare(
        &self,
        method: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Prepared> {
        prepared::prepare(&self.queue, method, args, kwargs)
    }

    /// Makes an empty group of calls that are performed together.
    fn group(&self) -> CallGroup {
        CallGroup::new(&self.queue)
    }
}
