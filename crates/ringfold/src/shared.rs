//! Windows: buffers that every rank of the host has mapped. Calls read peers' inputs and write
//! results in them directly.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold_reduce::Element;
use ringfold_transport::{Pages, Window as Shared};

use crate::buffers::AlignedBytes;

/// A buffer of `T` on every rank, made by [`Communicator::alloc`](crate::Communicator::alloc).
///
/// It dereferences to a slice, so it may also serve as an ordinary buffer of any call. If all ranks
/// of the communicator share memory, each has the others' buffers mapped, and
/// [`all_reduce_window`](crate::Communicator::all_reduce_window) works on them directly. Dropping a
/// window unmaps it on this rank only.
pub struct Window<T> {
    pub(crate) store: Store,
    /// The number of the window on its communicator, from 1.
    pub(crate) number: u32,
    /// The number of its communicator in this process.
    home: u64,
    len: usize,
    elements: PhantomData<T>,
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

    /// Whether this communicator made `window`.
    pub(crate) const fn has<T>(&self, window: &Window<T>) -> bool {
        window.home == self.home
    }

    /// Wraps `store` as the communicator's next window.
    pub(crate) fn window<T>(&mut self, store: Store, len: usize) -> Window<T> {
        self.made = self.made.wrapping_add(1).max(1);
        Window { store, number: self.made, home: self.home, len, elements: PhantomData }
    }
}

impl<T> Window<T> {
    /// The length in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Whether all ranks have the window mapped.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.store, Store::Shared(_))
    }
}

impl<T: Element> Deref for Window<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        cast_slice(self.store.front(self.bytes()))
    }
}

impl<T: Element> DerefMut for Window<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes = self.bytes();
        cast_slice_mut(self.store.front_mut(bytes))
    }
}

impl<T> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("number", &self.number)
            .field("len", &self.len)
            .field("is_shared", &self.is_shared())
            .finish_non_exhaustive()
    }
}
