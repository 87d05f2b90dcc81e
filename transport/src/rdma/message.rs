//! The messages of two ranks about memory and queue pairs, over their TCP connection.
//!
//! A message has `MESSAGE_BYTES` bytes: its kind, its path or lane, its body, and HMAC(job key,
//! purpose from to count message). The proof keeps others from directing a device at other memory.
//! `count` is the number of earlier messages on the connection.
//!
//! ```text
//! message     sender       content
//! Rails       both, first  the sender's rails, to be paired
//! Offer       both         a path's queue pair or listening port, rail, and its rate; for an ended
//!                          path, a new life
//! Ready       both         the peer can write by the path
//! PathDown    both         the path cannot be made or used; whether it is made again soon
//! Arrivals    both, then   the arrivals of each lane; by that path nothing more will arrive
//! WantRing    sender       a request for the lane's ring, and the address of the RTR mailbox
//! GrantRing   receiver     the address of the ring
//! TcpFragment sender       a fragment, where no path is left; its bytes follow
//! Credit      receiver     credit, where no path is left
//! Bye         leaver       the number of its fragments by lane
//! ```

use hmac::Mac as _;
use ringfold_types::Rank;
use ringfold_types::limits::{LANES_MAX, PATHS_MAX, RAILS_MAX, RDMA_RING_BYTES};

use super::card::{RAIL_BYTES, RailCard};
use super::path_label::{LABEL_BYTES, PathLabel};
use super::ring::layout::{HEADER_BYTES, Immediate};
use super::sys::{Mr, Target, Ticket};
use crate::proof::JobKey;

/// Bytes of a message.
pub(super) const MESSAGE_BYTES: usize = 544;
/// Bytes of the proof at its end.
const PROOF_BYTES: usize = 32;
/// Bytes that the proof covers.
const COVERED_BYTES: usize = MESSAGE_BYTES - PROOF_BYTES;
/// The byte at which the body begins.
const BODY_AT: usize = 8;
/// Bytes of a path's other end.
const TARGET_BYTES: usize = 20 + size_of::<Ticket>();
/// Bytes of the arrivals on a lane.
const ARRIVALS_BYTES: usize = 16;

const _: () = assert!(RAILS_MAX * RAIL_BYTES <= COVERED_BYTES - BODY_AT);
const _: () = assert!(RAILS_MAX * 4 + 8 <= COVERED_BYTES - BODY_AT);

const _: () = assert!(TARGET_BYTES + 4 + RAIL_BYTES + LABEL_BYTES <= COVERED_BYTES - BODY_AT);
const _: () = assert!(LANES_MAX * ARRIVALS_BYTES <= COVERED_BYTES - BODY_AT);

const PURPOSE: &[u8] = b"ringfold rdma message 11";

/// Memory that the peer may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) address: u64,
    /// The keys by cable; 0 where there is none.
    pub(super) keys: [u32; RAILS_MAX],
}

/// The arrivals on a lane: all fragments before `next` in order, and later ones as bits of `early`,
/// counted from `next`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals {
    pub(super) next: u64,
    pub(super) early: u64,
}

/// A message; the head of the module lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The sender's rails, and the number of queue pairs for each pair of rails.
    Rails {
        rails: Vec<RailCard>,
        queue_pairs: u8,
    },
    Offer {
        path: usize,
        target: Target,
        /// The rate of the rail's port in Gbit/s; 0 if it is unknown.
        gigabits: u32,
        rail: RailCard,
        path_label: PathLabel,
    },
    Ready {
        path: usize,
    },
    PathDown {
        path: usize,
        returns: bool,
    },
    WantRing {
        lane: usize,
        mailbox: Grant,
    },
    GrantRing {
        lane: usize,
        grant: Grant,
    },
    /// The number of fragments by lane.
    Bye {
        fragments: [u64; LANES_MAX],
    },
    Arrivals {
        path: usize,
        lanes: [Arrivals; LANES_MAX],
    },
    TcpFragment(TcpFragment),
    /// The number of all lines given back so far.
    Credit {
        lane: usize,
        total: u64,
    },
}

/// A fragment that goes by TCP: the bytes that a device would write, their place in the ring, and
/// the immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpFragment {
    pub(super) lane: usize,
    pub(super) sequence: u8,
    pub(super) lines: u32,
    pub(super) at: usize,
    pub(super) bytes: usize,
}

