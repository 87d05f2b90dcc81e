//! The handshake by which two ranks prove to each other that they belong to the job.
//!
//! ```text
//! connector                                      acceptor
//!   hello: magic, version, from, to, about, nonce ->
//!                      <- challenge: nonce, HMAC(link key, "acceptor" hello nonce)
//!   proof: HMAC(link key, "connector" hello nonce) ->
//! ```
//!
//! The link key is HMAC(job key, purpose from to), so a proof for one pair of ranks proves nothing
//! to another pair. Each proof covers the whole hello: the protocol, the ranks, the subject. It
//! also covers the nonces of both ends, so nobody can use it a second time. HMAC is over SHA-256,
//! and comparison takes constant time. The proofs neither cover nor encrypt the bytes that follow
//! them.

use std::io;

use hmac::{Hmac, KeyInit as _, Mac as _};
use ringfold_types::Rank;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::sys::random;

/// Bytes of an encoded `Hello`.
pub(crate) const HELLO_BYTES: usize = 24 + NONCE_BYTES;
/// Bytes of a challenge: a nonce and a proof.
pub(crate) const CHALLENGE_BYTES: usize = NONCE_BYTES + PROOF_BYTES;
/// Bytes of a proof.
pub(crate) const PROOF_BYTES: usize = 32;
/// Bytes of a number that is used once.
const NONCE_BYTES: usize = 32;

const PURPOSE: &[u8] = b"ringfold link 1";

/// The protocol that two ranks speak once they have proven themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocol {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u32,
}

/// The first message on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) protocol: Protocol,
    /// The rank that connects.
    pub(crate) from: Rank,
    /// The rank that should accept.
    pub(crate) to: Rank,
    /// The subject of the connection; its meaning belongs to the protocol.
    pub(crate) about: [u32; 2],
    nonce: [u8; NONCE_BYTES],
}

impl Hello {
    /// Makes a hello of this rank, with a new nonce.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(crate) fn new(
        protocol: Protocol,
        from: Rank,
        to: Rank,
        about: [u32; 2],
    ) -> io::Result<Self> {
        Ok(Self { protocol, from, to, about, nonce: random()? })
    }

    /// Encodes the hello for the wire.
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let Self { protocol, from, to, about, nonce } = self;
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&protocol.magic);
        let words = [protocol.version, from.0, to.0, about[0], about[1]];
        for (word, into) in words.iter().zip(bytes[4..24].chunks_exact_mut(4)) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..].copy_from_slice(nonce);
        bytes
    }

    /// Decodes the hello of an unauthenticated peer; `None` if it does not fit the protocol.
    pub(crate) fn decode(protocol: Protocol, bytes: &[u8]) -> Option<Self> {
        let (head, nonce) = bytes.split_at_checked(24)?;
        let (magic, words) = head.split_first_chunk()?;
        let word = |at: usize| {
            u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
        };
        let said = Protocol { magic: *magic, version: word(0) };
        (said == protocol).then_some(Self {
            protocol,
            from: Rank(word(4)),
            to: Rank(word(8)),
            about: [word(12), word(16)],
            nonce: nonce.try_into().ok()?,
        })
    }
}

/// The end that a proof belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Connector,
    Acceptor,
}

/// A connector that the acceptor has challenged.
#[derive(Debug)]
pub(crate) struct Challenged {
    hello: Hello,
    nonce: [u8; NONCE_BYTES],
}

impl Challenged {
    /// Challenges the connector that said `hello`.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(crate) fn new(hello: Hello) -> io::Result<Self> {
        Ok(Self { hello, nonce: random()? })
    }

    /// The hello, which is not authenticated before `accepts`.
    pub(crate) const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Encodes the challenge for the wire, with the acceptor's proof.
    pub(crate) fn challenge(&self, key: &JobKey) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..NONCE_BYTES].copy_from_slice(&self.nonce);
        let proof = key.mac(Side::Acceptor, &self.hello, &self.nonce).finalize().into_bytes();
        bytes[NONCE_BYTES..].copy_from_slice(&proof);
        bytes
    }

    /// Whether `proof` proves that the connector knows the key.
    pub(crate) fn accepts(&self, key: &JobKey, proof: &[u8]) -> bool {
        key.mac(Side::Connector, &self.hello, &self.nonce).verify_slice(proof).is_ok()
    }
}

/// The secret that the ranks of a job share, wiped from memory when dropped.
pub(crate) struct JobKey(Zeroizing<[u8; 32]>);

impl JobKey {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self(Zeroizing::new(key))
    }

    /// Returns the connector's proof for its `hello` and the acceptor's `challenge`. Returns `None`
    /// if the acceptor has not proven that it knows the key.
    pub(crate) fn answer(&self, hello: &Hello, challenge: &[u8]) -> Option<[u8; PROOF_BYTES]> {
        let (nonce, proof) = challenge.split_first_chunk()?;
        self.mac(Side::Acceptor, hello, nonce).verify_slice(proof).ok()?;
        Some(self.mac(Side::Connector, hello, nonce).finalize().into_bytes().into())
    }

    fn mac(&self, side: Side, hello: &Hello, nonce: &[u8; NONCE_BYTES]) -> Hmac<Sha256> {
        let mut mac = self.keyed(PURPOSE, hello.from, hello.to);
        mac.update(match side {
            Side::Connector => b"connector",
            Side::Acceptor => b"acceptor ",
        });
        mac.update(&hello.encode());
        mac.update(nonce);
        mac
    }

    /// Begins a proof with a key for one purpose and one pair of ranks.
    pub(crate) fn keyed(&self, purpose: &[u8], from: Rank, to: Rank) -> Hmac<Sha256> {
        let mut link = keyed(self.0.as_slice());
        link.update(purpose);
        link.update(&from.0.to_le_bytes());
        link.update(&to.0.to_le_bytes());
        let link: Zeroizing<[u8; 32]> = Zeroizing::new(link.finalize().into_bytes().into());
        keyed(link.as_slice())
    }
}

