//! The handshake of a data connection: that of `crate::proof` between a child and its aggregator,
//! in messages with headers.
//!
//! ```text
//! child                                   aggregator
//!   Hello: child, group, epoch, nonce  ->
//!                            <-  Challenge: nonce, proof
//!   Proof                              ->
//!                            <-  Welcome, or Refused with the reason
//! ```
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
    pub fn answer(&self, challenge: &[u8]) -> Result<Vec<u8>, OffloadError> {
        let proof = self.key.answer(&self.hello, challenge).ok_or(OffloadError::Unproven)?;
        Ok(self.place.message(Kind::Proof, &proof))
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

    /// Whether the child's second message proves that it knows the group's key.
    #[must_use]
    pub fn accepts(&self, header: &Header, payload: &[u8]) -> bool {
        header.kind == Kind::Proof && self.challenged.accepts(&self.key, payload)
    }

    /// The message that ends the handshake.
    #[must_use]
    pub fn welcome(&self) -> Vec<u8> {
        self.place.message(Kind::Welcome, &[])
    }
}

/// Bytes of the payload of a message of the handshake; `None` for other kinds.
#[must_use]
pub const fn payload_bytes(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Hello => Some(HELLO_BYTES),
        Kind::Challenge => Some(CHALLENGE_BYTES),
        Kind::Proof => Some(PROOF_BYTES),
        Kind::Welcome => Some(0),
        _ => None,
    }
}

const _: () = assert!(PROOF_BYTES <= PAYLOAD_BYTES_MAX && HELLO_BYTES > HEADER_BYTES);

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
        let proof = child.answer(split(&aggregator.challenge()).1).unwrap();
        let (header, payload) = split(&proof);
        assert!(aggregator.accepts(&header, payload));
        assert_eq!(split(&aggregator.welcome()).0.kind, Kind::Welcome);
        // A recorded proof opens no other connection.
        let (first, hello) = split(&hello);
        let other = Acceptor::new([1; 32], &first, hello).unwrap();
        assert!(!other.accepts(&header, payload));
    }

    #[test]
    fn another_key_and_another_place_are_refused() {
        let child = Connector::new([1; 32], PLACE).unwrap();
        let hello = child.hello();
        let (header, payload) = split(&hello);
        let stranger = Acceptor::new([2; 32], &header, payload).unwrap();
        let challenge = stranger.challenge();
        assert!(matches!(child.answer(split(&challenge).1), Err(OffloadError::Unproven)));
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