impl TcpFragment {
    const fn number(self) -> Immediate {
        Immediate::Fragment { lane: self.lane, sequence: self.sequence, lines: self.lines }
    }
}

/// The reason why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadMessage {
    /// The proof is wrong.
    Unproven,
    /// The content is invalid.
    Invalid,
}

/// The sender and receiver of a message, and the number of messages before it.
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

    /// Writes the proof at the end.
    pub(super) fn prove(self, bytes: &mut [u8; MESSAGE_BYTES]) {
        let (covered, proof) = bytes.split_at_mut(COVERED_BYTES);
        proof.copy_from_slice(&self.mac(covered).finalize().into_bytes());
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
                    into.copy_from_slice(&rail.encode());
                }
                (1, rails.len().min(RAILS_MAX))
            }
            Self::Offer { path, target, gigabits, rail, path_label } => {
                let Target { number, sequence, ticket, address, key } = target;
                body[..4].copy_from_slice(&number.to_le_bytes());
                body[4..8].copy_from_slice(&sequence.to_le_bytes());
                body[8..16].copy_from_slice(&address.to_le_bytes());
                body[16..20].copy_from_slice(&key.to_le_bytes());
                body[20..TARGET_BYTES].copy_from_slice(ticket);
                let (rate, rest) = body[TARGET_BYTES..].split_at_mut(4);
                rate.copy_from_slice(&gigabits.to_le_bytes());
                let (rail_bytes, names) = rest.split_at_mut(RAIL_BYTES);
                rail_bytes.copy_from_slice(&rail.encode());
                path_label.encode(names);
                (2, *path)
            }
            Self::Ready { path } => (3, *path),
            Self::PathDown { path, returns } => {
                head[2] = (*returns).into();
                (4, *path)
            }
            Self::WantRing { lane, mailbox } => {
                mailbox.encode(body);
                (6, *lane)
            }
            Self::GrantRing { lane, grant } => {
                grant.encode(body);
                (7, *lane)
            }
            Self::Bye { fragments } => {
                for (count, into) in fragments.iter().zip(body.chunks_exact_mut(8)) {
                    into.copy_from_slice(&count.to_le_bytes());
                }
                (8, 0)
            }
            Self::Arrivals { path, lanes } => {
                for (lane, into) in lanes.iter().zip(body.chunks_exact_mut(ARRIVALS_BYTES)) {
                    into[..8].copy_from_slice(&lane.next.to_le_bytes());
                    into[8..].copy_from_slice(&lane.early.to_le_bytes());
                }
                (9, *path)
            }
            Self::TcpFragment(fragment) => {
                body[..4].copy_from_slice(&fragment.number().encode().to_le_bytes());
                body[4..8].copy_from_slice(&(fragment.at as u32).to_le_bytes());
                body[8..12].copy_from_slice(&(fragment.bytes as u32).to_le_bytes());
                (10, fragment.lane)
            }
            Self::Credit { lane, total } => {
                body[..8].copy_from_slice(&total.to_le_bytes());
                (11, *lane)
            }
        };
        (head[0], head[1]) = (kind, about as u8);
        context.prove(&mut bytes);
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
            if about < limit { Ok(about) } else { Err(BadMessage::Invalid) }
        };
        let word =
            |at: usize| u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Ok(match head[0] {
            1 => {
                let rails = body.chunks_exact(RAIL_BYTES).take(below(RAILS_MAX + 1)?);
                let rails = rails.map(RailCard::decode).collect::<Option<_>>();
                let rails = rails.ok_or(BadMessage::Invalid)?;
                Self::Rails { rails, queue_pairs: head[2].max(1) }
            }
            2 => {
                let (gigabits, rest) = (word(TARGET_BYTES), &body[TARGET_BYTES + 4..]);
                let (rail, names) = rest.split_at(RAIL_BYTES);
                let rail = RailCard::decode(rail).ok_or(BadMessage::Invalid)?;
                let path_label = PathLabel::decode(names);
                let ticket = std::array::from_fn(|at| body[20 + at]);
                let (number, sequence, address, key) = (word(0), word(4), long(8), word(16));
                let target = Target { number, sequence, ticket, address, key };
                Self::Offer { path: below(PATHS_MAX)?, target, gigabits, rail, path_label }
            }
            3 => Self::Ready { path: below(PATHS_MAX)? },
            4 => Self::PathDown { path: below(PATHS_MAX)?, returns: head[2] != 0 },
            6 => Self::WantRing { lane: below(LANES_MAX)?, mailbox: Grant::decode(body) },
            7 => Self::GrantRing { lane: below(LANES_MAX)?, grant: Grant::decode(body) },
            8 => Self::Bye { fragments: std::array::from_fn(|at| long(8 * at)) },
            9 => {
                let lane = |at| Arrivals { next: long(at), early: long(at + 8) };
                let lanes = std::array::from_fn(|at| lane(at * ARRIVALS_BYTES));
                Self::Arrivals { path: below(PATHS_MAX)?, lanes }
            }
            10 => {
                let (at, bytes) = (word(4) as usize, word(8) as usize);
                let fits = bytes >= HEADER_BYTES
                    && at.checked_add(bytes).is_some_and(|end| end <= RDMA_RING_BYTES);
                match Immediate::decode(word(0)) {
                    Immediate::Fragment { lane, sequence, lines }
                        if fits && lane == below(LANES_MAX)? =>
                    {
                        Self::TcpFragment(TcpFragment { lane, sequence, lines, at, bytes })
                    }
                    _ => return Err(BadMessage::Invalid),
                }
            }
            11 => Self::Credit { lane: below(LANES_MAX)?, total: long(0) },
            _ => return Err(BadMessage::Invalid),
        })
    }
}

