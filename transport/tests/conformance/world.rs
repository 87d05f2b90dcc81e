//! Tools of the test bodies: messages with recognisable bytes,
//! and waits that end in a panic instead of a hang.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use ringfold_transport::{Link, LinkError, Pages, Transport};
use ringfold_types::limits::FRAGMENT_ALIGN;
use ringfold_types::{Lane, Rank};

/// Makes the connected endpoints of `ranks` ranks with `lanes` lanes.
pub(crate) type Constructor = dyn Fn(usize, usize) -> Vec<Box<dyn Transport>>;

/// Long enough for a busy machine; only a broken transport exceeds it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn link(peer: usize, lane: usize) -> Link {
    Link { peer: Rank::at(peer), lane: Lane(u8::try_from(lane).unwrap()) }
}

/// Two connected endpoints.
pub(crate) fn pair(make: &Constructor, lanes: usize) -> (Box<dyn Transport>, Box<dyn Transport>) {
    let mut ends = make(2, lanes);
    let second = ends.pop().unwrap();
    (ends.pop().unwrap(), second)
}

/// Bytes of message `tag`, different for neighbouring tags and offsets.
pub(crate) fn message(tag: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte_at(tag, at)).collect()
}

pub(crate) fn byte_at(tag: u32, at: usize) -> u8 {
    let mixed =
        (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(tag).wrapping_mul(0xd1b5);
    mixed.wrapping_mul(0xff51_afd7_ed55_8ccd).to_le_bytes()[7]
}

/// Whether `bytes` are those of message `tag` from `offset` on.
pub(crate) fn is_message(tag: u32, offset: usize, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, byte)| *byte == byte_at(tag, offset + at))
}

/// Calls `step` until it returns something; panics with `what` after too long a time.
pub(crate) fn until<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = step() {
            return value;
        }
        assert!(start.elapsed() < TIMEOUT, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// An outgoing message, which the transport accepts piece by piece.
pub(crate) struct Outgoing {
    pub(crate) link: Link,
    pub(crate) tag: u32,
    pub(crate) bytes: Memory,
    pub(crate) accepted: usize,
}

/// The memory of a message.
pub(crate) enum Memory {
    Own(Vec<u8>),
    /// Pages of the transport, and the length of the message.
    Registered(Pages, usize),
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Registered(pages, len) => pages.front(*len),
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Registered(pages, len) => pages.front_mut(*len),
        }
    }
}

impl Memory {
    /// Zeroed memory, in pages if the transport makes some.
    fn registered(of: &mut dyn Transport, len: usize) -> Self {
        let Some(of) = of.registered_memory() else { return Self::Own(vec![0; len]) };
        let bytes = Self::Registered(of.pages(len).unwrap(), len);
        assert!(bytes.iter().all(|byte| *byte == 0), "pages that are not zero");
        bytes
    }
}

impl Outgoing {
    pub(crate) fn new(link: Link, tag: u32, len: usize) -> Self {
        Self { link, tag, bytes: Memory::Own(message(tag, len)), accepted: 0 }
    }

    /// A message in pages, if the transport makes some.
    pub(crate) fn registered(from: &mut dyn Transport, link: Link, tag: u32, len: usize) -> Self {
        let mut bytes = Memory::registered(from, len);
        bytes.copy_from_slice(&message(tag, len));
        Self { link, tag, bytes, accepted: 0 }
    }

    /// Sends the rest once; returns how many bytes were accepted.
    pub(crate) fn offer(&mut self, from: &mut dyn Transport) -> Result<usize, LinkError> {
        let rest = &mut self.bytes[self.accepted..];
        let accepted = from.send(self.link, self.tag, rest)?;
        assert!(accepted <= rest.len(), "accepted {accepted} of {}", rest.len());
        assert!(
            accepted == rest.len() || accepted.is_multiple_of(FRAGMENT_ALIGN),
            "accepted {accepted} of {}",
            rest.len()
        );
        // Accepted bytes may be overwritten at once.
        rest[..accepted].fill(0xa5);
        self.accepted += accepted;
        Ok(accepted)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.accepted == self.bytes.len()
    }
}

/// An expected message, checked piece by piece.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    pub(crate) link: Link,
    pub(crate) tag: u32,
    pub(crate) len: usize,
    pub(crate) arrived: usize,
}

impl Incoming {
    pub(crate) fn new(link: Link, tag: u32, len: usize) -> Self {
        Self { link, tag, len, arrived: 0 }
    }

    /// Checks the readable bytes, and consumes as many of them as `choose` says, given their
    /// number. Returns the number of consumed bytes.
    pub(crate) fn take(
        &mut self,
        at: &mut dyn Transport,
        choose: impl FnOnce(usize) -> usize,
    ) -> Result<usize, LinkError> {
        let Some(fragment) = at.readable(self.link)? else { return Ok(0) };
        let lent = fragment.bytes.len();
        let rest = self.len - self.arrived;
        assert_eq!(fragment.tag, self.tag, "tag, {} bytes into a message", self.arrived);
        assert!(lent > 0, "an empty fragment");
        assert!(lent <= rest, "a fragment of {lent} bytes crosses the message's end at {rest}");
        let end = self.arrived + lent;
        assert!(
            lent == rest || end.is_multiple_of(FRAGMENT_ALIGN),
            "a fragment ends {end} bytes into a message of {}",
            self.len
        );
        assert!(is_message(self.tag, self.arrived, fragment.bytes), "content of {}", self.tag);
        let bytes = choose(lent);
        at.consume(self.link, bytes);
        self.arrived += bytes;
        Ok(bytes)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.arrived == self.len
    }
}

/// An expected message, received into memory of its own.
pub(crate) struct Landing {
    link: Link,
    tag: u32,
    pub(crate) bytes: Memory,
    pub(crate) arrived: usize,
}

impl Landing {
    /// A message in pages, if the transport makes some.
    pub(crate) fn registered(to: &mut dyn Transport, link: Link, tag: u32, len: usize) -> Self {
        Self { link, tag, bytes: Memory::registered(to, len), arrived: 0 }
    }

    /// Receives once, into the bytes before `end`.
    pub(crate) fn take(&mut self, at: &mut dyn Transport, end: usize) -> Result<(), LinkError> {
        let end = end.min(self.bytes.len());
        let rest = &mut self.bytes[self.arrived..end];
        if let Some(received) = at.recv(self.link, self.tag, rest)? {
            assert_eq!(received.tag, self.tag, "tag, {} bytes into a message", self.arrived);
            self.arrived += received.bytes;
        }
        Ok(())
    }

    pub(crate) fn is_done(&self) -> bool {
        self.arrived == self.bytes.len()
    }
}

/// Sends whole messages from `a` and receives them at `b`, in one thread.
pub(crate) fn carry(
    a: &mut dyn Transport,
    b: &mut dyn Transport,
    out: &mut Outgoing,
    into: &mut Incoming,
) {
    until("a message carried from end to end", || {
        a.poll().unwrap();
        b.poll().unwrap();
        if !out.is_done() {
            out.offer(a).unwrap();
        }
        into.take(b, |lent| lent).unwrap();
        (out.is_done() && into.is_done()).then_some(())
    });
}
