//! Calls in windows, as the user makes them.

use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use ringfold_bootstrap::Windows as Named;
use ringfold_lend::{expose, expose_to_readers};
use ringfold_reduce::{Element, scale};
use ringfold_transport::Window as Shared;
use ringfold_types::{Call, Collective, Rank, ReduceOp};

use crate::communicator::Communicator;
use crate::error::Error;
use crate::memory::{Memory, Shape, User, goes_past};
use crate::reach::Reach;
use crate::window::{Store, Window};

/// The windows of an untyped call.
#[derive(Debug)]
pub enum Windows<'a, T> {
    /// Out of place.
    Apart {
        /// What this rank contributes.
        input: &'a Window<T>,
        /// What this rank receives.
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
            return Err(self.argument(call.collective, what.to_owned()));
        }
        let room = input.map_or(usize::MAX, Window::bytes).min(output.bytes());
        let len = call.count.saturating_mul(call.data_type.bytes());
        if at.checked_add(len).is_none_or(|end| end > room) {
            let what = format!("{len} bytes from byte {at} on exceed the window's {room}");
            return Err(self.argument(call.collective, what));
        }
        let home = self.windows.home;
        if output.home != home || input.is_some_and(|input| input.home != home) {
            let what = "the window is one of another communicator".to_owned();
            return Err(self.argument(call.collective, what));
        }
        let shape = Shape { in_place: input.is_none(), input: len, output: len };
        let named = Named {
            input: input.map_or(output.number, |input| input.number),
            output: output.number,
            begin: at as u64,
        };
        let range = at..at + len;
        let place = match (input.map(|input| &input.store), &mut output.store) {
            (None, Store::Shared(output)) => Place::Shared { input: None, output },
            (Some(Store::Shared(input)), Store::Shared(output)) => {
                Place::Shared { input: Some(input), output }
            }
            (input, output) => {
                let output = &mut output.front_mut(range.end)[range.clone()];
                Place::Apart(match input {
                    None => User::Together { bytes: output, input_at: 0, output_at: 0 },
                    Some(input) => {
                        User::Apart { input: &input.front(range.end)[range.clone()], output }
                    }
                })
            }
        };
        self.guarded(call, |it| it.run_in_windows(call, shape, place, &range, named))
    }

    /// Makes a call the latest of its kind of windows, if it is good.
    fn plan_in_windows(&mut self, call: &Call, shape: Shape, is_shared: bool) -> Result<(), Error> {
        if self.windows.plans(is_shared).repeats(call, shape) {
            return Ok(());
        }
        let good = self.valid(*call, shape)?;
        let plans = self.windows.plans(is_shared);
        plans.enter((call, shape), &good, &self.layout, self.rank)
    }

    /// The name of the algorithm that all-reduce `call` would run by in `window`, as in `window`.
    ///
    /// # Errors
    /// `RINGFOLD_ALGO` leaves none.
    pub fn algorithm_in<T>(
        &mut self,
        window: &Window<T>,
        call: &Call,
    ) -> Result<&'static str, Error> {
        let plans = self.windows.plans(window.is_shared());
        plans.entry(call, &self.layout, self.rank).map(|entry| entry.schedule.algorithm())
    }

    /// Runs one call in the bytes `range` of windows.
    fn run_in_windows(
        &mut self,
        call: &Call,
        shape: Shape,
        place: Place<'_>,
        range: &Range<usize>,
        named: Named,
    ) -> Result<(), Error> {
        let is_shared = matches!(place, Place::Shared { .. });
        self.plan_in_windows(call, shape, is_shared)?;
        if let Some(failure) = &self.failed {
            return Err(Error::Failed(Arc::clone(failure)));
        }
        let mut entry = self.windows.plans(is_shared).latest();
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        self.seq += 1;
        let tag = entry.begin(control, self.seq, Some(named));
        if entry.is_staged && self.stage.is_none() {
            let planned = entry.call;
            match self.make_stage(tag) {
                Ok(true) => {}
                Ok(false) => self.plan_in_windows(call, shape, is_shared)?,
                Err(trouble) => return Err(self.fail(planned, trouble)),
            }
            entry = self.windows.plans(is_shared).latest();
        }
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let task = entry.task(control, tag, self.timeout);
        let (element, accumulator) = entry.element_bytes;
        let scratch = self.scratch.exactly(entry.scratch_bytes());
        let place = prescaled(call, place, range);
        let mut memory = match place {
            Place::Apart(user) => Memory::new(user, scratch, element, accumulator),
            Place::Shared { input, output } if entry.in_windows => {
                let (element, accumulator) =
                    (element.trailing_zeros(), accumulator.trailing_zeros());
                let (at, spreads) = (range.start, entry.spreads);
                let all = range.len() * self.layout.size();
                let past = input.is_some() && goes_past(range.len(), all);
                let input = input.map(|input| expose_to_readers(&entry.schedule, input));
                let output = expose(&entry.schedule, output);
                let reach = Reach { input, output, at, element, accumulator, spreads, past };
                Memory::in_windows(reach, scratch)
            }
            Place::Shared { input, output } => {
                let output = output.write(range.clone());
                let user = match input {
                    Some(input) => User::Apart { input: input.read(range.clone()), output },
                    None => User::Together { bytes: output, input_at: 0, output_at: 0 },
                };
                let stage = self.stage.as_mut().filter(|_| entry.is_staged);
                let stage = stage.map(|stage| expose(&entry.schedule, stage));
                let staging = entry.staging(self.is_stage_turned, self.layout.size());
                Memory::new(user, scratch, element, accumulator).with_stage(stage, staging)
            }
        };
        match self.engine.run(&task, &mut memory, 0) {
            Ok(()) => {
                self.is_stage_turned ^= entry.schedule.turns_stage();
                control.finished(self.seq);
                Ok(())
            }
            Err(trouble) => {
                let call = entry.call;
                drop(memory);
                Err(self.fail(call, trouble))
            }
        }
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
        Err(self.argument(Collective::AllReduce, what))
    }
}

/// Where the elements of a call are.
enum Place<'a> {
    /// In windows that all ranks have mapped.
    Shared { input: Option<&'a Shared>, output: &'a mut Shared },
    /// In memory of this rank's own.
    Apart(User<'a>),
}

/// Applies the scale of a `PreMulSum` on the way to the output, where the call goes on in place.
fn prescaled<'a>(call: &Call, place: Place<'a>, range: &Range<usize>) -> Place<'a> {
    let ReduceOp::PreMulSum(factor) = call.op else { return place };
    let (data_type, factor) = (call.data_type, factor.factor());
    match place {
        Place::Shared { input, output } => {
            let from = input.map(|input| input.read(range.clone()));
            scale(data_type, output.write(range.clone()), from, factor);
            Place::Shared { input: None, output }
        }
        Place::Apart(User::Apart { input, output }) => {
            scale(data_type, output, Some(input), factor);
            Place::Apart(User::Together { bytes: output, input_at: 0, output_at: 0 })
        }
        Place::Apart(User::Together { bytes, .. }) => {
            scale(data_type, bytes, None, factor);
            Place::Apart(User::Together { bytes, input_at: 0, output_at: 0 })
        }
    }
}

const fn call<T: Element>(count: usize, op: ReduceOp) -> Call {
    let (collective, root) = (Collective::AllReduce, Rank(0));
    Call { collective, count, data_type: T::DATA_TYPE, op, root }
}
