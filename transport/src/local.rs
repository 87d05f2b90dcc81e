//! Transport between threads of one process: for tests, examples and doctests.
//!
//! The simplest way to keep the contract: every rank has one locked inbox, into which peers copy
//! bytes. It is simple rather than fast.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use ringfold_types::limits::{FRAGMENT_ALIGN, FRAME_BYTES_MAX, LANES_MAX};
use ringfold_types::{Lane, Rank};

use crate::contract::{Fragment, Link, LinkError, LinkFault, Transport};
use crate::sys::Waker;

/// Bytes that a link accepts before the peer consumes any.
const WINDOW_BYTES: usize = 256 * 1024;

/// One rank's endpoint in a mesh of threads.
#[derive(Debug)]
pub struct Local {
    mesh: Arc<Mesh>,
    rank: Rank,
    /// By link: the messages that have arrived.
    arrived: Vec<VecDeque<Arrived>>,
    /// By peer: whether it has left and everything that it sent is in `arrived`.
    gone: Vec<bool>,
}

#[derive(Debug)]
struct Mesh {
    inboxes: Vec<Inbox>,
    /// Bytes accepted and not consumed, by receiver and link.
    under_way: Vec<AtomicUsize>,
}

#[derive(Debug)]
struct Inbox {
    parcels: Mutex<Vec<Parcel>>,
    waiting: AtomicUsize,
    owner_gone: AtomicBool,
    armed: AtomicBool,
    waker: Waker,
}

#[derive(Debug)]
struct Arrived {
    tag: u32,
    bytes: Vec<u8>,
    consumed: usize,
}

#[derive(Debug)]
struct Parcel {
    from: Rank,
    lane: Lane,
    tag: u32,
    bytes: Vec<u8>,
}

impl Local {
    /// Makes the endpoints of a mesh of `size` ranks, in rank order. The caller gives one to each
    /// thread.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn mesh(size: usize) -> io::Result<Vec<Self>> {
        let inbox = |_| {
            Ok(Inbox {
                parcels: Mutex::new(Vec::new()),
                waiting: AtomicUsize::new(0),
                owner_gone: AtomicBool::new(false),
                armed: AtomicBool::new(false),
                waker: Waker::new()?,
            })
        };
        let inboxes = (0..size).map(inbox).collect::<io::Result<_>>()?;
        let under_way = (0..size * size * LANES_MAX).map(|_| AtomicUsize::new(0)).collect();
        let mesh = Arc::new(Mesh { inboxes, under_way });
        let end = |rank| Self {
            mesh: Arc::clone(&mesh),
            rank: Rank::at(rank),
            arrived: (0..size * LANES_MAX).map(|_| VecDeque::new()).collect(),
            gone: vec![false; size],
        };
        Ok((0..size).map(end).collect())
    }

    fn closed(&self, link: Link) -> LinkError {
        LinkError { link, transport: self.name(), fault: LinkFault::Closed }
    }
}

fn slot(link: Link) -> usize {
    link.peer.index() * LANES_MAX + link.lane.index()
}

impl Mesh {
    /// Bytes accepted from `from` for `to` and not consumed.
    fn under_way(&self, from: Rank, to: Rank, lane: Lane) -> &AtomicUsize {
        let link = slot(Link { peer: from, lane });
        &self.under_way[to.index() * self.inboxes.len() * LANES_MAX + link]
    }

    /// Wakes `rank` if it is armed.
    fn wake(&self, rank: Rank) {
        // Pairs with the fence in `arm`: either this rank sees the flag, or `rank` sees this rank's
        // earlier stores.
        fence(Ordering::SeqCst);
        let inbox = &self.inboxes[rank.index()];
        if inbox.armed.load(Ordering::Relaxed) {
            inbox.waker.wake();
        }
    }
}

impl Transport for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        let Link { peer, lane } = link;
        let inbox = &self.mesh.inboxes[peer.index()];
        if inbox.owner_gone.load(Ordering::Acquire) {
            return Err(self.closed(link));
        }
        let under_way = self.mesh.under_way(self.rank, peer, lane);
        let room = WINDOW_BYTES.saturating_sub(under_way.load(Ordering::Acquire));
        let accepted = match bytes.len().min(room).min(FRAME_BYTES_MAX) {
            all if all == bytes.len() => all,
            part => part - part % FRAGMENT_ALIGN,
        };
        if accepted == 0 {
            return Ok(0);
        }
        under_way.fetch_add(accepted, Ordering::AcqRel);
        let bytes = bytes[..accepted].to_vec();
        let mut parcels = inbox.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        parcels.push(Parcel { from: self.rank, lane, tag, bytes });
        inbox.waiting.store(parcels.len(), Ordering::Release);
        drop(parcels);
        self.mesh.wake(peer);
        Ok(accepted)
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        match self.arrived[slot(link)].front() {
            Some(Arrived { tag, bytes, consumed }) => {
                Ok(Some(Fragment { tag: *tag, bytes: &bytes[*consumed..] }))
            }
            None if self.gone[link.peer.index()] => Err(self.closed(link)),
            None => Ok(None),
        }
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let queue = &mut self.arrived[slot(link)];
        let front = queue.front_mut().expect("something was readable");
        front.consumed += bytes;
        assert!(front.consumed <= front.bytes.len(), "consumed more than was readable");
        if front.consumed == front.bytes.len() {
            queue.pop_front();
        }
        let under_way = self.mesh.under_way(link.peer, self.rank, link.lane);
        under_way.fetch_sub(bytes, Ordering::AcqRel);
        self.mesh.wake(link.peer);
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        let inbox = &self.mesh.inboxes[self.rank.index()];
        let mut moved = false;
        // Read before the inbox is emptied: the inbox then holds everything that a peer sent before
        // it left.
        let left: Vec<usize> = (0..self.gone.len())
            .filter(|peer| {
                !self.gone[*peer] && self.mesh.inboxes[*peer].owner_gone.load(Ordering::Acquire)
            })
            .collect();
        if inbox.waiting.load(Ordering::Acquire) > 0 {
            let mut parcels = inbox.parcels.lock().unwrap_or_else(PoisonError::into_inner);
            for Parcel { from, lane, tag, bytes } in parcels.drain(..) {
                let arrived = Arrived { tag, bytes, consumed: 0 };
                self.arrived[slot(Link { peer: from, lane })].push_back(arrived);
            }
            inbox.waiting.store(0, Ordering::Release);
            moved = true;
        }
        for peer in left {
            self.gone[peer] = true;
            moved = true;
        }
        Ok(moved)
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.mesh.inboxes[self.rank.index()].waker.as_fd()
    }

    fn arm(&mut self) {
        self.mesh.inboxes[self.rank.index()].armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn disarm(&mut self) {
        let inbox = &self.mesh.inboxes[self.rank.index()];
        inbox.armed.store(false, Ordering::Relaxed);
        inbox.waker.clear();
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.mesh.inboxes[self.rank.index()].owner_gone.store(true, Ordering::Release);
        for peer in 0..self.mesh.inboxes.len() {
            self.mesh.wake(Rank::at(peer));
        }
    }
}