impl Grant {
    /// Makes a grant from the registrations by cable.
    pub(super) fn new<'a>(address: u64, rights: impl Iterator<Item = Option<&'a Mr>>) -> Self {
        let mut keys = [0; RAILS_MAX];
        let found = rights.map(|right| right.map_or(0, Mr::remote_key));
        keys.iter_mut().zip(found).for_each(|(to, key)| *to = key);
        Self { address, keys }
    }

    /// Writes the grant to the front of `line`: 8 bytes, and 4 for each rail.
    pub(super) fn encode(&self, line: &mut [u8]) {
        line[..8].copy_from_slice(&self.address.to_le_bytes());
        for (key, into) in self.keys.iter().zip(line[8..].chunks_exact_mut(4)) {
            into.copy_from_slice(&key.to_le_bytes());
        }
    }

    pub(super) fn decode(line: &[u8]) -> Self {
        let word = |at| std::array::from_fn(|byte| line[at + byte]);
        let [low, high] = [0, 4].map(|at| u64::from(u32::from_le_bytes(word(at))));
        let keys = std::array::from_fn(|cable| u32::from_le_bytes(word(8 + 4 * cable)));
        Self { address: low | high << 32, keys }
    }
}

#[cfg(test)]
mod tests {
    use ringfold_topology::fabric::Place;

    use super::*;
    use crate::rdma::card::Label;
    use crate::rdma::sys::GidKind;