impl std::fmt::Debug for JobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobKey(..)")
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// Decodes `bytes` as the hello of any protocol, and encodes it again. For fuzzing.
#[doc(hidden)]
#[must_use]
pub fn decode_hello(bytes: &[u8]) -> Option<Vec<u8>> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let version = u32::from_le_bytes(*rest.first_chunk()?);
    let hello = Hello::decode(Protocol { magic: *magic, version }, bytes)?;
    Some(hello.encode().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: Protocol = Protocol { magic: *b"RFxx", version: 3 };

    fn hello() -> Hello {
        let (from, to) = (Rank(3), Rank(70_000));
        Hello { protocol: PROTOCOL, from, to, about: [7, 1 << 31], nonce: [9; NONCE_BYTES] }
    }

    /// The acceptor's half of a handshake that began with `hello`.
    fn challenged(hello: Hello) -> Challenged {
        Challenged { hello, nonce: [5; NONCE_BYTES] }
    }

    #[test]
    fn a_hello_travels_and_nothing_else_is_one() {
        let bytes = hello().encode();
        assert_eq!(Hello::decode(PROTOCOL, &bytes), Some(hello()));
        assert_eq!(decode_hello(&bytes).as_deref(), Some(&bytes[..]));
        for len in 0..bytes.len() {
            assert_eq!(Hello::decode(PROTOCOL, &bytes[..len]), None, "{len} bytes");
        }
        assert_eq!(Hello::decode(PROTOCOL, &[&bytes[..], &[0]].concat()), None, "too long");
        for at in 0..8 {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert_eq!(Hello::decode(PROTOCOL, &bytes), None, "magic or version, byte {at}");
        }
    }

    #[test]
    fn both_ends_prove_themselves() {
        let (key, acceptor) = (JobKey::new([1; 32]), challenged(hello()));
        let proof = key.answer(&hello(), &acceptor.challenge(&key)).expect("a true challenge");
        assert!(acceptor.accepts(&key, &proof));
    }

    #[test]
    fn every_hello_and_challenge_has_a_nonce_of_its_own() {
        let make = || Hello::new(PROTOCOL, Rank(0), Rank(1), [0; 2]).unwrap();
        assert_ne!(make(), make());
        let make = || Challenged::new(hello()).unwrap();
        assert_ne!(make().nonce, make().nonce);
    }

    /// Hellos that differ from `hello` in one field each.
    fn others() -> [Hello; 7] {
        let protocol = |magic, version| Protocol { magic, version };
        [
            Hello { from: Rank(2), ..hello() },
            Hello { to: Rank(2), ..hello() },
            Hello { about: [8, 1 << 31], ..hello() },
            Hello { about: [7, 0], ..hello() },
            Hello { nonce: [8; NONCE_BYTES], ..hello() },
            Hello { protocol: protocol(*b"RFxy", 3), ..hello() },
            Hello { protocol: protocol(*b"RFxx", 4), ..hello() },
        ]
    }

    #[test]
    fn a_proof_is_good_for_its_connection_only() {
        let (key, acceptor) = (JobKey::new([1; 32]), challenged(hello()));
        let proof = key.answer(&hello(), &acceptor.challenge(&key)).unwrap();
        let replayed = Challenged { nonce: [6; NONCE_BYTES], ..challenged(hello()) };
        assert!(!replayed.accepts(&key, &proof), "replayed");
        assert!(!acceptor.accepts(&key, &proof[..PROOF_BYTES - 1]), "truncated");
        assert!(!acceptor.accepts(&key, &acceptor.challenge(&key)[NONCE_BYTES..]), "reflected");
        assert!(!acceptor.accepts(&JobKey::new([2; 32]), &proof), "another job");
        let back = Hello { from: hello().to, to: hello().from, ..hello() };
        for other in others().into_iter().chain([back]) {
            assert!(!challenged(other).accepts(&key, &proof), "{other:?}");
        }
    }

    #[test]
    fn a_challenge_is_answered_only_if_it_is_true() {
        let (key, acceptor) = (JobKey::new([1; 32]), challenged(hello()));
        let challenge = acceptor.challenge(&key);
        assert_eq!(JobKey::new([2; 32]).answer(&hello(), &challenge), None, "another job");
        for other in others() {
            assert_eq!(key.answer(&other, &challenge), None, "{other:?}");
        }
        for at in 0..CHALLENGE_BYTES {
            let mut changed = challenge;
            changed[at] ^= 1;
            assert_eq!(key.answer(&hello(), &changed), None, "byte {at}");
            assert_eq!(key.answer(&hello(), &challenge[..at]), None, "{at} bytes");
        }
        // An acceptor that reflects the connector's own proof proves nothing.
        let proof = key.answer(&hello(), &challenge).unwrap();
        let reflected = [&challenge[..NONCE_BYTES], &proof].concat();
        assert_eq!(key.answer(&hello(), &reflected), None, "reflected");
    }

    #[test]
    fn a_key_is_good_for_one_purpose_and_one_pair_of_ranks_only() {
        let key = JobKey::new([1; 32]);
        let made = |purpose: &[u8], from, to| {
            key.keyed(purpose, Rank(from), Rank(to)).finalize().into_bytes()
        };
        let known = made(b"one", 3, 4);
        for other in [made(b"two", 3, 4), made(b"one", 2, 4), made(b"one", 3, 5)] {
            assert_ne!(known, other);
        }
    }
}
