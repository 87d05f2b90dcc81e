//! The rates that prices are made of: of links, of turns on a CPU and of combining, as measured.

use crate::algorithm::{Algorithm, Needs};

/// The rates of one class of links. All times are in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkCost {
    /// From one rank's send to the other's receipt of a short message.
    pub(crate) latency_ps: u128,
    /// The time for which one more message keeps its sender busy.
    pub(crate) message_ps: u128,
    /// The time of one more byte.
    pub(crate) byte_ps: u128,
    /// The CPU time of both ends together for one more message, and for one more byte.
    pub(crate) work_ps: [u128; 2],
}

/// Links between ranks of one host: a cache line changes owners twice, and 10 GB/s are copied.
pub(crate) const SAME_HOST: LinkCost =
    LinkCost { latency_ps: 500_000, message_ps: 100_000, byte_ps: 100, work_ps: [90_000, 100] };

/// Ranks of one host that exchange tokens, and read and store in each other's windows.
const IN_WINDOWS: LinkCost =
    LinkCost { latency_ps: 245_000, message_ps: 62_000, byte_ps: 100, work_ps: [50_000, 20] };

/// Two ranks of one host that exchange tokens, and copy to stages and from them. After each token
/// a rank first reads the other's memory.
const STAGED: LinkCost =
    LinkCost { latency_ps: 500_000, message_ps: 200_000, byte_ps: 44, work_ps: [200_000, 50] };

/// The same among more than two ranks, which tell each other at once.
const TOLD: LinkCost = LinkCost { work_ps: [115_000, 50], ..STAGED };

/// Two ranks that trade stages: each writes to lines that are in its caches already.
const TRADED: LinkCost =
    LinkCost { latency_ps: 454_000, message_ps: 150_000, byte_ps: 33, work_ps: [200_000, 50] };

/// Links between hosts: TCP over a switch, 20 Gbit/s for all ranks of a host together.
pub(crate) const ACROSS_HOSTS: LinkCost = LinkCost {
    latency_ps: 20_000_000,
    message_ps: 2_000_000,
    byte_ps: 400,
    work_ps: [6_000_000, 300],
};

impl LinkCost {
    /// The rates within a host of an algorithm that takes so many steps on `size` ranks.
    pub(super) fn within_host(algorithm: &Algorithm, size: usize, steps: usize) -> Self {
        match algorithm.needs {
            Needs::Windows => IN_WINDOWS,
            // With one turn for each piece.
            Needs::Stage { .. } if size == 2 && steps == 1 => TRADED,
            Needs::Stage { .. } if size > 2 => TOLD,
            Needs::Stage { .. } => STAGED,
            Needs::Links | Needs::Rendezvous => SAME_HOST,
        }
    }
}

/// Bytes of a message between ranks of one host that fit the cache line which announces it.
const SHORT_BYTES: u128 = 48;

/// The CPU time that a longer message costs more, in picoseconds: its memory has left the nearer
/// caches since the last time, as ranks that share CPUs share those too.
const LONGER_PS: u128 = 300_000;

/// The CPU time that each of so many messages within a host costs more if they are longer than
/// short. They have so many bytes in all.
pub(crate) const fn longer_ps(messages: u128, bytes: u128) -> u128 {
    if bytes > messages * SHORT_BYTES { LONGER_PS } else { 0 }
}

/// A switch from one rank to another of the same CPU, in picoseconds, where all wait for all.
pub(crate) const TURN_PS: u128 = 800_000;

/// The same along chains and trees: a waiting rank yields, at times to others that wait.
pub(super) const SWITCH_PS: u128 = 2_200_000;

/// From one host to another that is a container of the same machine, with CPUs for all ranks.
pub(super) const NEIGHBOUR_PS: u128 = 4_000_000;

/// The same where the containers share CPUs: a waiting rank sleeps by then.
pub(super) const CONTAINER_PS: u128 = 12_000_000;

/// To wake a rank of a crowded host that waited while others waited for the network: it sleeps by
/// then.
pub(crate) const WOKEN_PS: u128 = 20_000_000;

/// How much slower, in quarters, an all-reduce along links within hosts and between them in turn is
/// where ranks share CPUs: the least that was measured.
pub(super) const MIXED_QUARTERS: u128 = 6;

/// Combining one byte that arrives, in cache: 20 GB/s, in picoseconds.
pub(crate) const COMBINED_BYTE_PS: u128 = 50;

/// Reading one byte of a stage to combine it, in one pass with those of all ranks.
pub(super) const READ_BYTE_PS: u128 = 22;

/// The same in CPU time, with more than two ranks: for one byte of the result, and for each rank.
pub(super) const READ_WORK_PS: [u128; 2] = [150, 10];

/// How much slower links are, in quarters, when all ranks send to all through the switches and many
/// send to one.
const CROWDED_QUARTERS: u128 = 5;

/// The same where the ranks that send to one share CPUs: on a line of 1 Gbit/s for each, a lost
/// packet comes late.
const DENSE_QUARTERS: u128 = 8;

/// How much slower links are, in quarters, when all ranks send to all at once.
pub(crate) const fn crowded_quarters(is_dense: bool) -> u128 {
    if is_dense { DENSE_QUARTERS } else { CROWDED_QUARTERS }
}

/// The same for partners, each of which sends to one at a time.
pub(super) const EXCHANGE_QUARTERS: u128 = CROWDED_QUARTERS;
