//! Memory and signals of the ranks of one host.

use std::io;

use ringfold_types::Rank;

use super::error::LinkError;
use super::transport::Transport;
use crate::sys::Window;

/// A transport whose peers all map memory that this rank maps too. `readable` lends bytes where the
/// peer's own stores brought them, so to look again costs next to nothing.
///
/// A *window* is a buffer of which every rank has a part, mapped by all. All ranks make the same
/// windows, in the same order, one after the other. A *signal* goes to all peers at once, under a
/// tag: a peer that has seen it sees all that this rank did before, in windows too.
pub trait SharedMemory: Transport {
    /// Begins a window in which every rank has `bytes` bytes, at least 1. Makes this rank's part,
    /// with all its pages, and hands it to the peers.
    ///
    /// # Errors
    /// A peer is gone.
    fn begin_window(&mut self, bytes: usize) -> Result<(), LinkError>;

    /// Returns the window that was begun, once all peers have handed over their parts, and `None`
    /// until then. The inner error says why there is no window: some rank, maybe this one, lacks
    /// memory for it. Other windows can still be made after that.
    ///
    /// # Errors
    /// A peer is gone, or handed over something else.
    fn finish_window(&mut self) -> Result<Option<io::Result<Window>>, LinkError>;

    /// Signals all peers under `tag`. The caller makes sure that no peer has more than
    /// `limits::TELLS_MAX` of its signals left to take.
    fn signal(&mut self, tag: u32);

    /// Returns the tag of the oldest signal of `peer` that was not taken, if there is one.
    ///
    /// # Errors
    /// As `Transport::readable`.
    fn signalled(&self, peer: Rank) -> Result<Option<u32>, LinkError>;

    /// Takes the signal that `signalled` has returned: from now on it returns the next one.
    fn take_signal(&mut self, peer: Rank);
}
