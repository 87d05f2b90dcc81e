//! Windows: buffers that every rank of the host has mapped. Calls read peers' inputs and write
//! results in them directly.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold_reduce::Element;
use ringfold_transport::{Pages, Window as Shared};

use crate::buffers::{AlignedBytes, Buffers, Lent};

/// A buffer of `T` on every rank, made by [`Communicator::alloc`](crate::Communicator::alloc).
///
/// It dereferences to a slice, so it may also serve as an ordinary buffer of any call. If all ranks
/// of the communicator share memory, each has the others' buffers mapped, and
/// [`all_reduce_window`](crate::Communicator::all_reduce_window) works on them directly. Dropping a
/// window unmaps it on this rank only.
pub struct Window<T> {
    pub(crate) store: Store,
    pub(crate) traits: Traits,
    elements: PhantomData<T>,
}

/// The properties of a window that never change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
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
    pub(crate) const fn has(&self, window: Traits) -> bool {
        window.home == self.home
    }

    /// Wraps `store` as the communicator's next window.
    pub(crate) fn window<T>(&mut self, store: Store, len: usize) -> Window<T> {
        self.made = self.made.wrapping_add(1).max(1);
        let is_shared = matches!(store, Store::Shared(_));
        let (number, bytes) = (self.made, len * size_of::<T>());
        let traits = Traits { number, home: self.home, bytes, is_shared };
        Window { store, traits, elements: PhantomData }
    }
}

impl<T> Window<T> {
    /// Makes the window available to calls that are started. See [`SharedWindow`].
    #[must_use]
    pub fn share(self) -> SharedWindow<T> {
        let state = Sharing { store: Some(self.store), claims: 0 };
        let memory = Arc::new(SharedMemory(Mutex::new(state)));
        SharedWindow { memory, traits: self.traits, elements: PhantomData }
    }
}

impl<T: Element> Deref for Window<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        cast_slice(self.store.front(self.traits.bytes))
    }
}

impl<T: Element> DerefMut for Window<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes = self.traits.bytes;
        cast_slice_mut(self.store.front_mut(bytes))
    }
}

impl<T> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("traits", &self.traits).finish_non_exhaustive()
    }
}

/// A window for calls that are started, as by
/// [`Communicator::start_all_reduce_window`](crate::Communicator::start_all_reduce_window).
/// [`Window::share`] makes it. Clones are the same window.
///
/// Several calls may wait for the window, for other elements of it or the same. They follow one
/// another. [`take`](Self::take) gives the window back to the program when all have ended.
pub struct SharedWindow<T> {
    pub(crate) memory: Arc<SharedMemory>,
    pub(crate) traits: Traits,
    elements: PhantomData<fn() -> T>,
}

impl<T> SharedWindow<T> {
    /// Takes the window out, so that the program can use it again. `None` while calls need it, and
    /// after it was taken. Then calls in this shared window are refused. Does not wait.
    #[must_use]
    pub fn take(&self) -> Option<Window<T>> {
        let mut state = self.memory.lock();
        let store = if state.claims == 0 { state.store.take() } else { None };
        store.map(|store| Window { store, traits: self.traits, elements: PhantomData })
    }
}

impl<T> Clone for SharedWindow<T> {
    fn clone(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), traits: self.traits, elements: PhantomData }
    }
}

impl<T> fmt::Debug for SharedWindow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWindow").field("traits", &self.traits).finish_non_exhaustive()
    }
}

/// The memory of a shared window.
pub(crate) struct SharedMemory(Mutex<Sharing>);

struct Sharing {
    /// `None` while a call uses it, and after the program took it.
    store: Option<Store>,
    /// The calls that need it.
    claims: usize,
}

impl SharedMemory {
    fn lock(&self) -> MutexGuard<'_, Sharing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the memory for a call. Whether it was there, or is with another call.
    fn claim(&self) -> bool {
        let mut state = self.lock();
        let is_there = state.store.is_some() || state.claims > 0;
        state.claims += usize::from(is_there);
        is_there
    }
}

/// The windows of a call that was started. It has their memory from its begin on.
pub(crate) struct Claim {
    /// Each with its memory, once the call has begun.
    input: Option<(Arc<SharedMemory>, Option<Store>)>,
    output: (Arc<SharedMemory>, Option<Store>),
    /// The bytes of the call.
    range: Range<usize>,
    /// Whether peers may use the memory.
    is_exposed: bool,
}

impl Claim {
    /// Claims windows for a call. `None` if the program has taken one, or both are the same.
    pub(crate) fn new(
        input: Option<&Arc<SharedMemory>>,
        output: &Arc<SharedMemory>,
        range: Range<usize>,
    ) -> Option<Self> {
        if input.is_some_and(|input| Arc::ptr_eq(input, output)) || !output.claim() {
            return None;
        }
        let mut claim =
            Self { input: None, output: (Arc::clone(output), None), range, is_exposed: false };
        if let Some(input) = input {
            claim.input = Some((input.claim().then(|| Arc::clone(input))?, None));
        }
        Some(claim)
    }

    /// Claims the same windows for another call.
    pub(crate) fn again(&self) -> Self {
        let input = self.input.as_ref().map(|(memory, _)| memory);
        let again = Self::new(input, &self.output.0, self.range.clone());
        let Some(again) = again else { unreachable!("this claim keeps the windows") };
        again
    }

    /// The memory, for the call whose turn it is.
    pub(crate) fn lent(&mut self) -> Lent<'_> {
        let Self { input, output, range, is_exposed } = self;
        let input = input.as_mut().map(|input| &*held(input));
        let lent = Store::lent(input, held(output), range.clone());
        *is_exposed = matches!(lent, Lent::Windows { .. });
        lent
    }

    /// Notes that the call has ended well, so that no peer uses the memory.
    pub(crate) const fn complete(&mut self) {
        self.is_exposed = false;
    }
}

/// The memory of a claim, which it takes now if it has not yet.
fn held((memory, held): &mut (Arc<SharedMemory>, Option<Store>)) -> &mut Store {
    // The calls of a communicator follow one another, and only they use its windows.
    held.get_or_insert_with(|| memory.lock().store.take().expect("no other call has it"))
}

impl Drop for Claim {
    fn drop(&mut self) {
        let is_exposed = self.is_exposed;
        let release = |(memory, held): &mut (Arc<SharedMemory>, Option<Store>)| {
            let held = held.take();
            if let (true, Some(Store::Shared(window))) = (is_exposed, &held) {
                window.withdraw();
            }
            let mut state = memory.lock();
            state.claims -= 1;
            if let Some(held) = held {
                state.store = Some(held);
            }
        };
        self.input.iter_mut().for_each(release);
        release(&mut self.output);
    }
}
