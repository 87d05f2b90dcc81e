//! Calls in windows, as the user makes them.

use std::ops::{Bound, Range, RangeBounds};

use ringfold_bootstrap::Windows as Named;
use ringfold_reduce::Element;
use ringfold_transport::Window as Shared;
use ringfold_types::limits::WINDOW_BYTES_MAX;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp};

use crate::arguments::argument;
use crate::buffers::{AlignedBytes, Buffers, Shape, User};
use crate::cache::{Memory, Request};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::execute::Sharing;
use crate::shared::{Store, Window};

/// The windows of an untyped call.
#[derive(Debug)]
pub enum Windows<'a, T> {
    /// Out of place.
    Apart {
        /// The contribution of this rank.
        input: &'a Window<T>,
        /// The result of this rank.
        output: &'a mut Window<T>,
    },
    /// In place.
    InPlace(&'a mut Window<T>),
}

impl Communicator {
    /// Replaces elements `range` of `window` on every rank by the reduction of all ranks' elements.
    /// All ranks pass the same window and range. The bits are the same on every rank, in every run
    /// with the same ranks and settings; they may differ from those of
    /// [`all_reduce`](Self::all_reduce), which may add in another order.
    ///
    /// Until it returns, peers read and write this rank's elements where they lie. After
    /// [`Error::Failed`] the elements in `range` are undefined, and nobody else changes them any
    /// more: this rank then has its elements for itself, in memory of its own. That takes as much
    /// memory as the window, once. If the system refuses it, access to the window panics.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn all_reduce_window<T: Element>(
        &mut self,
        window: &mut Window<T>,
        range: impl RangeBounds<usize>,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let range = self.elements(window.len(), &range)?;
        let call = call::<T>(range.len(), op);
        self.perform_in_windows(&call, Windows::InPlace(window), range.start * size_of::<T>())
    }

    /// Puts the reduction of elements `range` of all ranks' `input` into the same elements of every
    /// rank's `output`. As [`all_reduce_window`](Self::all_reduce_window) in everything else.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn all_reduce_window_into<T: Element>(
        &mut self,
        input: &Window<T>,
        output: &mut Window<T>,
        range: impl RangeBounds<usize>,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let range = self.elements(input.len().min(output.len()), &range)?;
        let call = call::<T>(range.len(), op);
        let windows = Windows::Apart { input, output };
        self.perform_in_windows(&call, windows, range.start * size_of::<T>())
    }

    /// Performs an all-reduce on elements whose type only the call knows, from byte `at` of the
    /// windows on: for bindings and tools.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn perform_in_windows<T: Element>(
        &mut self,
        call: &Call,
        windows: Windows<'_, T>,
        at: usize,
    ) -> Result<(), Error> {
        self.check_process()?;
        let (input, output) = match windows {
            Windows::Apart { input, output } => (Some(input), output),
            Windows::InPlace(window) => (None, window),
        };
        if call.collective != Collective::AllReduce {
            let what = "only all-reduce works in windows; the others take them as slices";
            return Err(argument(self.rank(), call.collective, what.to_owned()));
        }
        let room = input.map_or(usize::MAX, Window::bytes).min(output.bytes());
        let len = call.count.saturating_mul(call.data_type.bytes());
        if at.checked_add(len).is_none_or(|end| end > room) {
            let what = format!("{len} bytes from byte {at} on exceed the window's {room}");
            return Err(argument(self.rank(), call.collective, what));
        }
        if !self.windows.has(output) || !input.is_none_or(|input| self.windows.has(input)) {
            let what = "the window is one of another communicator".to_owned();
            return Err(argument(self.rank(), call.collective, what));
        }
        let named = Named {
            input: input.map_or(output.number, |input| input.number),
            output: output.number,
            begin: at as u64,
        };
        let shape = Shape { in_place: input.is_none(), input: len, output: len };
        let range = at..at + len;
        let shared = output.is_shared() && input.is_none_or(Window::is_shared);
        let request = Request { call, shape, memory: Memory::Windows { shared } };
        match (input.map(|input| &input.store), &mut output.store) {
            (None, Store::Shared(output)) => {
                let user = User::Windows { input: None, output, range };
                self.perform_request(request, user, Some(named))
            }
            (Some(Store::Shared(input)), Store::Shared(output)) => {
                let user = User::Windows { input: Some(input), output, range };
                self.perform_request(request, user, Some(named))
            }
            (input, output) => {
                let output = &mut output.front_mut(range.end)[range.clone()];
                let mut buffers = match input {
                    None => Buffers::InPlace(output),
                    Some(input) => Buffers::Apart { input: &input.front(range.end)[range], output },
                };
                self.perform_request(request, User::Private(&mut buffers), Some(named))
            }
        }
    }

    /// The name of the algorithm that all-reduce `call` would run by in `window`, as in `window`.
    ///
    /// # Errors
    /// None today.
    pub fn algorithm_in<T>(&self, window: &Window<T>, call: &Call) -> Result<&'static str, Error> {
        let memory = Memory::Windows { shared: window.is_shared() };
        Ok(self.algorithm_in_memory(call, memory))
    }

    /// Makes a window of `len` elements, all zero. To be called by every rank, with the same type
    /// and length. Blocks until all have it.
    ///
    /// Where not all ranks share memory, calls in the buffers take the ordinary ways, to results
    /// that may differ in rounding; but where slices of the buffers are passed to any call, RDMA
    /// devices send longer messages from there, and write them there. A child process made by
    /// `fork` may not have them.
    ///
    /// # Errors
    /// [`Error::Argument`], on every rank, if the ranks ask for different things or for more shared
    /// memory than a rank has; [`Error::Failed`].
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut gradient = comm.alloc::<f32>(1000)?;
    /// gradient.fill(1.0);
    /// comm.all_reduce_window(&mut gradient, .., ReduceOp::Sum)?;
    /// assert_eq!(gradient[999], comm.size() as f32);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn alloc<T: Element>(&mut self, len: usize) -> Result<Window<T>, Error> {
        let kind = T::DATA_TYPE;
        let can_share = self.size() > 1 && self.router.windows().is_some();
        let mine = [u64::from(can_share), len as u64, kind as u64];
        let mut all = vec![[0_u64; 3]; self.size()];
        self.all_gather_into(&mine, all.as_flattened_mut())?;
        let differs = |(_, asked): &(usize, &[u64; 3])| asked[1..] != all[0][1..];
        if let Some((rank, asked)) = all.iter().enumerate().find(differs) {
            let (first, other) = (wish(all[0]), wish(*asked));
            return Err(self.refuse(format!(
                "rank {rank} asks for {other} and rank 0 for {first}: all must ask for the same"
            )));
        }
        let bytes = len.checked_mul(kind.bytes()).filter(|bytes| *bytes <= WINDOW_BYTES_MAX);
        let Some(bytes) = bytes else {
            return Err(self.refuse(format!(
                "{} are more than {WINDOW_BYTES_MAX} bytes, the most that a window holds",
                wish(mine)
            )));
        };
        let store = if bytes > 0 && all.iter().all(|asked| asked[0] == 1) {
            Store::Shared(self.share(bytes)?)
        } else {
            self.own(bytes)
        };
        Ok(self.windows.window(store, len))
    }

    /// Makes memory of this rank's own, registered where that is possible.
    fn own(&mut self, bytes: usize) -> Store {
        let registered = if bytes > 0 { self.router.pages(bytes) } else { None };
        if let Some(Ok(pages)) = registered {
            return Store::Registered(pages);
        }
        let mut own = AlignedBytes::default();
        own.exactly(bytes);
        Store::Own(own)
    }

    /// Makes memory that all ranks have mapped; or all fail.
    fn share(&mut self, bytes: usize) -> Result<Shared, Error> {
        let call = self.agreement();
        let made = self.guarded(&call, |it| {
            let mut sharing = Sharing::begin(&mut it.router, bytes)?;
            it.block_on(&mut sharing)?;
            Ok(sharing.end())
        });
        let made = made.map_err(|error| self.fail(call, error))?;
        let mut lacks = vec![0_u8; self.size()];
        self.all_gather_into(&[u8::from(made.is_err())], &mut lacks)?;
        let without = lacks.iter().position(|lacks| *lacks == 1);
        match (made, without) {
            (Ok(window), None) => Ok(window),
            (made, without) => {
                let rank = without.map_or_else(|| self.rank(), Rank::at);
                let why = made.err().map_or_else(String::new, |why| format!(" ({why})"));
                Err(self.refuse(format!(
                    "rank {rank} cannot map {} windows of {bytes} bytes{why}; ask for less, or \
                     raise the memory limit of the job",
                    self.size()
                )))
            }
        }
    }

    /// The call by which the ranks agree about a window.
    const fn agreement(&self) -> Call {
        let (collective, data_type) = (Collective::AllGather, DataType::U64);
        Call { collective, count: 3, data_type, op: ReduceOp::Sum, root: Rank(0) }
    }

    const fn refuse(&self, what: String) -> Error {
        Error::Argument { rank: self.rank(), call: "alloc", what }
    }

    /// The elements that `range` means of `len`.
    fn elements(&self, len: usize, range: &impl RangeBounds<usize>) -> Result<Range<usize>, Error> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => len,
        };
        if start <= end && end <= len {
            return Ok(start..end);
        }
        let what = format!("elements {start}..{end} are not within a window of {len}");
        Err(argument(self.rank(), Collective::AllReduce, what))
    }
}

/// The wish of a rank, in words.
fn wish([_, len, kind]: [u64; 3]) -> String {
    let name = DataType::ALL.iter().find(|known| **known as u64 == kind);
    name.map_or_else(|| format!("{len} elements"), |name| format!("{name} x {len}"))
}

const fn call<T: Element>(count: usize, op: ReduceOp) -> Call {
    let (collective, root) = (Collective::AllReduce, Rank(0));
    Call { collective, count, data_type: T::DATA_TYPE, op, root }
}
