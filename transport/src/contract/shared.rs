//! Memory and signals that the ranks of one host share.

use std::io;

use ringfold_types::Rank;

use super::error::LinkError;
use super::transport::Transport;
use crate::sys::Window;

/// A transport with memory that all peers and this rank map. `readable` lends bytes where the
/// peer's own stores put them, so polling it again costs next to nothing.
///
/// A *window* is a buffer with one part per rank, which all ranks map. All ranks make the same
/// windows in the same order, one after the other. A *signal* goes to all peers at once and carries
/// a tag. A peer that has received a signal sees all earlier writes of this rank, also those to
/// windows.
pub trait SharedMemory: Transport {
    /// Begins a window in which every rank has `bytes` bytes, at least 1. Makes this rank's part
    /// with all its pages, and publishes it to the peers. Every rank of the host must call it.
    ///
    /// # Errors
    /// A peer has left or died.
    fn begin_window(&mut self, bytes: usize) -> Result<(), LinkError>;

    /// Returns the window that `begin_window` began, or `None` while some peer has not published
    /// its part. The inner error says why there is no window: some rank, perhaps this one, lacks
    /// memory for its part. The caller may begin other windows after that error.
    ///
    /// # Errors
    /// A peer has left or died, or published something else.
    fn finish_window(&mut self) -> Result<Option<io::Result<Window>>, LinkError>;

    /// Signals all peers under `tag`. The caller must ensure that no peer has more than
    /// `limits::SIGNALS_MAX` signals of this rank left to take.
    fn signal(&mut self, tag: u32);

    /// Returns the tag of the oldest signal of `peer` that this rank has not taken, if there is
    /// one.
    ///
    /// # Errors
    /// As `Transport::readable`.
    fn signalled(&self, peer: Rank) -> Result<Option<u32>, LinkError>;

    /// Takes the signal that `signalled` returned. The next `signalled` returns the one after it.
    fn take_signal(&mut self, peer: Rank);
}
