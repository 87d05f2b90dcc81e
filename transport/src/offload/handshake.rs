//! The handshake of a data connection: that of `crate::proof` between a child and its aggregator,
//! in messages with headers.
//!
//! ```text
//! child                                   aggregator
//!   Hello: child, group, epoch, nonce  ->
//!                            <-  Challenge: nonce, proof
//!   Proof, carrier                     ->
//!                            <-  Welcome: port, or Refused with the reason
//! ```
//!
//! The byte after the proof says whether the child has a carrier. The port is that of the
//! aggregator's `Links` if both ends have a carrier, and 0 if the connection itself carries the
//! chunks. With a port the child says `Welcome` over its link, and the aggregator answers so. Then
//! the link has replaced the connection.
//!
//! The key is the group's. It derives from the job's secret, and member 0 gives it to the
//! aggregator. So an aggregator knows nothing by which it could pose as a rank.

use std::io;

use ringfold_types::Rank;

use super::error::OffloadError;
use super::header::{HEADER_BYTES, Header, Kind, VERSION};
use crate::proof::{
    CHALLENGE_BYTES, Challenged, HELLO_BYTES, Hello, JobKey, PROOF_BYTES, Protocol,
};

/// Bytes of the longest payload that a child sends before it is welcome.
pub const PAYLOAD_BYTES_MAX: usize = HELLO_BYTES;
/// Bytes of a child's proof, and of the byte about its carrier.
const ANSWER_BYTES: usize = PROOF_BYTES + 1;
/// Bytes of the port in a welcome.
const PORT_BYTES: usize = 2;

const PROTOCOL: Protocol = Protocol { magic: *b"RFof", version: VERSION as u32 };
/// The aggregator in a hello. Children are numbered below it.
const AGGREGATOR: Rank = Rank(u32::MAX);

/// The place that a child claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The group's number at the aggregator.
    pub group: u32,
    /// The epoch.
    pub epoch: u32,
    /// The child's number at the aggregator.
    pub child: u8,
}

impl Place {
    /// Encodes the message that ends the handshake, with the port of the aggregator's links.
    #[must_use]
    pub fn welcome(&self, port: u16) -> Vec<u8> {
        self.message(Kind::Welcome, &port.to_le_bytes())
    }

    /// Encodes a message about this place, with its payload.
    #[must_use]
    pub fn message(&self, kind: Kind, payload: &[u8]) -> Vec<u8> {
        let bytes = u32::try_from(payload.len()).expect("a short payload");
        let header = Header::plain(kind, self.group, self.epoch, bytes);
        let header = Header { child: self.child, ..header };
        [&header.encode()[..], payload].concat()
    }
}

/// The child's half of a handshake.
#[derive(Debug)]
pub struct Connector {
    key: JobKey,
    place: Place,
    hello: Hello,
}

impl Connector {
    /// Begins a handshake.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(key: [u8; 32], place: Place) -> io::Result<Self> {
        let from = Rank(place.child.into());
        let hello = Hello::new(PROTOCOL, from, AGGREGATOR, [place.group, place.epoch])?;
        Ok(Self { key: JobKey::new(key), place, hello })
    }

    /// The first message.
    #[must_use]
    pub fn hello(&self) -> Vec<u8> {
        self.place.message(Kind::Hello, &self.hello.encode())
    }

    /// The answer to the payload of the aggregator's challenge.
    ///
    /// # Errors
    /// The aggregator does not know the group's key.
    pub fn answer(&self, challenge: &[u8], has_carrier: bool) -> Result<Vec<u8>, OffloadError> {
        let proof = self.key.answer(&self.hello, challenge).ok_or(OffloadError::Unproven)?;
        Ok(self.place.message(Kind::Proof, &[&proof[..], &[u8::from(has_carrier)]].concat()))
    }
}

/// The aggregator's half of a handshake.
#[derive(Debug)]
pub struct Acceptor {
    key: JobKey,
    place: Place,
    challenged: Challenged,
}

impl Acceptor {
    /// Reads the child's first message: the place that it claims and the payload.
    ///
    /// # Errors
    /// The message is no hello, or the system gives no random bytes.
    pub fn new(key: [u8; 32], header: &Header, payload: &[u8]) -> Result<Self, OffloadError> {
        let wrong = || OffloadError::Protocol("a first message that is no hello");
        let hello = Hello::decode(PROTOCOL, payload).ok_or_else(wrong)?;
        let place = Place { group: header.group, epoch: header.epoch, child: header.child };
        let told = (hello.from, hello.to, hello.about);
        let is_true = told == (Rank(place.child.into()), AGGREGATOR, [place.group, place.epoch]);
        if header.kind != Kind::Hello || !is_true {
            return Err(wrong());
        }
        Ok(Self { key: JobKey::new(key), place, challenged: Challenged::new(hello)? })
    }

