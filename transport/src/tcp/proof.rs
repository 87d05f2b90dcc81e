//! How two ends of a data connection prove to each other that they belong to the job.
//!
//! ```text
//! connector                                   acceptor
//!   hello: magic, version, from, to, lane, nonce ->
//!                      <- challenge: nonce, HMAC(link key, "acceptor" hello nonce)
//!   HMAC(link key, "connector" hello nonce) ->
//!                                     <- welcome
//! ```
//!
//! The link key is HMAC(job key, purpose from to), so that a proof for one pair of ranks proves
//! nothing to another. HMAC is over SHA-256, and comparison takes constant time. Bytes that follow
//! are not encrypted: who can write into the connection on its way can write into the data.

use hmac::{Hmac, KeyInit as _, Mac as _};
use ringfold_types::limits::LANES_MAX;
use ringfold_types::{Lane, Rank};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Bytes of an encoded `Hello`.
pub const HELLO_BYTES: usize = 52;
/// Bytes of a number that is used once.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of a challenge: a nonce and a proof.
pub const CHALLENGE_BYTES: usize = NONCE_BYTES + PROOF_BYTES;
/// The byte that ends the handshake.
pub(super) const WELCOME: u8 = 1;

const MAGIC: [u8; 4] = *b"RFtc";
const VERSION: u32 = 1;
const PURPOSE: &[u8] = b"ringfold tcp link 1";

/// The first words of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who connects, and will send.
    pub from: Rank,
    /// Who should accept, and will receive.
    pub to: Rank,
    /// Which of the parallel streams.
    pub lane: Lane,
    /// Random bytes that the acceptor's proof must cover.
    pub nonce: [u8; NONCE_BYTES],
}

/// Why bytes are not a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHello {
    /// They do not begin as one.
    #[error("not a ringfold data connection")]
    Stranger,
    /// The other end is of another version.
    #[error("protocol version {0}, but this side speaks version 1")]
    Version(u32),
    /// There is no such lane.
    #[error("lane {0} is beyond the limit")]
    Lane(u8),
}

impl Hello {
    /// The hello as it travels.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[16] = self.lane.0;
        bytes[20..].copy_from_slice(&self.nonce);
        bytes
    }

    /// The hello that a stranger, who may be a peer, wrote.
    ///
    /// # Errors
    /// It is none, or not one for this version.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, BadHello> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[..4] != MAGIC {
            return Err(BadHello::Stranger);
        }
        if word(4) != VERSION {
            return Err(BadHello::Version(word(4)));
        }
        let lane = bytes[16];
        if usize::from(lane) >= LANES_MAX {
            return Err(BadHello::Lane(lane));
        }
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&bytes[20..]);
        Ok(Self { from: Rank(word(8)), to: Rank(word(12)), lane: Lane(lane), nonce })
    }
}

/// Which end proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that connected.
    Connector,
    /// The end that listened.
    Acceptor,
}

/// The secret that the ranks of a job share.
pub struct JobKey(Zeroizing<[u8; 32]>);

impl JobKey {
    /// Takes the secret; it is wiped from memory when this is dropped.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self(Zeroizing::new(key))
    }

    /// The proof of `side` for a connection that began with `hello` and was challenged with
    /// `nonce`.
    #[must_use]
    pub fn prove(&self, side: Side, hello: &Hello, nonce: &[u8]) -> [u8; PROOF_BYTES] {
        self.mac(side, hello, nonce).finalize().into_bytes().into()
    }

    /// Whether `proof` is what `side` would write, in constant time.
    #[must_use]
    pub fn accepts(&self, side: Side, hello: &Hello, nonce: &[u8], proof: &[u8]) -> bool {
        self.mac(side, hello, nonce).verify_slice(proof).is_ok()
    }

    fn mac(&self, side: Side, hello: &Hello, nonce: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.keyed(PURPOSE, hello.from, hello.to);
        mac.update(match side {
            Side::Connector => b"connector",
            Side::Acceptor => b"acceptor ",
        });
        mac.update(&hello.encode());
        mac.update(nonce);
        mac
    }

    /// Begins a proof by a key that is good for one purpose and one pair of ranks.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello { from: Rank(3), to: Rank(70_000), lane: Lane(7), nonce: [9; NONCE_BYTES] }
    }

    #[test]
    fn a_hello_travels() {
        assert_eq!(Hello::decode(&hello().encode()), Ok(hello()));
    }

    #[test]
    fn what_is_no_hello_is_refused() {
        let mut bytes = hello().encode();
        bytes[16] = 8;
        assert_eq!(Hello::decode(&bytes), Err(BadHello::Lane(8)));
        bytes[4] = 2;
        assert_eq!(Hello::decode(&bytes), Err(BadHello::Version(2)));
        bytes[0] = b'G';
        assert_eq!(Hello::decode(&bytes), Err(BadHello::Stranger));
    }

    #[test]
    fn a_proof_is_good_for_its_connection_only() {
        let key = JobKey::new([1; 32]);
        let proof = key.prove(Side::Acceptor, &hello(), &[5; 32]);
        assert!(key.accepts(Side::Acceptor, &hello(), &[5; 32], &proof));
        assert!(!key.accepts(Side::Connector, &hello(), &[5; 32], &proof), "reflected");
        assert!(!key.accepts(Side::Acceptor, &hello(), &[6; 32], &proof), "replayed");
        assert!(!key.accepts(Side::Acceptor, &hello(), &[5; 32], &proof[..31]), "truncated");
        let other = Hello { from: Rank(70_000), to: Rank(3), ..hello() };
        assert!(!key.accepts(Side::Acceptor, &other, &[5; 32], &proof), "another pair");
        let stranger = JobKey::new([2; 32]);
        assert!(!stranger.accepts(Side::Acceptor, &hello(), &[5; 32], &proof), "another job");
    }
}
