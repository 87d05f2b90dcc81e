//! Windows: buffers that every rank of the host has mapped, so that a call reads its peers' inputs
//! and writes its results where they lie.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold_collectives::select::Constraints;
use ringfold_reduce::Element;
use ringfold_transport::{Pages, Window as Shared};
use ringfold_types::limits::WINDOW_BYTES_MAX;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp};

use crate::communicator::{Bytes, Communicator};
use crate::engine::Trouble;
use crate::error::Error;
use crate::plans::{Place, Plans};
use crate::wait::park;

/// A buffer of `T` on every rank, made by [`Communicator::alloc`]; used like a slice.
///
/// If all ranks of the communicator share memory, each has the others' buffers mapped, and
/// [`all_reduce_window`](Communicator::all_reduce_window) works on them directly. It may also serve
/// as an ordinary buffer of any call. Dropping it unmaps it here and takes nothing from the others.
pub struct Window<T> {
    pub(crate) store: Store,
    /// Which of its communicator's windows it is, and which of this process's communicators that
    /// is.
    pub(crate) number: u32,
    pub(crate) home: u64,
    len: usize,
    elements: PhantomData<T>,
}

/// Where a window's elements are.
pub(crate) enum Store {
    /// In memory that all ranks have mapped.
    Shared(Shared),
    /// In this rank's own,
    Own(Bytes),
    /// of which devices may read.
    Registered(Pages),
}

impl Store {
    /// Its first `bytes` bytes.
    pub(crate) fn front(&self, bytes: usize) -> &[u8] {
        match self {
            Self::Shared(window) => window.read(0..bytes),
            Self::Own(own) => own.front(bytes),
            Self::Registered(pages) => pages.front(bytes),
        }
    }

    /// Likewise, to be written.
    pub(crate) fn front_mut(&mut self, bytes: usize) -> &mut [u8] {
        match self {
            Self::Shared(window) => window.write(0..bytes),
            Self::Own(own) => own.exactly(bytes),
            Self::Registered(pages) => pages.front_mut(bytes),
        }
    }
}

/// What a communicator keeps for its windows.
#[derive(Debug)]
pub(crate) struct Windowing {
    /// This communicator among those of the process.
    pub(crate) home: u64,
    /// Windows made so far.
    made: u32,
    /// How calls are performed in windows that all have mapped, and in others.
    shared: Plans,
    apart: Plans,
}

impl Windowing {
    pub(crate) fn new(plans: &Plans) -> Self {
        static HOMES: AtomicU64 = AtomicU64::new(0);
        Self {
            home: HOMES.fetch_add(1, Ordering::Relaxed),
            made: 0,
            shared: plans.for_place(Place::Windows { shared: true }),
            apart: plans.for_place(Place::Windows { shared: false }),
        }
    }

    /// Chooses among `constraints` from now on.
    pub(crate) fn constrain(&mut self, constraints: &Constraints) {
        self.shared.constrain(constraints.clone());
        self.apart.constrain(constraints.clone());
    }

    /// How calls are performed in windows that all have mapped, or in others.
    #[inline]
    pub(crate) const fn plans(&mut self, is_shared: bool) -> &mut Plans {
        if is_shared { &mut self.shared } else { &mut self.apart }
    }
}

/// How long to wait for peers' parts before the second look, and at most between two: the time
/// doubles, since many ranks that look often keep each other from making their parts.
const GLANCE: Duration = Duration::from_micros(200);
const GLANCE_MAX: Duration = Duration::from_millis(20);

impl Communicator {
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
        let can_share = self.size() > 1 && self.engine.router_mut().windows().is_some();
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
        self.windows.made = self.windows.made.wrapping_add(1).max(1);
        let (number, home) = (self.windows.made, self.windows.home);
        Ok(Window { store, number, home, len, elements: PhantomData })
    }

    /// Makes memory of this rank's own, registered where that is possible.
    fn own(&mut self, bytes: usize) -> Store {
        let registered = if bytes > 0 { self.engine.router_mut().pages(bytes) } else { None };
        if let Some(Ok(pages)) = registered {
            return Store::Registered(pages);
        }
        let mut own = Bytes::default();
        own.exactly(bytes);
        Store::Own(own)
    }

    /// Makes memory that all ranks have mapped; or all fail.
    fn share(&mut self, bytes: usize) -> Result<Shared, Error> {
        let call = self.agreement();
        let made = match self.guarded(&call, |it| it.exchange(bytes)) {
            Ok(made) => made,
            Err(trouble) => return Err(self.fail(call, trouble)),
        };
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

    /// Hands the ranks' parts around. Whether the others could map theirs is not said.
    pub(crate) fn exchange(&mut self, bytes: usize) -> Result<io::Result<Shared>, Trouble> {
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let Some(windows) = self.engine.router_mut().windows() else {
            unreachable!("every rank has just said that it has them")
        };
        let deadline = Instant::now() + self.timeout;
        windows.begin_window(bytes)?;
        let mut glance = GLANCE;
        loop {
            if let Some(made) = windows.finish_window()? {
                return Ok(made);
            }
            if let Some(verdict) = control.verdict() {
                return Err(Trouble::Verdict(verdict));
            }
            if Instant::now() >= deadline {
                return Err(Trouble::Overdue);
            }
            park(&[Some(control.wake_fd())], glance);
            glance = GLANCE_MAX.min(glance * 2);
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
}

/// What a rank asked for, in words.
fn wish([_, len, kind]: [u64; 3]) -> String {
    let name = DataType::ALL.iter().find(|known| **known as u64 == kind);
    name.map_or_else(|| format!("{len} elements"), |name| format!("{name} x {len}"))
}

impl<T> Window<T> {
    /// Its bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Whether all ranks have it mapped.
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
