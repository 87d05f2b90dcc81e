//! Windows: buffers that every rank of the host has mapped. Calls read peers' inputs and write
//! results in them directly.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold_reduce::Element;
use ringfold_transport::{Pages, Process, Window as Shared};

use crate::buffers::{AlignedBytes, Buffers, Lent};

/// A buffer of `T` on every rank, made by [`Communicator::alloc`](crate::Communicator::alloc).
///
/// It dereferences to a slice, so it may also serve as an ordinary buffer of any call. If all ranks
/// of the communicator share memory, each has the others' buffers mapped, and
/// [`all_reduce_window`](crate::Communicator::all_reduce_window) works on them directly. Dropping a
/// window unmaps it on this rank only.
pub struct Window<T> {
    pub(crate) store: Store,
    pub(crate) facts: WindowFacts,
    elements: PhantomData<T>,
}

/// The properties of a window that never change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowFacts {
    /// The number of the window on its communicator, from 1.
    pub(crate) number: u32,
    /// The number of its communicator in this process.
    home: u64,
    /// The length in bytes.
    pub(crate) bytes: usize,
    /// Whether all ranks have the window mapped.
    pub(crate) is_shared: bool,
}

/// The memory of a window's elements.
pub(crate) enum Store {
    /// Memory that all ranks have mapped.
    Shared(Shared),
    /// Memory of this rank alone.
    Own(AlignedBytes),
    /// Memory of this rank alone, registered with a transport's devices.
    Registered(Pages),
}

impl Store {
    /// Bytes `range` of windows for a call. Without an `input` it is in place.
    pub(crate) fn lent<'a>(
        input: Option<&'a Self>,
        output: &'a mut Self,
        range: Range<usize>,
    ) -> Lent<'a> {
        match (input, output) {
            (None, Self::Shared(output)) => Lent::Windows { input: None, output, range },
            (Some(Self::Shared(input)), Self::Shared(output)) => {
                Lent::Windows { input: Some(input), output, range }
            }
            (input, output) => {
                let output = &mut output.front_mut(range.end)[range.clone()];
                Lent::Private(match input {
                    None => Buffers::InPlace(output),
                    Some(input) => Buffers::Apart { input: &input.front(range.end)[range], output },
                })
            }
        }
    }

    /// The first `bytes` bytes.
    pub(crate) fn front(&self, bytes: usize) -> &[u8] {
        match self {
            Self::Shared(window) => window.read(0..bytes),
            Self::Own(own) => own.front(bytes),
            Self::Registered(pages) => pages.front(bytes),
        }
    }

    /// The first `bytes` bytes, for writing.
    pub(crate) fn front_mut(&mut self, bytes: usize) -> &mut [u8] {
        match self {
            Self::Shared(window) => window.write(0..bytes),
            Self::Own(own) => own.exactly(bytes),
            Self::Registered(pages) => pages.front_mut(bytes),
        }
    }
}

/// The numbers of a communicator's windows.
#[derive(Debug)]
pub(crate) struct WindowNumbers {
    /// The number of the communicator in this process.
    home: u64,
    /// The number of windows made so far.
    made: u32,
}

impl WindowNumbers {
    pub(crate) fn new() -> Self {
        static HOMES: AtomicU64 = AtomicU64::new(0);
        Self { home: HOMES.fetch_add(1, Ordering::Relaxed), made: 0 }
    }

    /// Whether this communicator made the window.
    pub(crate) const fn has(&self, window: WindowFacts) -> bool {
        window.home == self.home
    }

    /// Wraps `store` as the communicator's next window.
    pub(crate) fn window<T>(&mut self, store: Store, len: usize) -> Window<T> {
        self.made = self.made.wrapping_add(1).max(1);
        let is_shared = matches!(store, Store::Shared(_));
        let (number, bytes) = (self.made, len * size_of::<T>());
        let facts = WindowFacts { number, home: self.home, bytes, is_shared };
        Window { store, facts, elements: PhantomData }
    }
}

impl<T> Window<T> {
    /// Makes the window available to calls that are started. See [`SharedWindow`].
    #[must_use]
    pub fn share(self) -> SharedWindow<T> {
        let memory = Arc::new(SharedMemory::new(self.store));
        SharedWindow { memory, facts: self.facts, elements: PhantomData }
    }
}

impl<T: Element> Deref for Window<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        cast_slice(self.store.front(self.facts.bytes))
    }
}

impl<T: Element> DerefMut for Window<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes = self.facts.bytes;
        cast_slice_mut(self.store.front_mut(bytes))
    }
}

impl<T> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// A window for calls that are started, as by
/// [`Communicator::start_all_reduce_window`](crate::Communicator::start_all_reduce_window).
/// [`Window::share`] makes it. Clones are the same window.
///
/// Several calls may wait for the window, for other elements of it or the same. They follow one
/// another. Between calls [`with`](Self::with) lends its elements, and [`take`](Self::take) gives
/// the window back. If a call fails, writes of this rank to any part of the window since the start
/// of the call may be lost.
pub struct SharedWindow<T> {
    pub(crate) memory: Arc<SharedMemory>,
    pub(crate) facts: WindowFacts,
    elements: PhantomData<fn() -> T>,
}

