//! The collectives that move one block of equal length for each rank, as methods of
//! [`Communicator`].

use bytemuck::Pod;
use ringfold_types::{Collective, Rank};

use super::{apart, in_place, movement};
use crate::communicator::Communicator;
use crate::error::Error;

/// The collectives that move blocks. All ranks must call the same one, with the same lengths, types
/// and roots. Each blocks until this rank's part is done.
impl Communicator {
    /// Sends block r of `buffer` to every rank r, and replaces it by the block for this rank of the
    /// buffer of rank r. All blocks have the same length. The call copies `buffer` first.
    ///
    /// # Errors
    /// [`Error::Argument`] if the length is not a multiple of the number of ranks;
    /// [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::local;
    ///
    /// let buffers = local::run(2, |comm| {
    ///     let mut buffer = [10 * comm.rank().0, 10 * comm.rank().0 + 1];
    ///     comm.all_to_all(&mut buffer).unwrap();
    ///     buffer
    /// })?;
    /// assert_eq!(buffers, [[0, 10], [1, 11]]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn all_to_all<T: Pod>(&mut self, buffer: &mut [T]) -> Result<(), Error> {
        let count = self.block_len(Collective::AllToAll, buffer.len())?;
        let call = movement::<T>(Collective::AllToAll, count, Rank(0));
        self.perform(&call, in_place(buffer))
    }

    /// Sends block r of `input` to every rank r, and writes the block of rank r for this rank to
    /// block r of `output`. Both buffers have the same length.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths do not fit; [`Error::Failed`] if the job has failed;
    /// [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::Communicator;
    ///
    /// let mut comm = Communicator::init()?;
    /// let (input, mut output) = (vec![comm.rank().0; comm.size()], vec![9; comm.size()]);
    /// comm.all_to_all_into(&input, &mut output)?;
    /// assert!((0..).zip(&output).all(|(rank, got)| rank == *got));
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn all_to_all_into<T: Pod>(&mut self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let count = self.block_len(Collective::AllToAll, input.len())?;
        let call = movement::<T>(Collective::AllToAll, count, Rank(0));
        self.perform(&call, apart(input, output))
    }

    /// Gathers the blocks of all ranks in the buffer of `root`, in rank order. On the root,
    /// `buffer` has one block for each rank, and block `root` is filled in. On other ranks it is
    /// their block, and stays as it was.
    ///
    /// # Errors
    /// [`Error::Argument`] if `root` is not a rank, or the root's length is not a multiple of the
    /// number of ranks; [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child
    /// process.
    ///
    /// ```
    /// use ringfold::{Rank, local};
    ///
    /// let buffers = local::run(3, |comm| {
    ///     let mut buffer = vec![comm.rank().0; if comm.rank() == Rank(1) { 3 } else { 1 }];
    ///     comm.gather(&mut buffer, Rank(1)).unwrap();
    ///     buffer
    /// })?;
    /// assert_eq!(buffers, [vec![0], vec![0, 1, 2], vec![2]]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn gather<T: Pod>(&mut self, buffer: &mut [T], root: Rank) -> Result<(), Error> {
        let count = self.count_at(Collective::Gather, buffer.len(), root)?;
        let call = movement::<T>(Collective::Gather, count, root);
        self.perform(&call, in_place(buffer))
    }

    /// Writes every rank's `input` to the `output` of `root`, one after the other in rank order.
    /// The call does not write the other ranks' `output`, which may be empty.
    ///
    /// # Errors
    /// [`Error::Argument`] if `root` is not a rank, or the lengths do not fit; [`Error::Failed`] if
    /// the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, Rank};
    ///
    /// let mut comm = Communicator::init()?;
    /// let is_root = comm.rank() == Rank(0);
    /// let mut ranks = vec![0; if is_root { comm.size() } else { 0 }];
    /// comm.gather_into(&[comm.rank().0], &mut ranks, Rank(0))?;
    /// assert!((0..).zip(&ranks).all(|(rank, got)| rank == *got));
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn gather_into<T: Pod>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: Rank,
    ) -> Result<(), Error> {
        let call = movement::<T>(Collective::Gather, input.len(), root);
        self.perform(&call, apart(input, output))
    }

    /// Sends block r of the buffer of `root` to the buffer of rank r. On the root, `buffer` has one
    /// block for each rank, and stays as it was. On other ranks it is their block.
    ///
    /// # Errors
    /// As for [`gather`](Self::gather).
    ///
    /// ```
    /// use ringfold::{Rank, local};
    ///
    /// let buffers = local::run(3, |comm| {
    ///     let mut buffer = if comm.rank() == Rank(1) { vec![5, 6, 7] } else { vec![0] };
    ///     comm.scatter(&mut buffer, Rank(1)).unwrap();
    ///     buffer
    /// })?;
    /// assert_eq!(buffers, [vec![5], vec![5, 6, 7], vec![7]]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn scatter<T: Pod>(&mut self, buffer: &mut [T], root: Rank) -> Result<(), Error> {
        let count = self.count_at(Collective::Scatter, buffer.len(), root)?;
        let call = movement::<T>(Collective::Scatter, count, root);
        self.perform(&call, in_place(buffer))
    }

    /// Writes block r of the `input` of `root` to the `output` of rank r. The call does not read
    /// the other ranks' `input`, which may be empty.
    ///
    /// # Errors
    /// As for [`gather_into`](Self::gather_into).
    ///
    /// ```
    /// use ringfold::{Communicator, Rank};
    ///
    /// let mut comm = Communicator::init()?;
    /// let input: Vec<u32> = (0..comm.size() as u32).collect();
    /// let mut output = [9];
    /// comm.scatter_into(&input, &mut output, Rank(0))?;
    /// assert_eq!(output, [comm.rank().0]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn scatter_into<T: Pod>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: Rank,
    ) -> Result<(), Error> {
        let call = movement::<T>(Collective::Scatter, output.len(), root);
        self.perform(&call, apart(input, output))
    }

    /// Elements of a block, if the root's buffer has one for each rank and others' buffers one.
    fn count_at(&self, collective: Collective, len: usize, root: Rank) -> Result<usize, Error> {
        if self.rank() == root { self.block_len(collective, len) } else { Ok(len) }
    }
}
