//! Windows, and the all-reduce that works directly in them.

use std::ops::{Bound, Range, RangeBounds};

use ringfold_bootstrap::CallWindows;
use ringfold_reduce::Element;
use ringfold_transport::Window as Shared;
use ringfold_types::limits::WINDOW_BYTES_MAX;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use super::reduction;
use crate::arguments::argument;
use crate::buffers::{AlignedBytes, Memory, Place};
use crate::cache::Request;
use crate::communicator::Communicator;
use crate::error::{Error, Operation};
use crate::execute::Sharing;
use crate::shared::{Claim, SharedWindow, Store, Window, WindowFacts};

/// The windows of an untyped call: [`Communicator::perform_in_windows`] takes them.
#[derive(Debug)]
#[non_exhaustive]
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
    ///
    /// Every rank must pass the same window and range. Blocks until this rank's part is done; peers
    /// read and write this rank's elements directly until then. Every rank gets the same bits, in
    /// every run with the same ranks and settings. They may differ from those of
    /// [`all_reduce`](Self::all_reduce), which may add in another order.
    ///
    /// After [`Error::Failed`] the elements in `range` are undefined, and peers no longer change
    /// them: the window moves to private memory of the same size. If the system refuses that
    /// memory, access to the window panics.
    ///
    /// # Errors
    /// [`Error::Argument`] if `range` exceeds the window, `op` does not fit the type, or another
    /// communicator made the window; [`Error::Failed`] if the job has failed; [`Error::Forked`] in
    /// a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut window = comm.alloc::<f32>(100)?;
    /// window[10..20].fill(1.0);
    /// comm.all_reduce_window(&mut window, 10..20, ReduceOp::Sum)?;
    /// assert_eq!((window[9], window[10]), (0.0, comm.size() as f32));
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn all_reduce_window<T: Element>(
        &mut self,
        window: &mut Window<T>,
        range: impl RangeBounds<usize>,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let range = self.elements(window.len(), &range)?;
        let call = reduction::<T>(self.wire(), Collective::AllReduce, range.len(), op, Rank(0));
        self.perform_in_windows(&call, Windows::InPlace(window), range.start * size_of::<T>())
    }

    /// Writes the reduction of elements `range` of all ranks' `input` to the same elements of every
    /// rank's `output`. Both are windows, and everything else is as for
    /// [`all_reduce_window`](Self::all_reduce_window).
    ///
    /// # Errors
    /// As for [`all_reduce_window`](Self::all_reduce_window).
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let (mut input, mut output) = (comm.alloc::<i64>(8)?, comm.alloc::<i64>(8)?);
    /// input.fill(2);
    /// comm.all_reduce_window_into(&input, &mut output, .., ReduceOp::Min)?;
    /// assert_eq!(output[..], [2; 8]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn all_reduce_window_into<T: Element>(
        &mut self,
        input: &Window<T>,
        output: &mut Window<T>,
        range: impl RangeBounds<usize>,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let range = self.elements(input.len().min(output.len()), &range)?;
        let call = reduction::<T>(self.wire(), Collective::AllReduce, range.len(), op, Rank(0));
        let windows = Windows::Apart { input, output };
        self.perform_in_windows(&call, windows, range.start * size_of::<T>())
    }

    /// Performs an all-reduce on the bytes of windows from byte `at`, for bindings and tools.
    /// `call` has the type of the elements. Every rank must make the same call on the same windows.
    /// Blocks until this rank's part is done.
    ///
    /// # Errors
    /// [`Error::Argument`] if the call is not an all-reduce, exceeds a window, or uses the window
    /// of another communicator; [`Error::Failed`] if the job has failed; [`Error::Forked`] in a
    /// child process.
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
        let (place, mark, range) =
            self.in_windows(call, input.map(|input| input.facts), output.facts, at)?;
        let request = Request { call, place, blocks: None, mark: Some(mark) };
        let input = input.map(|input| &input.store);
        let mut lent = Store::lent(input, &mut output.store, range);
        self.perform_request(request, lent.user())
    }

    /// As [`perform_in_windows`](Self::perform_in_windows), in shared windows. Without an `input`
    /// the call is in place.
    ///
    /// # Errors
    /// As for [`start_in_windows`](Self::start_in_windows).
    pub fn perform_in_shared_windows<T: Element>(
        &mut self,
        call: &Call,
        input: Option<&SharedWindow<T>>,
        output: &SharedWindow<T>,
        at: usize,
    ) -> Result<(), Error> {
        // The calls before it give the windows back.
        self.engine()?;
        let (place, mark, mut claim) = self.claim(call, input, output, at)?;
        let request = Request { call, place, blocks: None, mark: Some(mark) };
        self.perform_request(request, claim.lent().user())
    }

    /// Claims windows for a call, after checking it.
    pub(crate) fn claim<T>(
        &self,
        call: &Call,
        input: Option<&SharedWindow<T>>,
        output: &SharedWindow<T>,
        at: usize,
    ) -> Result<(Place, CallWindows, Claim), Error> {
        let (place, mark, range) =
            self.in_windows(call, input.map(|input| input.facts), output.facts, at)?;
        let claim = Claim::new(input.map(|input| &input.memory), &output.memory, range);
        let taken = || {
            let what = "the program has taken the window, or input and output are the same one";
            argument(self.rank(), call.collective, what.to_owned())
        };
        Ok((place, mark, claim.ok_or_else(taken)?))
    }

    /// Checks an all-reduce on the bytes of windows from byte `at`: its place, the windows for
    /// other ranks, and its bytes.
    fn in_windows(
        &self,
        call: &Call,
        input: Option<WindowFacts>,
        output: WindowFacts,
        at: usize,
    ) -> Result<(Place, CallWindows, Range<usize>), Error> {
        if call.collective != Collective::AllReduce {
            let what = "only all-reduce works in windows; pass the window as a slice instead";
            return Err(argument(self.rank(), call.collective, what.to_owned()));
        }
        let room = input.map_or(usize::MAX, |input| input.bytes).min(output.bytes);
        let len = call.count.saturating_mul(call.data_type.bytes());
        if at.checked_add(len).is_none_or(|end| end > room) {
            let what = format!("{len} bytes from byte {at} exceed the window of {room} bytes");
            return Err(argument(self.rank(), call.collective, what));
        }
        if !self.windows.has(output) || !input.is_none_or(|input| self.windows.has(input)) {
            let what = "the window belongs to another communicator; use one of this communicator's"
                .to_owned();
            return Err(argument(self.rank(), call.collective, what));
        }
        let mark = CallWindows {
            input: input.map_or(output.number, |input| input.number),
            output: output.number,
            begin: at as u64,
        };
        let shared = output.is_shared && input.is_none_or(|input| input.is_shared);
        let memory = Memory::Windows { shared };
        let place = Place { in_place: input.is_none(), input: len, output: len, memory };
        Ok((place, mark, at..at + len))
    }

    /// The name of the algorithm that would perform the all-reduce `call` in `window`, as in
    /// `window`.
    #[must_use]
    pub fn algorithm_in<T>(&self, window: &Window<T>, call: &Call) -> &'static str {
        let memory = Memory::Windows { shared: window.facts.is_shared };
        self.algorithm_in_memory(call, memory)
    }

    /// Makes a window of `len` elements, all zero. Every rank must call it, with the same type and
    /// length. Blocks until all ranks have the window.
    ///
    /// If not all ranks share memory, calls in the window use the algorithms for ordinary memory,
    /// which may round differently. The window's memory is then registered with the RDMA devices,
    /// if there are any: longer messages of any call leave from it, and arrive in it, without a
    /// copy. A child process made by `fork` may have no access to that memory.
    ///
    /// # Errors
    /// [`Error::Argument`], on every rank, if the ranks ask for different types or lengths, or for
    /// more shared memory than a rank has; [`Error::Failed`] if the job has failed;
    /// [`Error::Forked`] in a child process.
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
        let can_share = self.size() > 1 && self.engine()?.core.router.windows().is_some();
        let mine = [u64::from(can_share), len as u64, kind as u64];
        let mut all = vec![[0_u64; 3]; self.size()];
        self.all_gather_into(&mine, all.as_flattened_mut())?;
        let differs = |(_, asked): &(usize, &[u64; 3])| asked[1..] != all[0][1..];
        if let Some((rank, asked)) = all.iter().enumerate().find(differs) {
            let (first, other) = (request(all[0]), request(*asked));
            return Err(self.refuse(format!(
                "rank {rank} asks for {other} and rank 0 for {first}: all must ask for the same"
            )));
        }
        let bytes = len.checked_mul(kind.bytes()).filter(|bytes| *bytes <= WINDOW_BYTES_MAX);
        let Some(bytes) = bytes else {
            return Err(self.refuse(format!(
                "{} are more than {WINDOW_BYTES_MAX} bytes, the limit of a window",
                request(mine)
            )));
        };
        let store = if bytes > 0 && all.iter().all(|asked| asked[0] == 1) {
            Store::Shared(self.share(bytes)?)
        } else {
            self.own(bytes)?
        };
        Ok(self.windows.window(store, len))
    }

    /// Makes memory of this rank alone, registered with a transport if possible.
    fn own(&mut self, bytes: usize) -> Result<Store, Error> {
        let registered = if bytes > 0 { self.engine()?.core.router.pages(bytes) } else { None };
        if let Some(Ok(pages)) = registered {
            return Ok(Store::Registered(pages));
        }
        let mut own = AlignedBytes::default();
        own.exactly(bytes);
        Ok(Store::Own(own))
    }

    /// Makes memory that all ranks have mapped. Every rank fails if one does.
    fn share(&mut self, bytes: usize) -> Result<Shared, Error> {
        let call = self.agreement();
        let made = self.engine()?.attempt(
            |seq| Operation::Call { call, seq },
            |core, watch| {
                let mut sharing = Sharing::begin(&mut core.router, bytes)?;
                core.block_on(&mut sharing, watch)?;
                Ok(sharing.end())
            },
        )?;
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

    /// The call by which the ranks agree on a window.
    const fn agreement(&self) -> Call {
        let (collective, data_type) = (Collective::AllGather, DataType::U64);
        Call {
            collective,
            count: 3,
            data_type,
            op: ReduceOp::Sum,
            root: Rank(0),
            wire: Wire::Element,
        }
    }

    const fn refuse(&self, what: String) -> Error {
        Error::Argument { rank: self.rank(), call: "alloc", what }
    }

    /// Resolves `range` within `len` elements.
    pub(crate) fn elements(
        &self,
        len: usize,
        range: &impl RangeBounds<usize>,
    ) -> Result<Range<usize>, Error> {
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

/// The type and length that a rank asks for, in words.
fn request([_, len, kind]: [u64; 3]) -> String {
    let name = DataType::ALL.iter().find(|known| **known as u64 == kind);
    name.map_or_else(|| format!("{len} elements"), |name| format!("{name} x {len}"))
}
