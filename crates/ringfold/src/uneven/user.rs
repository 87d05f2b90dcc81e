//! Reductions by operations of the user.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use ringfold_types::limits::{
    LINK_BYTES_MIN, OP_ELEMENT_ALIGN_MAX, OP_ELEMENT_BYTES_MAX, OP_NAME_BYTES_MAX, OPS_MAX,
    UNEVEN_ROUND_BYTES,
};
use ringfold_types::{DataType, Rank, UnevenCall, UnevenCollective};

use super::Uneven;
use crate::buffers::{AlignedBytes, Buffers};
use crate::communicator::Communicator;
use crate::core::Core;
use crate::error::{CallError, Error};
use crate::messages::Exchange;
use crate::parts::Parts;
use crate::watch::Watch;

/// Bytes of all parts that one rank receives in one round, beyond the least round of
/// `LINK_BYTES_MIN` bytes for each rank.
const UNEVEN_SCRATCH_BYTES: usize = 16 * 1024 * 1024;

/// A commutative and associative operation on elements of type `T`, which
/// [`Communicator::register_op`] makes.
#[derive(Clone)]
pub struct UserOp<T> {
    name: Arc<str>,
    /// A hash of the name, of the size of an element and of the number of the operation on its
    /// communicator.
    hash: u32,
    /// The bytes of an element.
    element: usize,
    combine: Arc<Combine<T>>,
}

type Combine<T> = dyn Fn(&mut [T], &[T]) + Send + Sync;

impl<T> UserOp<T> {
    /// The name, which is the same on all ranks.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<T> fmt::Debug for UserOp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UserOp").field(&self.name).finish()
    }
}

/// Bytes by which ranks compare an operation: its name, the length of the name, and the size of an
/// element.
const CARD_BYTES: usize = OP_NAME_BYTES_MAX + 8;

