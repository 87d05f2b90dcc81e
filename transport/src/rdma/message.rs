//! What two ranks say to each other about memory and queue pairs, over their TCP connection.
//!
//! A message has `MESSAGE_BYTES` bytes: its kind, the path or lane that it is about, its body, and
//! HMAC(job key, purpose from to count message), so that nobody on the way can point a device at
//! other memory. `count` is how many messages were sent before on this connection.
//!
//! ```text
//! Rails     both, first      rails of this host, to be paired
//! Offer     both             number and first packet of the queue pair of a path
//! Ready     both             the path can be used towards the one who says so
//! Without   either           the path cannot be made, or used any more
//! Heard     both, after it   what has arrived, by the end of that path
//! Over      both             there is no path; what follows is data, by TCP
//! Want      sender           a ring for a lane
//! Grant     receiver         where it is
//! Bye       leaver           how many writes it sent in all
//! ```

use hmac::Mac as _;
use ringfold_types::Rank;
use ringfold_types::limits::{LANES_MAX, PATHS_MAX, RAILS_MAX};

use super::sys::LinkLayer;
use crate::tcp::proof::JobKey;

/// Bytes of a message,
pub(super) const MESSAGE_BYTES: usize = 256;
/// of the proof at its end,
const PROOF_BYTES: usize = 32;
/// and of what the proof covers.
const COVERED_BYTES: usize = MESSAGE_BYTES - PROOF_BYTES;
/// Where the body begins.
const BODY_AT: usize = 8;
/// Bytes of a rail.
const RAIL_BYTES: usize = 20;
/// Bytes of what was heard on a lane.
const HEARD_BYTES: usize = 9;

const _: () = assert!(RAILS_MAX * RAIL_BYTES <= COVERED_BYTES - BODY_AT);
const _: () = assert!(RAILS_MAX * 4 + 8 <= COVERED_BYTES - BODY_AT);

const _: () = assert!(LANES_MAX * HEARD_BYTES <= COVERED_BYTES - BODY_AT);

const PURPOSE: &[u8] = b"ringfold rdma message 1";

/// A port as the peer must know it to pair it with one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RailCard {
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    pub(super) mtu: u8,
    pub(super) link_layer: LinkLayer,
}

/// Memory that the peer may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) address: u64,
    /// By cable.
    pub(super) keys: [u32; RAILS_MAX],
}

/// What has arrived on a lane: all fragments before `next` in order, and those `early` ones whose
/// bits are set, counted from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) next: u8,
    pub(super) early: u64,
}

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// And how many queue pairs to make of each pair of them.
    Rails {
        rails: Vec<RailCard>,
        queue_pairs: u8,
    },
    Offer {
        path: usize,
        number: u32,
        sequence: u32,
    },
    Ready {
        path: usize,
    },
    Without {
        path: usize,
    },
    Over,
    Want {
        lane: usize,
    },
    Grant {
        lane: usize,
        grant: Grant,
    },
    Bye {
        writes: u64,
    },
    Heard {
        path: usize,
        lanes: [Heard; LANES_MAX],
    },
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadMessage {
    /// Its proof is wrong.
    Unproven,
    /// It makes no sense.
    Nonsense,
}

/// Who says it to whom, and how many messages before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) key: &'a JobKey,
    pub(super) from: Rank,
    pub(super) to: Rank,
    pub(super) count: u64,
}

impl Context<'_> {
    fn mac(self, covered: &[u8]) -> hmac::Hmac<sha2::Sha256> {
        let mut mac = self.key.keyed(PURPOSE, self.from, self.to);
        mac.update(&self.count.to_le_bytes());
        mac.update(covered);
        mac
    }
}

impl Message {
    #[expect(clippy::cast_possible_truncation, reason = "paths, lanes and rails are few")]
    pub(super) fn encode(&self, context: Context<'_>) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        let (head, body) = bytes.split_at_mut(BODY_AT);
        let (kind, about) = match self {
            Self::Rails { rails, queue_pairs } => {
                head[2] = *queue_pairs;
                for (rail, into) in rails.iter().zip(body.chunks_exact_mut(RAIL_BYTES)) {
                    into[..16].copy_from_slice(&rail.gid);
                    into[16..18].copy_from_slice(&rail.lid.to_le_bytes());
                    into[18] = rail.mtu;
                    into[19] = u8::from(rail.link_layer == LinkLayer::Ethernet);
                }
                (1, rails.len().min(RAILS_MAX))
            }
            Self::Offer { path, number, sequence } => {
                body[..4].copy_from_slice(&number.to_le_bytes());
                body[4..8].copy_from_slice(&sequence.to_le_bytes());
                (2, *path)
            }
            Self::Ready { path } => (3, *path),
            Self::Without { path } => (4, *path),
            Self::Over => (5, 0),
            Self::Want { lane } => (6, *lane),
            Self::Grant { lane, grant } => {
                body[..8].copy_from_slice(&grant.address.to_le_bytes());
                for (key, into) in grant.keys.iter().zip(body[8..].chunks_exact_mut(4)) {
                    into.copy_from_slice(&key.to_le_bytes());
                }
                (7, *lane)
            }
            Self::Bye { writes } => {
                body[..8].copy_from_slice(&writes.to_le_bytes());
                (8, 0)
            }
            Self::Heard { path, lanes } => {
                for (lane, into) in lanes.iter().zip(body.chunks_exact_mut(HEARD_BYTES)) {
                    into[0] = lane.next;
                    into[1..].copy_from_slice(&lane.early.to_le_bytes());
                }
                (9, *path)
            }
        };
        (head[0], head[1]) = (kind, about as u8);
        let (covered, proof) = bytes.split_at_mut(COVERED_BYTES);
        proof.copy_from_slice(&context.mac(covered).finalize().into_bytes());
        bytes
    }

