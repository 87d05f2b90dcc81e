//! Groups of calls: messages that start together, and like collectives that are packed into one.

use bytemuck::Pod;
use ringfold_bootstrap::CallWindows;
use ringfold_reduce::Element;
use ringfold_types::{Call, Collective, Rank, ReduceOp, Wire};

use crate::arguments::valid;
use crate::buffers::{AlignedBytes, Buffers, Offsets, Place, User};
use crate::cache::Request;
use crate::collective::{apart, in_place, movement, reduction};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::messages::{Receiving, Sending};

/// Bytes of a collective that is packed with others of its group of calls, in its larger buffer.
const PACKED_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the one call to which such collectives are packed.
const PACK_BYTES_MAX: usize = 256 * 1024;
const _: () = assert!(PACKED_BYTES_MAX <= PACK_BYTES_MAX);

/// The calls of a group, which [`Communicator::group`] performs. It borrows their buffers until
/// then.
#[derive(Debug)]
pub struct CallGroup<'b> {
    wire: Wire,
    sends: Vec<Sending>,
    receives: Vec<Receiving>,
    collectives: Vec<GroupedCall<'b>>,
}

/// A collective of a group.
#[derive(Debug)]
struct GroupedCall<'b> {
    call: Call,
    buffers: Buffers<'b>,
}

impl<'b> CallGroup<'b> {
    /// Adds [`Communicator::send`]. The group may also receive the message, if it goes to this
    /// rank.
    pub fn send<T: Pod>(&mut self, data: &'b [T], to: Rank, tag: u32) {
        self.sends.push(Sending::borrowed(data, to, tag));
    }

    /// Adds [`Communicator::recv`].
    pub fn recv<T: Pod>(
        &mut self,
        data: &'b mut [T],
        from: impl Into<Option<Rank>>,
        tag: impl Into<Option<u32>>,
    ) {
        self.receives.push(Receiving::borrowed(data, from.into(), tag.into()));
    }

    /// Adds [`Communicator::all_reduce`].
    pub fn all_reduce<T: Element>(&mut self, buffer: &'b mut [T], op: ReduceOp) {
        let call = reduction::<T>(self.wire, Collective::AllReduce, buffer.len(), op, Rank(0));
        self.perform(&call, in_place(buffer));
    }

    /// Adds [`Communicator::broadcast`].
    pub fn broadcast<T: Pod>(&mut self, buffer: &'b mut [T], root: Rank) {
        let call = movement::<T>(Collective::Broadcast, buffer.len(), root);
        self.perform(&call, in_place(buffer));
    }

    /// Adds [`Communicator::all_gather_into`].
    pub fn all_gather_into<T: Pod>(&mut self, input: &'b [T], output: &'b mut [T]) {
        let call = movement::<T>(Collective::AllGather, input.len(), Rank(0));
        self.perform(&call, apart(input, output));
    }

    /// Adds [`Communicator::reduce_scatter_into`].
    pub fn reduce_scatter_into<T: Element>(
        &mut self,
        input: &'b [T],
        output: &'b mut [T],
        op: ReduceOp,
    ) {
        let call = reduction::<T>(self.wire, Collective::ReduceScatter, output.len(), op, Rank(0));
        self.perform(&call, apart(input, output));
    }

    /// Adds [`Communicator::perform`], for every other collective.
    pub fn perform(&mut self, call: &Call, buffers: Buffers<'b>) {
        self.collectives.push(GroupedCall { call: *call, buffers });
    }
}

impl Communicator {
    /// Performs the calls that `add` adds to a group. Blocks until all are done.
    ///
    /// The messages of the group start together, so sends and receives in any order do not
    /// deadlock. Its collectives begin when its messages are done, in their order. Short ones of
    /// the same kind, type, operation and root become one call: all ranks must add the same ones.
    /// Such a sum may have been added in another order than by a call of its own.
    ///
    /// # Errors
    /// As for the calls. After [`Error::Argument`] no call of the group has begun.
    ///
    /// ```
    /// use ringfold::{Rank, ReduceOp, local};
    ///
    /// let results = local::run(3, |comm| {
    ///     let (rank, size) = (comm.rank().0, comm.size() as u32);
    ///     let data = [rank; 1000];
    ///     let mut from = vec![[9_u32; 1000]; size as usize];
    ///     let mut sums = [[1.0_f32, 2.0], [3.0, 4.0]];
    ///     comm.group(|group| {
    ///         for peer in 0..size {
    ///             group.send(&data, Rank(peer), 0);
    ///         }
    ///         for (peer, from) in (0..size).zip(&mut from) {
    ///             group.recv(from, Rank(peer), 0);
    ///         }
    ///         for sum in &mut sums {
    ///             group.all_reduce(sum, ReduceOp::Sum);
    ///         }
    ///     })
    ///     .unwrap();
    ///     (from[0][0], from[2][999], sums)
    /// })?;
    /// assert_eq!(results, [(0, 2, [[3.0, 6.0], [9.0, 12.0]]); 3]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn group<'b>(&mut self, add: impl FnOnce(&mut CallGroup<'b>)) -> Result<(), Error> {
        self.check_process()?;
        self.check_failure()?;
        let mut group = CallGroup {
            wire: self.wire(),
            sends: Vec::new(),
            receives: Vec::new(),
            collectives: Vec::new(),
        };
        add(&mut group);
        let CallGroup { sends, receives, mut collectives, .. } = group;
        let collectives = &mut collectives;
        for GroupedCall { call, buffers } in collectives.iter_mut() {
            // Fields without a meaning must not make the packs of ranks differ.
            *call = valid(call, Place::of(buffers), self.size(), self.rank())?;
        }
        // The other ranks perform the collectives also where a message is too long for its buffer.
        let truncated = match self.exchange_messages(sends, receives) {
            Ok(_) => Ok(()),
            Err(error @ Error::Truncated { .. }) => Err(error),
            Err(error) => return Err(error),
        };
        let packs = packs(collectives, self.size());
        packs.iter().try_for_each(|pack| self.perform_pack(collectives, pack))?;
        truncated
    }

    /// Performs the `calls` with the numbers in `pack` as one call.
    fn perform_pack(&mut self, calls: &mut [GroupedCall<'_>], pack: &[usize]) -> Result<(), Error> {
        if let [only] = pack {
            let GroupedCall { call, buffers } = &mut calls[*only];
            let request = Request::ordinary(call, buffers);
            return self.perform_request(request, User::Private(buffers));
        }
        let Some(first) = pack.first() else { return Ok(()) };
        let counts = || pack.iter().map(|number| calls[*number].call.count);
        let call = Call { count: counts().sum(), ..calls[*first].call };
        let seal = CallWindows::packed(counts());
        let (rank, size) = (self.rank(), self.size());
        let bytes = packed_bytes(&call, size);
        let mut memory: AlignedBytes = std::mem::take(&mut self.engine()?.core.packed);
        let whole = memory.exactly(bytes);
        gather(calls, pack, &call, whole, rank, size);
        let mut buffers = Buffers::InPlace(whole);
        let request = Request { mark: Some(seal), ..Request::ordinary(&call, &buffers) };
        let outcome = self.perform_request(request, User::Private(&mut buffers));
        if outcome.is_ok() {
            scatter(calls, pack, &call, memory.exactly(bytes), rank, size);
        }
        self.engine()?.core.packed = memory;
        outcome
    }
}

