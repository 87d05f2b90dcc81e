//! The uneven collectives, as methods of [`Communicator`].

use bytemuck::Pod;
use ringfold_reduce::Element;
use ringfold_types::{Rank, ReduceOp};

use super::{apart, in_place, moved_as};
use crate::buffers::Buffers;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::parts::Parts;
use crate::uneven::Uneven;

/// The collectives whose parts may differ in length, as those of MPI whose names end in `v`. All
/// ranks must call the same one, as with the other collectives. Parts may
/// be empty.
///
/// The errors of all: [`Error::Argument`] if parts leave their buffer, or parts to be written
/// overlap; [`Error::Failed`] if two ranks disagree about the length of a part, or the job has
/// failed; [`Error::Forked`] in a child process.
impl Communicator {
    /// Exchanges parts of all ranks' buffers: part r of this rank's result is the part for this
    /// rank of the buffer of rank r. Both have the same length.
    ///
    /// # Errors
    /// As for all uneven collectives.
    pub fn all_to_all_v<T: Pod>(
        &mut self,
        buffer: &mut [T],
        parts: Parts<'_>,
    ) -> Result<(), Error> {
        let uneven = Uneven::AllToAll { send: parts, recv: parts };
        self.move_parts::<T>(uneven, in_place(buffer))
    }