impl<T> SharedWindow<T> {
    /// Takes the window out, so that the program can use it again. `None` while calls need it,
    /// after it was taken, and in a child of `fork`. Calls in this shared window are refused from
    /// then on. Does not wait.
    #[must_use]
    pub fn take(&self) -> Option<Window<T>> {
        let store = self.memory.take()?;
        Some(Window { store, facts: self.facts, elements: PhantomData })
    }
}

impl<T: Element> SharedWindow<T> {
    /// Lends the elements to `work`, and returns its result. `None` where [`take`](Self::take)
    /// gives `None`. Calls in this window are refused while `work` runs. Does not wait.
    pub fn with<R>(&self, work: impl FnOnce(&mut [T]) -> R) -> Option<R> {
        /// Gives the memory back, also after a panic of the program.
        struct Lent<'m, T>(Option<Window<T>>, &'m SharedMemory);
        impl<T> Drop for Lent<'_, T> {
            fn drop(&mut self) {
                self.1.lock().store = self.0.take().map(|window| window.store);
            }
        }
        let mut lent = Lent(Some(self.take()?), &self.memory);
        lent.0.as_mut().map(|window| work(window))
    }
}

impl<T> Clone for SharedWindow<T> {
    fn clone(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), facts: self.facts, elements: PhantomData }
    }
}

impl<T> fmt::Debug for SharedWindow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWindow").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// The memory of a shared window.
pub(crate) struct SharedMemory {
    state: Mutex<SharedState>,
    process: Process,
}

struct SharedState {
    /// `None` while a call uses it, and after the program took it.
    store: Option<Store>,
    /// The calls that need it.
    claims: usize,
}

impl SharedMemory {
    fn new(store: Store) -> Self {
        let state = Mutex::new(SharedState { store: Some(store), claims: 0 });
        Self { state, process: Process::this() }
    }

    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the memory out, unless a call needs it. A thread of a forked process may have had the
    /// lock.
    fn take(&self) -> Option<Store> {
        let mut state = self.process.is_this().then(|| self.lock())?;
        if state.claims == 0 { state.store.take() } else { None }
    }

    /// Claims the memory for a call. Whether it was there, or is with another call.
    fn claim(&self) -> bool {
        let mut state = self.lock();
        let is_there = state.store.is_some() || state.claims > 0;
        state.claims += usize::from(is_there);
        is_there
    }
}

/// The windows of a call that was started or prepared.
pub(crate) struct Claim {
    input: Option<Claimed>,
    output: Claimed,
    /// The bytes of the call.
    range: Range<usize>,
}

/// A window of a call.
struct Claimed {
    memory: Arc<SharedMemory>,
    /// Whether the call was started. A prepared one leaves the window to the program.
    is_counted: bool,
    /// Its memory, once the call has begun.
    held: Option<Store>,
}

impl Claimed {
    fn of(memory: &Arc<SharedMemory>) -> Self {
        Self { memory: Arc::clone(memory), is_counted: false, held: None }
    }

    /// Whether the window is there for the call, which starts now.
    fn start(&mut self) -> bool {
        self.is_counted = self.memory.claim();
        self.is_counted
    }

    /// The memory, which is taken now if it has not been yet.
    fn held(&mut self) -> &mut Store {
        let Self { memory, held, .. } = self;
        // The calls of a communicator follow one another, and only they use its windows.
        held.get_or_insert_with(|| memory.lock().store.take().expect("no other call has it"))
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let Self { memory, is_counted, held } = self;
        if !*is_counted || !memory.process.is_this() {
            return;
        }
        if let Some(Store::Shared(window)) = held {
            window.withdraw();
        }
        let mut state = memory.lock();
        state.claims -= 1;
        if let Some(held) = held.take() {
            state.store = Some(held);
        }
    }
}

impl Claim {
    /// Claims windows for a call that is started. `None` if the program has taken one, or both are
    /// the same.
    pub(crate) fn new(
        input: Option<&Arc<SharedMemory>>,
        output: &Arc<SharedMemory>,
        range: Range<usize>,
    ) -> Option<Self> {
        let is_one = input.is_some_and(|input| Arc::ptr_eq(input, output));
        let mut claim = Self { input: input.map(Claimed::of), output: Claimed::of(output), range };
        (!is_one && claim.start()).then_some(claim)
    }

    /// The same windows for a call that `start` claims them for.
    pub(crate) fn again(&self) -> Self {
        let again = |it: &Claimed| Claimed::of(&it.memory);
        let (input, output) = (self.input.as_ref().map(again), again(&self.output));
        Self { input, output, range: self.range.clone() }
    }

    /// Whether the windows are there for the call, which starts now.
    pub(crate) fn start(&mut self) -> bool {
        self.input.as_mut().is_none_or(Claimed::start) && self.output.start()
    }

    /// The memory, for the call whose turn it is.
    pub(crate) fn lent(&mut self) -> Lent<'_> {
        let Self { input, output, range } = self;
        let input = input.as_mut().map(|input| &*input.held());
        Store::lent(input, output.held(), range.clone())
    }
}