/// The numbers of the calls in packs, each of which is one call. The same on all ranks.
fn packs(calls: &[GroupedCall<'_>], size: usize) -> Vec<Vec<usize>> {
    let mut packs: Vec<(usize, Vec<usize>)> = Vec::new();
    for (number, GroupedCall { call, .. }) in calls.iter().enumerate() {
        let bytes = packed_bytes(call, size);
        let is_short = bytes <= PACKED_BYTES_MAX && is_packable(call);
        let takes = |(filled, pack): &&mut (usize, Vec<usize>)| {
            *filled + bytes <= PACK_BYTES_MAX && is_alike(&calls[pack[0]].call, call)
        };
        match packs.iter_mut().find(takes).filter(|_| is_short) {
            Some((filled, pack)) => {
                *filled += bytes;
                pack.push(number);
            }
            // A pack that is full takes no other call.
            None => packs.push((if is_short { bytes } else { PACK_BYTES_MAX + 1 }, vec![number])),
        }
    }
    packs.into_iter().map(|(_, pack)| pack).collect()
}

/// Whether calls of this kind can be packed. The scale of a `PreMulSum` may differ between ranks,
/// so such calls do not tell which of them are alike.
fn is_packable(call: &Call) -> bool {
    let collective = call.collective;
    let is_of_blocks = matches!(
        collective,
        Collective::AllReduce
            | Collective::AllGather
            | Collective::ReduceScatter
            | Collective::Broadcast
            | Collective::Reduce
    );
    is_of_blocks && !(collective.reduces() && matches!(call.op, ReduceOp::PreMulSum(_)))
}

/// Whether two calls differ in their counts only.
fn is_alike(one: &Call, other: &Call) -> bool {
    Call { count: other.count, ..*one } == *other
}

/// The bytes of the larger buffer of `call`.
const fn packed_bytes(call: &Call, size: usize) -> usize {
    let (input, output) = (call.input_len(size), call.output_len(size));
    (if input > output { input } else { output }) * call.data_type.bytes()
}

/// Copies the calls' inputs to their places in the one buffer of the packed `call`: block by
/// block, and within a block in the order of the calls.
fn gather(
    calls: &[GroupedCall<'_>],
    pack: &[usize],
    call: &Call,
    whole: &mut [u8],
    rank: Rank,
    size: usize,
) {
    if call.collective == Collective::Broadcast && rank != call.root {
        return;
    }
    let blocks = if call.collective == Collective::ReduceScatter { size } else { 1 };
    let mut rest = &mut whole[Offsets::in_place(call, rank).input..];
    for block in 0..blocks {
        for GroupedCall { call, buffers } in pack.iter().map(|number| &calls[*number]) {
            let bytes = call.count * call.data_type.bytes();
            let input: &[u8] = match buffers {
                Buffers::Apart { input, .. } => input,
                Buffers::InPlace(both) => &both[Offsets::in_place(call, rank).input..],
            };
            let (part, others) = rest.split_at_mut(bytes);
            part.copy_from_slice(&input[block * bytes..][..bytes]);
            rest = others;
        }
    }
}

/// Copies the results from the one buffer of the packed `call` to the calls' outputs.
fn scatter(
    calls: &mut [GroupedCall<'_>],
    pack: &[usize],
    call: &Call,
    whole: &[u8],
    rank: Rank,
    size: usize,
) {
    if call.collective == Collective::Reduce && rank != call.root {
        return;
    }
    let blocks = if call.collective == Collective::AllGather { size } else { 1 };
    let mut rest = &whole[Offsets::in_place(call, rank).output..];
    for block in 0..blocks {
        for number in pack {
            let GroupedCall { call, buffers } = &mut calls[*number];
            let bytes = call.count * call.data_type.bytes();
            let output: &mut [u8] = match buffers {
                Buffers::Apart { output, .. } => output,
                Buffers::InPlace(both) => &mut both[Offsets::in_place(call, rank).output..],
            };
            let (part, others) = rest.split_at(bytes);
            output[block * bytes..][..bytes].copy_from_slice(part);
            rest = others;
        }
    }
}