    /// Sends part r of `input` to every rank r, and writes the part of rank r for this rank to part
    /// r of `output`.
    ///
    /// # Errors
    /// As for all uneven collectives.
    ///
    /// ```
    /// use ringfold::{Parts, local};
    ///
    /// // Rank r sends r elements to each rank.
    /// let outputs = local::run(3, |comm| {
    ///     let rank = comm.rank().index();
    ///     let (input, mut output) = (vec![rank as u8; 3 * rank], [9; 3]);
    ///     let (send, recv) = ([rank; 3], [0, 1, 2]);
    ///     let (send, recv) = (Parts::new(&send), Parts::new(&recv));
    ///     comm.all_to_all_v_into(&input, send, &mut output, recv).unwrap();
    ///     output
    /// })?;
    /// assert_eq!(outputs, [[1, 2, 2]; 3]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn all_to_all_v_into<T: Pod>(
        &mut self,
        input: &[T],
        send: Parts<'_>,
        output: &mut [T],
        recv: Parts<'_>,
    ) -> Result<(), Error> {
        let uneven = Uneven::AllToAll { send, recv };
        self.move_parts::<T>(uneven, apart(input, output))
    }

    /// Gathers the `buffer` of each rank as part r of the root's `buffer`, whose own part is in
    /// place. `parts` has a meaning on the root only.
    ///
    /// # Errors
    /// As for all uneven collectives.
    pub fn gather_v<T: Pod>(
        &mut self,
        buffer: &mut [T],
        parts: Parts<'_>,
        root: Rank,
    ) -> Result<(), Error> {
        let uneven = Uneven::Gather { root, parts };
        self.move_parts::<T>(uneven, in_place(buffer))
    }

    /// Writes the `input` of each rank r to part r of the root's `output`. `output` and `parts`
    /// have a meaning on the root only, and may be empty on other ranks.
    ///
    /// # Errors
    /// As for all uneven collectives.
    ///
    /// ```
    /// use ringfold::{Parts, Rank, local};
    ///
    /// let outputs = local::run(3, |comm| {
    ///     let rank = comm.rank().index();
    ///     let mut output = [9; 5];
    ///     // The parts begin at the elements 4, 0 and 2.
    ///     let parts = Parts::at(&[0, 1, 2], &[4, 0, 2]);
    ///     comm.gather_v_into(&vec![rank as u8; rank], &mut output, parts, Rank(1)).unwrap();
    ///     output
    /// })?;
    /// assert_eq!(outputs, [[9; 5], [1, 9, 2, 2, 9], [9; 5]]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn gather_v_into<T: Pod>(
        &mut self,
        input: &[T],
        output: &mut [T],
        parts: Parts<'_>,
        root: Rank,
    ) -> Result<(), Error> {
        let uneven = Uneven::Gather { root, parts };
        self.move_parts::<T>(uneven, apart(input, output))
    }

    /// Sends part r of the root's `buffer` to the `buffer` of rank r. The root's own part stays in
    /// place. `parts` has a meaning on the root only.
    ///
    /// # Errors
    /// As for all uneven collectives.
    pub fn scatter_v<T: Pod>(
        &mut self,
        buffer: &mut [T],
        parts: Parts<'_>,
        root: Rank,
    ) -> Result<(), Error> {
        let uneven = Uneven::Scatter { root, parts };
        self.move_parts::<T>(uneven, in_place(buffer))
    }

    /// Writes part r of the root's `input` to the `output` of rank r. `input` and `parts` have a
    /// meaning on the root only, and may be empty on other ranks.
    ///
    /// # Errors
    /// As for all uneven collectives.
    ///
    /// ```
    /// use ringfold::{Parts, Rank, local};
    ///
    /// let sums = local::run(3, |comm| {
    ///     let rank = comm.rank().index();
    ///     let mut output = vec![0; rank];
    ///     let parts = Parts::new(&[0, 1, 2]);
    ///     comm.scatter_v_into(&[5, 6, 7], parts, &mut output, Rank(0)).unwrap();
    ///     output.iter().sum::<i32>()
    /// })?;
    /// assert_eq!(sums, [0, 5, 13]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn scatter_v_into<T: Pod>(
        &mut self,
        input: &[T],
        parts: Parts<'_>,
        output: &mut [T],
        root: Rank,
    ) -> Result<(), Error> {
        let uneven = Uneven::Scatter { root, parts };
        self.move_parts::<T>(uneven, apart(input, output))
    }

    /// Gives every rank the parts of all ranks. Before the call this rank has filled in its own
    /// part of `buffer`. All ranks give the same counts.
    ///
    /// # Errors
    /// As for all uneven collectives. Ranks that give other counts fail with
    /// [`FailureCause::Mismatch`](crate::FailureCause::Mismatch).
    pub fn all_gather_v<T: Pod>(
        &mut self,
        buffer: &mut [T],
        parts: Parts<'_>,
    ) -> Result<(), Error> {
        let uneven = Uneven::AllGather { parts };
        self.move_parts::<T>(uneven, in_place(buffer))
    }

    /// Writes the `input` of each rank r to part r of every rank's `output`. All ranks give the
    /// same counts.
    ///
    /// # Errors
    /// As for [`all_gather_v`](Self::all_gather_v).
    ///
    /// ```
    /// use ringfold::{Parts, local};
    ///
    /// let outputs = local::run(3, |comm| {
    ///     let rank = comm.rank().index();
    ///     let mut output = [9; 3];
    ///     let input = vec![rank as u8; rank];
    ///     comm.all_gather_v_into(&input, &mut output, Parts::new(&[0, 1, 2])).unwrap();
    ///     output
    /// })?;
    /// assert_eq!(outputs, [[1, 2, 2]; 3]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn all_gather_v_into<T: Pod>(
        &mut self,
        input: &[T],
        output: &mut [T],
        parts: Parts<'_>,
    ) -> Result<(), Error> {
        let uneven = Uneven::AllGather { parts };
        self.move_parts::<T>(uneven, apart(input, output))
    }

    /// Reduces all ranks' buffers and leaves this rank's part of the result in its part of
    /// `buffer`; the rest of the buffer stays as it was. All ranks give the same counts.
    ///
    /// Operands combine as in [`reduce_scatter`](Self::reduce_scatter). Every run with the same
    /// ranks, counts and settings gives the same bits.
    ///
    /// # Errors
    /// As for [`all_gather_v`](Self::all_gather_v). [`Error::Argument`] also if `op` does not fit
    /// the type.
    pub fn reduce_scatter_v<T: Element>(
        &mut self,
        buffer: &mut [T],
        parts: Parts<'_>,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let uneven = Uneven::ReduceScatter { parts, op };
        self.perform_uneven(&uneven, T::DATA_TYPE, in_place(buffer))
    }

    /// Reduces part r of all ranks' `input` into the `output` of rank r, as
    /// [`reduce_scatter_v`](Self::reduce_scatter_v) does in place.
    ///
    /// # Errors
    /// As for [`reduce_scatter_v`](Self::reduce_scatter_v).
    ///
    /// ```
    /// use ringfold::{Parts, ReduceOp, local};
    ///
    /// let outputs = local::run(3, |comm| {
    ///     let mut output = vec![0.0; comm.rank().index()];
    ///     let (input, parts) = ([1.0_f32, 2.0, 3.0], Parts::new(&[0, 1, 2]));
    ///     comm.reduce_scatter_v_into(&input, &mut output, parts, ReduceOp::Sum).unwrap();
    ///     output
    /// })?;
    /// assert_eq!(outputs, [vec![], vec![3.0], vec![6.0, 9.0]]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn reduce_scatter_v_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        parts: Parts<'_>,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let uneven = Uneven::ReduceScatter { parts, op };
        self.perform_uneven(&uneven, T::DATA_TYPE, apart(input, output))
    }

    /// Performs a call that moves parts of values of type `T`.
    fn move_parts<T: Pod>(
        &mut self,
        uneven: Uneven<'_>,
        buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let (data_type, each) = moved_as::<T>();
        let mut memory = Default::default();
        let uneven = if each == 1 { uneven } else { uneven.scaled(each, &mut memory) };
        self.perform_uneven(&uneven, data_type, buffers)
    }
}