impl Communicator {
    /// Registers a commutative and associative operation. All ranks register the same ones in the
    /// same order, under the same names and with elements of the same size.
    ///
    /// `combine` combines each element of its first slice with the element at the same place of the
    /// second, and leaves the result in the first. Both slices have the same length.
    ///
    /// A name may be registered again. That makes another operation, and the first stays as it is:
    /// ranks that use different ones in one call fail with a mismatch.
    ///
    /// # Errors
    /// [`Error::Argument`] if the name is empty or has more than 64 bytes, an element has no byte,
    /// more than 16 KiB or an alignment above 64 bytes, or the communicator has 1,024 operations
    /// already. Also, on all ranks, if ranks register different ones. [`Error::Failed`] if the job
    /// has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::local;
    ///
    /// let nearest = local::run(3, |comm| {
    ///     // The smallest value, and the rank that has it.
    ///     let min_loc = comm
    ///         .register_op("min_loc", |into: &mut [[u32; 2]], from: &[[u32; 2]]| {
    ///             for (into, from) in into.iter_mut().zip(from) {
    ///                 *into = (*into).min(*from);
    ///             }
    ///         })
    ///         .unwrap();
    ///     let mut buffer = [[[5, 3, 8][comm.rank().index()], comm.rank().0]];
    ///     comm.all_reduce_by(&mut buffer, &min_loc).unwrap();
    ///     buffer[0]
    /// })?;
    /// assert_eq!(nearest, [[3, 1]; 3]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn register_op<T: Pod>(
        &mut self,
        name: &str,
        combine: impl Fn(&mut [T], &[T]) + Send + Sync + 'static,
    ) -> Result<UserOp<T>, Error> {
        let align = align_of::<T>();
        if align > OP_ELEMENT_ALIGN_MAX {
            let what = format!(
                "elements aligned to {align} bytes are not aligned to at most \
                 {OP_ELEMENT_ALIGN_MAX}"
            );
            return Err(Error::Argument { rank: self.rank(), call: "register_op", what });
        }
        self.register_checked(name, size_of::<T>(), Arc::new(combine))
    }

    /// Registers an operation as [`register_op`](Self::register_op) does, on elements of `element`
    /// bytes without a type, for bindings. `combine` gets whole elements, whose addresses are
    /// multiples of `element` from one that is aligned to 64 bytes or lies in the caller's buffer.
    ///
    /// # Errors
    /// As for [`register_op`](Self::register_op).
    pub fn register_op_on_bytes(
        &mut self,
        name: &str,
        element: usize,
        combine: impl Fn(&mut [u8], &[u8]) + Send + Sync + 'static,
    ) -> Result<UserOp<u8>, Error> {
        self.register_checked(name, element, Arc::new(combine))
    }

    fn register_checked<T>(
        &mut self,
        name: &str,
        element: usize,
        combine: Arc<Combine<T>>,
    ) -> Result<UserOp<T>, Error> {
        let rank = self.rank();
        let refuse = |what| Err(Error::Argument { rank, call: "register_op", what });
        if !(1..=OP_NAME_BYTES_MAX).contains(&name.len()) {
            let bytes = name.len();
            return refuse(format!("a name of {bytes} bytes is not 1 to {OP_NAME_BYTES_MAX}"));
        }
        if !(1..=OP_ELEMENT_BYTES_MAX).contains(&element) {
            return refuse(format!(
                "an element of {element} bytes is not 1 to {OP_ELEMENT_BYTES_MAX}"
            ));
        }
        if self.user_ops >= OPS_MAX {
            return refuse(format!("the communicator has {OPS_MAX} operations already"));
        }
        let mut card = [0; CARD_BYTES];
        card[..name.len()].copy_from_slice(name.as_bytes());
        let lens = (name.len() as u64) << 32 | element as u64;
        card[OP_NAME_BYTES_MAX..].copy_from_slice(&lens.to_le_bytes());
        let mut cards = vec![0; CARD_BYTES * self.size()];
        self.all_gather_into(&card, &mut cards)?;
        let first = &cards[..CARD_BYTES];
        let differs = |it: &(usize, &[u8])| it.1 != first;
        if let Some((other, theirs)) = cards.chunks(CARD_BYTES).enumerate().find(differs) {
            let (zero, other) = (shown(first), format!("rank {other} {}", shown(theirs)));
            return refuse(format!("rank 0 registers {zero}, and {other}"));
        }
        self.user_ops += 1;
        // The number tells operations of one name apart.
        let words: Vec<usize> = card.map(usize::from).into_iter().chain([self.user_ops]).collect();
        let hash = UnevenCall::new(UnevenCollective::UserReduce, DataType::U8).with_counts(&words);
        Ok(UserOp { name: name.into(), hash: hash.counts_hash, element, combine })
    }

    /// Replaces `buffer` on every rank by the reduction of all ranks' buffers with the operation
    /// `op`. All ranks pass the same operation, and buffers of the same length.
    ///
    /// The elements are combined in rank order, and partial results are elements. A panic of the
    /// operation fails the call on all ranks, with its text.
    ///
    /// # Errors
    /// [`Error::Failed`] if the operation has panicked, ranks differ in the operation or the
    /// length, or the job has failed; [`Error::Forked`] in a child process.
    pub fn all_reduce_by<T: Pod>(&mut self, buffer: &mut [T], op: &UserOp<T>) -> Result<(), Error> {
        self.engine()?.health.check()?;
        let (size, element) = (self.size(), op.element);
        let elements = size_of_val(buffer) / element;
        if !size_of_val(buffer).is_multiple_of(element) {
            let what = format!(
                "the buffer of {} bytes has no whole number of elements of {element}",
                size_of_val(buffer)
            );
            return Err(Error::Argument { rank: self.rank(), call: "all_reduce_by", what });
        }
        // The first parts have one element more if the others leave a rest.
        let (share, rest) = (elements / size, elements % size);
        let counts: Vec<_> =
            (0..size).map(|part| (share + usize::from(part < rest)) * element).collect();
        let ranges: Vec<_> = counts
            .iter()
            .scan(0, |end, count| {
                *end += count;
                Some(*end - count..*end)
            })
            .collect();
        let call = UnevenCall::new(UnevenCollective::UserReduce, DataType::U8).with_counts(&counts);
        let call = UnevenCall { counts_hash: call.counts_hash ^ op.hash, ..call };
        let mut memory = std::mem::take(&mut self.engine()?.core.packed);
        let bytes: &mut [u8] = cast_slice_mut(buffer);
        let outcome = self.perform_rounds(&call, |core, watch, tag| {
            core.reduce_rounds((watch, tag), &ranges, bytes, (&mut memory, op))
        });
        self.engine()?.core.packed = memory;
        outcome?;
        let parts = Parts::new(&counts);
        self.perform_uneven(&Uneven::AllGather { parts }, DataType::U8, Buffers::InPlace(bytes))
    }
}