    /// The place that the child claims, which is not authenticated before `accepts`.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// The message with the challenge.
    #[must_use]
    pub fn challenge(&self) -> Vec<u8> {
        self.place.message(Kind::Challenge, &self.challenged.challenge(&self.key))
    }

    /// Whether the child's second message proves that it knows the group's key. Returns whether the
    /// child has a carrier, or `None` if it proves nothing.
    #[must_use]
    pub fn accept(&self, header: &Header, payload: &[u8]) -> Option<bool> {
        let (has_carrier @ (0 | 1), proof) = payload.split_last()? else { return None };
        let is_proven = header.kind == Kind::Proof && self.challenged.accepts(&self.key, proof);
        is_proven.then_some(*has_carrier == 1)
    }
}

/// Bytes of the payload of a message of the handshake; `None` for other kinds.
#[must_use]
pub const fn payload_bytes(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Hello => Some(HELLO_BYTES),
        Kind::Challenge => Some(CHALLENGE_BYTES),
        Kind::Proof => Some(ANSWER_BYTES),
        Kind::Welcome => Some(PORT_BYTES),
        _ => None,
    }
}

/// Returns the port of a welcome's payload; `None` if the connection carries the chunks.
#[must_use]
pub fn port(payload: &[u8]) -> Option<u16> {
    payload.first_chunk().map(|port| u16::from_le_bytes(*port)).filter(|port| *port != 0)
}

const _: () = assert!(ANSWER_BYTES <= PAYLOAD_BYTES_MAX && HELLO_BYTES > HEADER_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { group: 7, epoch: 2, child: 3 };

    fn split(message: &[u8]) -> (Header, &[u8]) {
        let (head, payload) = message.split_first_chunk().unwrap();
        let header = Header::decode(head).unwrap();
        assert_eq!(header.bytes as usize, payload.len());
        assert_eq!(payload_bytes(header.kind), Some(payload.len()));
        (header, payload)
    }

    #[test]
    fn both_ends_prove_that_they_know_the_key() {
        let child = Connector::new([1; 32], PLACE).unwrap();
        let hello = child.hello();
        let (header, payload) = split(&hello);
        let aggregator = Acceptor::new([1; 32], &header, payload).unwrap();
        assert_eq!(aggregator.place(), PLACE);
        for has_carrier in [false, true] {
            let proof = child.answer(split(&aggregator.challenge()).1, has_carrier).unwrap();
            let (header, payload) = split(&proof);
            assert_eq!(aggregator.accept(&header, payload), Some(has_carrier));
        }
        for (given, told) in [(0, None), (7411, Some(7411))] {
            let welcome = PLACE.welcome(given);
            let (header, payload) = split(&welcome);
            assert_eq!((header.kind, port(payload)), (Kind::Welcome, told));
        }
        // A recorded proof opens no other connection.
        let proof = child.answer(split(&aggregator.challenge()).1, false).unwrap();
        let (proof, payload) = split(&proof);
        let (first, hello) = split(&hello);
        let other = Acceptor::new([1; 32], &first, hello).unwrap();
        assert_eq!(other.accept(&proof, payload), None);
        assert_eq!(other.accept(&proof, &[]), None);
    }

    #[test]
    fn another_key_and_another_place_are_refused() {
        let child = Connector::new([1; 32], PLACE).unwrap();
        let hello = child.hello();
        let (header, payload) = split(&hello);
        let stranger = Acceptor::new([2; 32], &header, payload).unwrap();
        let challenge = stranger.challenge();
        assert!(matches!(child.answer(split(&challenge).1, false), Err(OffloadError::Unproven)));
        for other in [
            Header { child: 4, ..header },
            Header { group: 8, ..header },
            Header { epoch: 3, ..header },
            Header { kind: Kind::Proof, ..header },
        ] {
            assert!(Acceptor::new([1; 32], &other, payload).is_err(), "{other:?}");
        }
        assert!(Acceptor::new([1; 32], &header, &payload[1..]).is_err());
    }
}
