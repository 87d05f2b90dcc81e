//! The contract that every provider of in-network reduction keeps.
//!
//! The shape is that of NCCL's CollNet plugins: init, devices, listen, connect, reduce support,
//! register, iallreduce, test, close. Making a provider is its init, `Group::post` is iallreduce,
//! `Group::result` is test, and dropping a group closes it. Registration stays inside the
//! providers, because memory that a device reads on its own cannot be lent in safe Rust. The
//! contract adds reduce and barrier, a descriptor to park on, the form of the elements, and whether
//! the sums are exact.
//!
//! A *group* has numbered members. Each hands over the same chunks in the same order, and gets
//! their results in that order. A member is at most `Properties::window` chunks ahead of the oldest
//! result that it has not taken. So a result of chunk c + window proves that all members have taken
//! result c.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

use ringfold_types::{Collective, DataType, ReduceOp, Wire};

use crate::error::OffloadError;
use crate::slots::{Outcome, Slots};

/// The reduction that a chunk is part of. All members must hand over the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// `AllReduce`, `Reduce` or `Barrier`.
    pub collective: Collective,
    /// The type of the elements.
    pub data_type: DataType,
    /// The operation. `PreMulSum` acts as `Sum`: each member has scaled its elements. The provider
    /// divides an `Avg` by the number of ranks that the group was made with.
    pub op: ReduceOp,
    /// The member that gets the result of a `Reduce`. The others get a result without bytes.
    pub root: u16,
    /// The form in which members hand elements over. Results are always elements.
    pub form: Wire,
}

impl Reduction {
    /// Bytes that a member hands over for `count` elements.
    #[must_use]
    pub const fn input_bytes(&self, count: usize) -> usize {
        match (self.collective, self.form) {
            (Collective::Barrier, _) => 0,
            (_, Wire::Element) => count * self.data_type.bytes(),
            (_, Wire::Accumulator) => count * self.data_type.accumulator().bytes(),
        }
    }

    /// Bytes of the result of `count` elements at `member`.
    #[must_use]
    pub const fn output_bytes(&self, count: usize, member: u16) -> usize {
        match self.collective {
            Collective::AllReduce => count * self.data_type.bytes(),
            Collective::Reduce if member == self.root => count * self.data_type.bytes(),
            _ => 0,
        }
    }
}

/// A chunk that a member hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The number of the chunk in the group, from 0 without gaps.
    pub number: u64,
    /// The tag of the call. All members must give the same one.
    pub tag: u32,
    /// The reduction.
    pub reduction: Reduction,
    /// Elements of the chunk; 0 for a barrier.
    pub count: usize,
}

/// A port, tree or root of a provider. Chunks may be striped over the groups of several devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The name for logs, as in `10.0.0.9:7411`.
    pub name: String,
    /// The abilities of groups on this device.
    pub properties: Properties,
}

/// The abilities of a device's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Bytes that a member may hand over in one chunk.
    pub chunk_bytes_max: usize,
    /// Chunks that a member may be ahead of the oldest result that it has not taken (W).
    pub window: usize,
    /// Whether a sum has the bits of the fallback: members in order, short floats summed in `f32`
    /// and rounded once per level. Only then may a call change between both in its middle.
    pub exact: bool,
}

/// The members that a provider waits for, as its last heartbeat named them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// Children of this member's aggregator that have not handed over the oldest unfinished chunk.
    /// Bit i is child i.
    pub children: u64,
    /// Children of the parent aggregator that it waits for; 0 without a parent.
    pub above: u64,
}

/// A way to combine chunks in the network.
pub trait Provider: Send + Sync + Debug {
    /// Returns the provider's name for logs and errors, as in `aggregator`.
    fn name(&self) -> &'static str;

    /// Returns the devices. All members of a group have the same ones.
    fn devices(&self) -> &[Device];

    /// Whether groups of `device` perform `reduction`.
    fn supports(&self, device: usize, reduction: &Reduction) -> bool;

    /// Begins to connect `member` to its group on `device`. May open devices, and does not wait:
    /// the group is of use once `Group::poll` has made it ready.
    ///
    /// # Errors
    /// There is no such device or member, or the system refuses a descriptor. Or the device has no
    /// room for another group: one active tree per switch is normal for hardware, so callers must
    /// expect this.
    fn connect(&mut self, device: usize, member: u16) -> Result<Box<dyn Group>, OffloadError>;
}

/// A member's end of a group. It polls and does not block. One thread uses it at a time. The end of
/// the group, or an error, fails every later call; results that have arrived stay. Dropping it
/// leaves the group.
pub trait Group: Send + Debug {
    /// Whether the group is connected.
    fn is_ready(&self) -> bool;

    /// Hands over the next chunk. `bytes` has `Reduction::input_bytes` bytes, at most
    /// `Properties::chunk_bytes_max`. Returns false if the group is not ready or its window full;
    /// the caller then tries again after `poll`. After true, the caller may overwrite `bytes`.
    ///
    /// # Errors
    /// The group has failed.
    ///
    /// # Panics
    /// If `chunk.number` is not the next one, or if `bytes` has another length.
    fn post(&mut self, chunk: &Chunk, bytes: &[u8]) -> Result<bool, OffloadError>;

    /// Sends and receives what it can. Returns whether anything moved. Reports a provider that owes
    /// a result and is silent for `limits::OFFLOAD_SILENCE_MS`.
    ///
    /// # Errors
    /// The group has failed.
    fn poll(&mut self) -> Result<bool, OffloadError>;

    /// Returns the member's results.
    fn slots(&self) -> &Slots;

    /// Returns the member's results, to release one.
    fn slots_mut(&mut self) -> &mut Slots;

    /// Returns the oldest result that has arrived and that `take` has not released.
    fn result(&self) -> Option<Outcome<'_>> {
        self.slots().oldest()
    }

    /// Releases the result that `result` returned. The next call of `result` returns the one after
    /// it. `retained` still lends the released one.
    ///
    /// # Panics
    /// If there is no result.
    fn take(&mut self) {
        self.slots_mut().take();
    }

    /// Lends result `number`, until the result of chunk `number + window` has arrived. That one
    /// proves that all members have taken result `number`. So a member that is behind when the
    /// group fails can get each result that it lacks from one that has it.
    fn retained(&self, number: u64) -> Option<Outcome<'_>> {
        self.slots().retained(number)
    }

    /// Returns the number of chunks handed over, which is the number of the next one.
    fn posted(&self) -> u64 {
        self.slots().posted()
    }

    /// Returns the number of results that have arrived whole.
    fn arrived(&self) -> u64 {
        self.slots().arrived()
    }

    /// Returns the members that the provider waits for. A late member is no failure of the group.
    fn awaited(&self) -> Awaited;

    /// Ends the connection to the provider at once. Every later call fails; results that have
    /// arrived stay. After `disarm` nothing makes `wake_fd` readable, or a waiting rank would never
    /// sleep.
    fn give_up(&mut self);

    /// Returns the descriptor for `ppoll`. It becomes readable when a call may succeed that could
    /// not when the caller called `arm`, or when silence may have lasted too long.
    fn wake_fd(&self) -> BorrowedFd<'_>;

    /// Makes `wake_fd` readable from now on when something happens. The caller must then poll once
    /// more, and park only if nothing moved.
    fn arm(&mut self);

    /// Cancels `arm`.
    fn disarm(&mut self);
}