impl Core {
    /// Combines the parts of all ranks' `buffer` at these bytes, each on its rank, in rank order.
    /// In rounds of limited length, ranks exchange their contributions like an all-to-all.
    fn reduce_rounds<T: Pod>(
        &mut self,
        (watch, tag): (&Watch, u32),
        ranges: &[Range<usize>],
        buffer: &mut [u8],
        (memory, op): (&mut AlignedBytes, &UserOp<T>),
    ) -> Result<(), CallError> {
        let (own, size, element) = (self.rank.index(), self.layout.size(), op.element);
        let most = (UNEVEN_SCRATCH_BYTES / size).clamp(LINK_BYTES_MIN, UNEVEN_ROUND_BYTES);
        let most = most / element * element;
        let longest = ranges.iter().map(Range::len).max().unwrap_or(0);
        for begin in (0..longest).step_by(most) {
            let of_round = |range: &Range<usize>| {
                let end = range.len().min(begin + most);
                range.start + begin.min(end)..range.start + end
            };
            let part = of_round(&ranges[own]);
            let bytes = part.len();
            let contributions = memory.exactly(size * bytes);
            let mut exchange = Exchange::default();
            for (rank, range) in (0..).map(Rank).zip(ranges) {
                exchange.send(rank, of_round(range));
                exchange.receive(rank, rank.index() * bytes..(rank.index() + 1) * bytes);
            }
            self.round(&mut exchange, (buffer, &mut *contributions), watch, tag)?;
            let into = cast_slice_mut(&mut buffer[part]);
            op.combine_in_order(into, contributions)?;
        }
        Ok(())
    }
}

impl<T: Pod> UserOp<T> {
    /// Combines contributions that follow each other in `from`.
    fn combine_in_order(&self, into: &mut [T], from: &[u8]) -> Result<(), CallError> {
        if into.is_empty() {
            return Ok(());
        }
        let mut contributions = cast_slice(from).chunks_exact(into.len());
        if let Some(first) = contributions.next() {
            into.copy_from_slice(first);
        }
        let combined = catch_unwind(AssertUnwindSafe(|| {
            contributions.for_each(|part| (self.combine)(into, part));
        }));
        combined.map_err(|panic| {
            let text = text_of(&*panic);
            CallError::Panicked(format!("the operation {:?} panicked: {text}", self.name))
        })
    }
}

/// The text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text")
}

/// The operation on a card, which may hold any bytes.
fn shown(card: &[u8]) -> String {
    let (name, lens) = card.split_at(OP_NAME_BYTES_MAX);
    let name = String::from_utf8_lossy(name);
    let name = name.trim_end_matches(char::from(0));
    let element = lens.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    format!("{name:?} with elements of {element} bytes")
}

#[cfg(test)]
mod tests {
    use crate::local;

    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C, align(128))]
    struct Wide([u64; 16]);

    #[test]
    fn elements_without_a_type_stay_whole() {
        let results = local::run(3, |comm| {
            // The larger of two numbers of 24 bits, which a reduction by single bytes would mix.
            let op = comm.register_op_on_bytes("larger", 3, |into: &mut [u8], from: &[u8]| {
                assert_eq!((into.len() % 3, from.len()), (0, into.len()));
                for (into, from) in into.chunks_exact_mut(3).zip(from.chunks_exact(3)) {
                    if *from > *into {
                        into.copy_from_slice(from);
                    }
                }
            });
            let (op, rank) = (op.unwrap(), u8::try_from(comm.rank().0).unwrap());
            let text = comm.all_reduce_by(&mut [0; 10], &op).unwrap_err().to_string();
            assert!(text.contains("10 bytes has no whole number of elements of 3"), "{text}");
            let mut buffer = [rank, 2 - rank, 7, 2 - rank, rank, 9, 1, rank, 0].repeat(7);
            comm.all_reduce_by(&mut buffer, &op).unwrap();
            buffer
        });
        let expected = [2, 0, 7, 2, 0, 9, 1, 2, 0].repeat(7);
        assert!(results.unwrap().iter().all(|result| *result == expected));
    }

    #[test]
    fn elements_of_a_wide_alignment_are_refused() {
        let texts = local::run(2, |comm| {
            comm.register_op("wide", |_: &mut [Wide], _: &[Wide]| ()).unwrap_err().to_string()
        });
        assert!(texts.unwrap().iter().all(|text| text.contains("aligned to 128 bytes")));
    }
}
