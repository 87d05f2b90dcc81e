//! How a rank and the lowest of its host prove to each other that they belong to the job.
//!
//! ```text
//! dialer                                      listener (the lowest rank)
//!   hello: magic, from, to, lanes, ranks,
//!          nonce                          ->
//!                 <- challenge: nonce, HMAC(key, "listener" hello nonce)
//!   proof: HMAC(key, "dialer" hello nonce) ->
//!                 <- welcome: magic, [memory]
//! ```
//!
//! The kernel keeps message boundaries, and nobody stands between two ends of a Unix socket, so the
//! proofs cover who speaks, not every byte. Descriptors are sent only to who has proven itself.

use hmac::{Hmac, KeyInit as _, Mac as _};
use ringfold_types::Rank;
use sha2::Sha256;
use zeroize::Zeroizing;

pub(super) const NONCE_BYTES: usize = 32;
pub(super) const PROOF_BYTES: usize = 32;
/// Bytes of the four messages; each has its own, so none passes for another.
pub(super) const HELLO_BYTES: usize = 24 + NONCE_BYTES;
pub(super) const CHALLENGE_BYTES: usize = NONCE_BYTES + PROOF_BYTES;
pub(super) const WELCOME: [u8; 8] = MAGIC;

/// The layout of segments, rings and stages is part of what the version counts.
const MAGIC: [u8; 8] = *b"RFshm\0\0\x06";

/// The first words of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) from: Rank,
    pub(super) to: Rank,
    pub(super) lanes: u32,
    /// Ranks of the host.
    pub(super) ranks: u32,
    pub(super) nonce: [u8; NONCE_BYTES],
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.lanes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.ranks.to_le_bytes());
        bytes[24..].copy_from_slice(&self.nonce);
        bytes
    }

    /// `None` if a stranger wrote it, or another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HELLO_BYTES] = bytes.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (from, rest) = rest.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk()?;
        let (lanes, rest) = rest.split_first_chunk()?;
        let (ranks, nonce) = rest.split_first_chunk()?;
        (*magic == MAGIC).then_some(Self {
            from: Rank(u32::from_le_bytes(*from)),
            to: Rank(u32::from_le_bytes(*to)),
            lanes: u32::from_le_bytes(*lanes),
            ranks: u32::from_le_bytes(*ranks),
            nonce: nonce.try_into().ok()?,
        })
    }
}

/// Which end proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Dialer,
    Listener,
}

/// The secret that the ranks of a job share; wiped from memory when dropped.
pub(super) struct JobKey(Zeroizing<[u8; 32]>);

impl JobKey {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self(Zeroizing::new(key))
    }

    /// What `side` writes in a conversation that began with `hello` and was challenged with
    /// `nonce`.
    pub(super) fn prove(&self, side: Side, hello: &Hello, nonce: &[u8]) -> [u8; PROOF_BYTES] {
        self.mac(side, hello, nonce).finalize().into_bytes().into()
    }

    /// Whether `proof` is that, in constant time.
    pub(super) fn accepts(&self, side: Side, hello: &Hello, nonce: &[u8], proof: &[u8]) -> bool {
        self.mac(side, hello, nonce).verify_slice(proof).is_ok()
    }

    fn mac(&self, side: Side, hello: &Hello, nonce: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.0.as_slice()).expect("HMAC takes any key length");
        mac.update(match side {
            Side::Dialer => b"ringfold shm 1 dialer  ",
            Side::Listener => b"ringfold shm 1 listener",
        });
        mac.update(&hello.encode());
        mac.update(nonce);
        mac
    }
}

impl std::fmt::Debug for JobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_proves_one_thing_only() {
        let hello =
            Hello { from: Rank(3), to: Rank(1), lanes: 2, ranks: 5, nonce: [7; NONCE_BYTES] };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        let key = JobKey::new([1; 32]);
        let proof = key.prove(Side::Dialer, &hello, &[9; NONCE_BYTES]);
        assert!(key.accepts(Side::Dialer, &hello, &[9; NONCE_BYTES], &proof));
        assert!(!key.accepts(Side::Listener, &hello, &[9; NONCE_BYTES], &proof), "reflected");
        assert!(!key.accepts(Side::Dialer, &hello, &[8; NONCE_BYTES], &proof), "replayed");
        for other in [
            Hello { from: Rank(2), ..hello },
            Hello { to: Rank(2), ..hello },
            Hello { lanes: 1, ..hello },
            Hello { ranks: 4, ..hello },
            Hello { nonce: [8; NONCE_BYTES], ..hello },
        ] {
            assert!(!key.accepts(Side::Dialer, &other, &[9; NONCE_BYTES], &proof), "{other:?}");
        }
        let stranger = JobKey::new([2; 32]);
        assert!(!stranger.accepts(Side::Dialer, &hello, &[9; NONCE_BYTES], &proof));
        assert!(!key.accepts(Side::Dialer, &hello, &[9; NONCE_BYTES], &proof[..31]));
    }

    #[test]
    fn what_is_no_hello_is_refused() {
        let hello =
            Hello { from: Rank(3), to: Rank(1), lanes: 2, ranks: 5, nonce: [7; NONCE_BYTES] };
        let bytes = hello.encode();
        for len in 0..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..len]), None);
        }
        for at in 0..8 {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert_eq!(Hello::decode(&bytes), None);
        }
    }
}