    pub(super) fn decode(
        bytes: &[u8; MESSAGE_BYTES],
        context: Context<'_>,
    ) -> Result<Self, BadMessage> {
        let (covered, proof) = bytes.split_at(COVERED_BYTES);
        context.mac(covered).verify_slice(proof).map_err(|_| BadMessage::Unproven)?;
        let (head, body) = covered.split_at(BODY_AT);
        let below = |limit: usize| {
            let about = usize::from(head[1]);
            if about < limit { Ok(about) } else { Err(BadMessage::Nonsense) }
        };
        let word =
            |at: usize| u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Ok(match head[0] {
            1 => {
                let rails = body.chunks_exact(RAIL_BYTES).take(below(RAILS_MAX + 1)?);
                let rails = rails.map(rail).collect::<Result<_, _>>()?;
                Self::Rails { rails, queue_pairs: head[2].max(1) }
            }
            2 => Self::Offer { path: below(PATHS_MAX)?, number: word(0), sequence: word(4) },
            3 => Self::Ready { path: below(PATHS_MAX)? },
            4 => Self::Without { path: below(PATHS_MAX)? },
            5 => Self::Over,
            6 => Self::Want { lane: below(LANES_MAX)? },
            7 => {
                let keys = std::array::from_fn(|at| word(8 + 4 * at));
                Self::Grant { lane: below(LANES_MAX)?, grant: Grant { address: long(0), keys } }
            }
            8 => Self::Bye { writes: long(0) },
            9 => {
                let lane = |at| Heard { next: body[at], early: long(at + 1) };
                let lanes = std::array::from_fn(|at| lane(at * HEARD_BYTES));
                Self::Heard { path: below(PATHS_MAX)?, lanes }
            }
            _ => return Err(BadMessage::Nonsense),
        })
    }
}

fn rail(bytes: &[u8]) -> Result<RailCard, BadMessage> {
    let mut gid = [0; 16];
    gid.copy_from_slice(&bytes[..16]);
    let lid = u16::from_le_bytes([bytes[16], bytes[17]]);
    let link_layer = match bytes[19] {
        0 => LinkLayer::InfiniBand,
        1 => LinkLayer::Ethernet,
        _ => return Err(BadMessage::Nonsense),
    };
    match bytes[18] {
        mtu @ 1..=5 => Ok(RailCard { gid, lid, mtu, link_layer }),
        _ => Err(BadMessage::Nonsense),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(key: &JobKey) -> Context<'_> {
        Context { key, from: Rank(3), to: Rank(4), count: 7 }
    }

    #[test]
    fn messages_travel() {
        let key = JobKey::new([1; 32]);
        let link_layer = LinkLayer::Ethernet;
        let rail = RailCard { gid: [7; 16], lid: 300, mtu: 5, link_layer };
        let keys = [1, 2, 3, 4, 5, 6, 7, u32::MAX];
        for message in [
            Message::Rails { rails: vec![], queue_pairs: 1 },
            Message::Rails { rails: vec![rail; RAILS_MAX], queue_pairs: 4 },
            Message::Offer { path: PATHS_MAX - 1, number: 1 << 23, sequence: 5 },
            Message::Ready { path: 0 },
            Message::Without { path: 1 },
            Message::Over,
            Message::Want { lane: LANES_MAX - 1 },
            Message::Grant { lane: 2, grant: Grant { address: u64::MAX - 3, keys } },
            Message::Bye { writes: 1 << 40 },
            Message::Heard { path: 3, lanes: [Heard { next: 200, early: 5 << 60 }; LANES_MAX] },
        ] {
            let bytes = message.encode(context(&key));
            assert_eq!(Message::decode(&bytes, context(&key)), Ok(message));
        }
    }

    #[test]
    fn what_was_changed_or_said_before_is_refused() {
        let key = JobKey::new([1; 32]);
        let bytes = Message::Bye { writes: 1 }.encode(context(&key));
        let refused = |bytes: &[u8; MESSAGE_BYTES], context| {
            assert_eq!(Message::decode(bytes, context), Err(BadMessage::Unproven));
        };
        for at in [0, 9, 200, 255] {
            let mut changed = bytes;
            changed[at] ^= 1;
            refused(&changed, context(&key));
        }
        refused(&bytes, Context { count: 8, ..context(&key) });
        refused(&bytes, Context { from: Rank(4), to: Rank(3), ..context(&key) });
        refused(&bytes, context(&JobKey::new([2; 32])));
    }

    #[test]
    fn nonsense_is_refused_though_it_is_proven() {
        let key = JobKey::new([1; 32]);
        let mtu = |mtu| RailCard { gid: [7; 16], lid: 0, mtu, link_layer: LinkLayer::Ethernet };
        let rails = |rail| Message::Rails { rails: vec![rail], queue_pairs: 1 };
        for message in [
            rails(mtu(6)),
            rails(mtu(0)),
            Message::Ready { path: PATHS_MAX },
            Message::Want { lane: LANES_MAX },
        ] {
            let bytes = message.encode(context(&key));
            let found = Message::decode(&bytes, context(&key));
            assert_eq!(found, Err(BadMessage::Nonsense), "{message:?}");
        }
    }
}