    fn context(key: &JobKey) -> Context<'_> {
        Context { key, from: Rank(3), to: Rank(4), count: 7 }
    }

    fn fragment(lane: usize, at: usize, bytes: usize) -> TcpFragment {
        TcpFragment { lane, sequence: 255, lines: 2, at, bytes }
    }

    fn path_label(host: &str, port: &str) -> PathLabel {
        PathLabel { host: host.to_owned(), port: port.to_owned() }
    }

    #[test]
    fn messages_travel() {
        let key = JobKey::new([1; 32]);
        let place = Some(Place { rail: 300, plane: 3 });
        let label = Label { place, is_preferred: true, crosses: true };
        let (gid, kind) = ([7; 16], GidKind::RoceV1);
        let rail = RailCard { gid, lid: 300, mtu: 5, kind, name: 1 << 31, ..RailCard::default() };
        let rail = RailCard { prefix: 128, label, ..rail };
        let iwarp = RailCard { kind: GidKind::Iwarp, label: Label::default(), ..rail };
        let flags = [(true, false, false), (false, true, false), (false, false, true)];
        let flagged = flags.map(|(needs_grh, is_preferred, crosses)| RailCard {
            needs_grh,
            label: Label { place: None, is_preferred, crosses },
            ..rail
        });
        let (ticket, address) = (*b"any sixteen of t", u64::MAX - 1);
        let target = Target { number: 1 << 23, sequence: 5, ticket, address, key: u32::MAX };
        let mut keys = [7; RAILS_MAX];
        (keys[0], keys[RAILS_MAX - 1]) = (1, u32::MAX);
        for message in [
            Message::Rails { rails: vec![], queue_pairs: 1 },
            Message::Rails { rails: vec![rail; RAILS_MAX], queue_pairs: 4 },
            Message::Rails { rails: vec![iwarp], queue_pairs: 1 },
            Message::Rails { rails: flagged.to_vec(), queue_pairs: 1 },
            Message::Offer {
                path: PATHS_MAX - 1,
                target,
                gigabits: 1600,
                rail,
                path_label: path_label("h2", "rxe_h2r1:1"),
            },
            Message::Offer {
                path: 0,
                target,
                gigabits: 0,
                rail,
                path_label: path_label(&"h".repeat(64), ""),
            },
            Message::Ready { path: 0 },
            Message::PathDown { path: 1, returns: false },
            Message::PathDown { path: 2, returns: true },
            Message::WantRing { lane: LANES_MAX - 1, mailbox: Grant { address: 1 << 60, keys } },
            Message::GrantRing { lane: 2, grant: Grant { address: u64::MAX - 3, keys } },
            Message::Bye { fragments: [1 << 40; LANES_MAX] },
            Message::Arrivals {
                path: 3,
                lanes: [Arrivals { next: 1 << 40, early: 5 << 60 }; LANES_MAX],
            },
            Message::TcpFragment(fragment(LANES_MAX - 1, RDMA_RING_BYTES - 100, 100)),
            Message::Credit { lane: 1, total: u64::MAX },
        ] {
            let bytes = message.encode(context(&key));
            assert_eq!(Message::decode(&bytes, context(&key)), Ok(message));
        }
    }

    #[test]
    fn changed_and_repeated_messages_are_refused() {
        let key = JobKey::new([1; 32]);
        let bytes = Message::Credit { lane: 0, total: 1 }.encode(context(&key));
        let refused = |bytes: &[u8; MESSAGE_BYTES], context| {
            assert_eq!(Message::decode(bytes, context), Err(BadMessage::Unproven));
        };
        for at in [0, 9, 200, MESSAGE_BYTES - 1] {
            let mut changed = bytes;
            changed[at] ^= 1;
            refused(&changed, context(&key));
        }
        refused(&bytes, Context { count: 8, ..context(&key) });
        refused(&bytes, Context { from: Rank(4), to: Rank(3), ..context(&key) });
        refused(&bytes, context(&JobKey::new([2; 32])));
    }

    #[test]
    fn invalid_messages_are_refused_though_they_are_proven() {
        let key = JobKey::new([1; 32]);
        let kind = GidKind::RoceV2;
        let mtu = |mtu| RailCard { gid: [7; 16], mtu, kind, ..RailCard::default() };
        let rails = |rail| Message::Rails { rails: vec![rail], queue_pairs: 1 };
        for message in [
            rails(mtu(6)),
            rails(mtu(0)),
            Message::Ready { path: PATHS_MAX },
            Message::WantRing { lane: LANES_MAX, mailbox: Grant::default() },
            Message::Offer {
                path: 0,
                target: Target::default(),
                gigabits: 0,
                rail: mtu(9),
                path_label: path_label("", ""),
            },
            Message::TcpFragment(fragment(LANES_MAX, 0, 64)),
            Message::TcpFragment(fragment(0, RDMA_RING_BYTES - 63, 64)),
            Message::TcpFragment(fragment(0, usize::try_from(u32::MAX).unwrap(), 64)),
            Message::TcpFragment(fragment(0, 0, 0)),
            Message::Credit { lane: LANES_MAX, total: 0 },
        ] {
            let bytes = message.encode(context(&key));
            let found = Message::decode(&bytes, context(&key));
            assert_eq!(found, Err(BadMessage::Invalid), "{message:?}");
        }
        // Kinds, flags and prefix lengths that do not exist.
        for (at, value) in [(19, 4), (20, 16), (21, 129)] {
            let mut bytes = rails(mtu(5)).encode(context(&key));
            bytes[BODY_AT + at] = value;
            context(&key).prove(&mut bytes);
            assert_eq!(Message::decode(&bytes, context(&key)), Err(BadMessage::Invalid));
        }
    }
}
