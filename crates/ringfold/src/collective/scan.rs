//! Prefix reductions, as methods of [`Communicator`].

use ringfold_reduce::Element;
use ringfold_types::{Collective, Rank, ReduceOp};

use super::{apart, in_place, reduction};
use crate::communicator::Communicator;
use crate::error::Error;

/// Prefix reductions. All ranks must call the same one, with the same lengths, types and
/// operations. Each combines inputs in rank order, so every run gives the same bits. An average is
/// that of the inputs which a rank combines. Each blocks until this rank's part is done.
impl Communicator {
    /// Replaces the buffer of each rank r by the reduction of the buffers of ranks 0 to r.
    ///
    /// # Errors
    /// [`Error::Argument`] if `op` does not fit the type; [`Error::Failed`] if the job has failed;
    /// [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut count = [1_u32];
    /// comm.scan(&mut count, ReduceOp::Sum)?;
    /// assert_eq!(count, [comm.rank().0 + 1]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn scan<T: Element>(&mut self, buffer: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = reduction::<T>(self.wire(), Collective::Scan, buffer.len(), op, Rank(0));
        self.perform(&call, in_place(buffer))
    }

    /// Writes the reduction of the inputs of ranks 0 to r to the `output` of each rank r, as
    /// [`scan`](Self::scan) does in place.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths differ or `op` does not fit the type; [`Error::Failed`]
    /// if the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{ReduceOp, local};
    ///
    /// let sums = local::run(3, |comm| {
    ///     let mut sum = [0];
    ///     comm.scan_into(&[comm.rank().0 + 5], &mut sum, ReduceOp::Sum).unwrap();
    ///     sum[0]
    /// })?;
    /// assert_eq!(sums, [5, 11, 18]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn scan_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = reduction::<T>(self.wire(), Collective::Scan, input.len(), op, Rank(0));
        self.perform(&call, apart(input, output))
    }

    /// Replaces the buffer of each rank r by the reduction of the buffers of the ranks before it.
    /// The buffer of rank 0 stays as it was, as in MPI.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    ///
    /// ```
    /// use ringfold::{ReduceOp, local};
    ///
    /// let begins = local::run(3, |comm| {
    ///     let mut len = [comm.rank().0 + 5];
    ///     comm.exscan(&mut len, ReduceOp::Sum).unwrap();
    ///     len[0]
    /// })?;
    /// assert_eq!(begins[1..], [5, 11]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn exscan<T: Element>(&mut self, buffer: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = reduction::<T>(self.wire(), Collective::Exscan, buffer.len(), op, Rank(0));
        self.perform(&call, in_place(buffer))
    }

    /// Writes the reduction of the inputs of the ranks before it to the `output` of each rank. The
    /// output of rank 0 stays as it was, as in MPI.
    ///
    /// # Errors
    /// As for [`scan_into`](Self::scan_into).
    ///
    /// ```
    /// use ringfold::{ReduceOp, local};
    ///
    /// let begins = local::run(3, |comm| {
    ///     let mut begin = [0];
    ///     comm.exscan_into(&[comm.rank().0 + 5], &mut begin, ReduceOp::Sum).unwrap();
    ///     begin[0]
    /// })?;
    /// assert_eq!(begins, [0, 5, 11]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn exscan_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = reduction::<T>(self.wire(), Collective::Exscan, input.len(), op, Rank(0));
        self.perform(&call, apart(input, output))
    }
}
