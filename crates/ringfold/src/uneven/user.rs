//! Reductions by operations of the user.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use ringfold_lend::lend;
use ringfold_types::limits::{
    OP_ELEMENT_ALIGN_MAX, OP_ELEMENT_BYTES_MAX, OP_NAME_BYTES_MAX, OPS_MAX,
};
use ringfold_types::{DataType, UnevenCall, UnevenCollective};

use super::Uneven;
use super::reduction::{Combine, OnBytes, Reducing, Reduction};
use crate::buffers::Buffers;
use crate::communicator::Communicator;
use crate::core::StartedCall;
use crate::error::Error;
use crate::parts::Parts;
use crate::requests::Started;

/// A commutative and associative operation on elements of type `T`, which
/// [`Communicator::register_op`] makes.
#[derive(Clone)]
pub struct UserOp<T> {
    on_bytes: Arc<OnBytes>,
    elements: PhantomData<fn(T)>,
}

impl<T> UserOp<T> {
    /// The name, which is the same on all ranks.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.on_bytes.name
    }
}

impl<T> fmt::Debug for UserOp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UserOp").field(&self.name()).finish()
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
        let combine = move |into: &mut [u8], from: &[u8]| {
            combine(cast_slice_mut(into), cast_slice(from));
        };
        self.register_checked(name, size_of::<T>(), Box::new(combine))
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
        self.register_checked(name, element, Box::new(combine))
    }

    fn register_checked<T>(
        &mut self,
        name: &str,
        element: usize,
        combine: Box<Combine>,
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
        let (name, hash) = (name.into(), hash.counts_hash);
        let on_bytes = Arc::new(OnBytes { name, hash, element, combine });
        Ok(UserOp { on_bytes, elements: PhantomData })
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
        let bytes: &mut [u8] = cast_slice_mut(buffer);
        let mut reduction = self.reduction(bytes.len(), &op.on_bytes)?;
        let mut memory = std::mem::take(&mut self.engine()?.core.packed);
        let call = reduction.call;
        let outcome = self.perform_rounds(&call, |core, watch, tag| {
            let (ranks, memory) = ((core.rank, core.layout.size()), &mut memory);
            let work =
                &mut Reducing { reduction: &mut reduction, tag, ranks, buffer: bytes, memory };
            core.block_on(work, watch)
        });
        self.engine()?.core.packed = memory;
        outcome?;
        let (counts, buffers) = (reduction.counts(), Buffers::InPlace(bytes));
        let parts = Parts::new(&counts);
        self.perform_uneven(&Uneven::AllGather { parts }, DataType::U8, buffers)
    }

    /// Starts [`all_reduce_by`](Self::all_reduce_by). The operation runs in the thread that
    /// advances the call, which may be the helper thread of the process.
    ///
    /// # Errors
    /// As for [`start_all_reduce`](Self::start_all_reduce). [`Request::wait`] returns those of the
    /// call.
    ///
    /// [`Request::wait`]: crate::Request::wait
    pub fn start_all_reduce_by<T: Pod, B>(&mut self, buffer: B, op: &UserOp<T>) -> Started<B>
    where
        B: AsMut<[T]> + Send + 'static,
    {
        self.start_reduction(buffer, |it| cast_slice_mut(B::as_mut(it)), op)
    }

    /// Starts [`all_reduce_by`](Self::all_reduce_by) on the bytes that `view` shows of `buffers`,
    /// for bindings.
    ///
    /// # Errors
    /// As for [`start_all_reduce_by`](Self::start_all_reduce_by).
    pub fn start_all_reduce_by_in<B: Send + 'static>(
        &mut self,
        buffers: B,
        view: impl for<'b> Fn(&'b mut B) -> &'b mut [u8] + Send + Sync + 'static,
        op: &UserOp<u8>,
    ) -> Started<B> {
        self.start_reduction(buffers, view, op)
    }

    fn start_reduction<T, B: Send + 'static>(
        &mut self,
        buffers: B,
        view: impl for<'b> Fn(&'b mut B) -> &'b mut [u8] + Send + Sync + 'static,
        op: &UserOp<T>,
    ) -> Started<B> {
        let lent = lend(buffers, move |it| (None, view(it)));
        self.start_lent(lent, |comm, buffers| {
            let Buffers::InPlace(bytes) = buffers else { unreachable!("it is lent in place") };
            let reduction = comm.reduction(bytes.len(), &op.on_bytes)?;
            let counts = reduction.counts();
            let parts = Parts::new(&counts);
            let gather = comm.checked(&Uneven::AllGather { parts }, DataType::U8)?;
            let gather = comm.known(&gather, parts, buffers)?;
            Ok(StartedCall::Reduction { reduction: Box::new(reduction), gather })
        })
    }

    /// The reduction of buffers of `len` bytes, each part on its rank.
    ///
    /// # Errors
    /// The buffers have no whole number of elements.
    fn reduction(&self, len: usize, operation: &Arc<OnBytes>) -> Result<Reduction, Error> {
        let element = operation.element;
        if !len.is_multiple_of(element) {
            let what =
                format!("the buffer of {len} bytes has no whole number of elements of {element}");
            return Err(Error::Argument { rank: self.rank(), call: "all_reduce_by", what });
        }
        Ok(Reduction::new(len, self.size(), operation))
    }
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
