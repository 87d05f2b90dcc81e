//! Bounds that users meet or several files share. A bound of one file stands in that file. The code
//! checks a bound before it allocates memory for the bounded thing.

use core::time::Duration;

/// Shortest timeout in milliseconds.
pub const TIMEOUT_MIN_MS: u64 = 1;

/// Longest timeout in milliseconds: a hundred years. A clock can add it to the present.
pub const TIMEOUT_MAX_MS: u64 = 100 * 365 * 86_400_000;

/// Bytes of one rank's part of a window (`Communicator::alloc`).
pub const WINDOW_BYTES_MAX: usize = 1 << 38;

/// Bytes of one rank's staging buffer. The ranks of a host use it for calls on ordinary buffers. It
/// is small enough that the staging buffers of some ranks share a cache, and large enough that a
/// piece of a call is worth a signal or two by all ranks.
pub const STAGING_BYTES: usize = 3 << 19;

/// Bytes of half a staging buffer. Calls alternate between the halves. After a rank's call has
/// ended, no peer reads the half of the call before. Peers may read the other half until this rank
/// has received their next signals.
pub const STAGING_HALF_BYTES: usize = STAGING_BYTES / 2;

/// Signals of a rank that a peer may not have taken yet. As many words fit one cache line.
pub const SIGNALS_MAX: usize = 8;
const _: () = assert!(SIGNALS_MAX.is_power_of_two());

/// Ranks of a communicator.
pub const RANKS_MAX: usize = 65_536;

/// Parallel streams between two ranks: those of collectives, and `MESSAGE_LANE`.
pub const LANES_MAX: usize = 9;

/// The lane of point-to-point messages. No schedule uses it.
pub const MESSAGE_LANE: u8 = CHANNELS_MAX;
const _: () = assert!(LANES_MAX <= u8::MAX as usize && (MESSAGE_LANE as usize) < LANES_MAX);

/// Bytes of a point-to-point message that leaves together with its header. The sender copies them
/// once more.
pub const INLINE_BYTES: usize = 1024;

/// Bytes of messages that have arrived before their receives, and behind which a receive looks for
/// another tag. A communicator holds no more; further messages hold up their senders.
pub const UNEXPECTED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Parts of an uneven collective that one rank sends, or receives, at the same time.
pub const PARTS_AT_ONCE: usize = 32;

/// Bytes of one part of an uneven reduce-scatter that travel in one round.
pub const UNEVEN_ROUND_BYTES: usize = 1024 * 1024;

/// Bytes of the name of a user's reduction operation.
pub const OP_NAME_BYTES_MAX: usize = 64;

/// User's reduction operations of one communicator.
pub const OPS_MAX: usize = 1024;

/// Bytes of one element of a user's reduction operation.
pub const OP_ELEMENT_BYTES_MAX: usize = LINK_BYTES_MIN;

/// Alignment in bytes of one such element: that of the memory for other ranks' elements.
pub const OP_ELEMENT_ALIGN_MAX: usize = 64;

/// Lanes of a long call over TCP. Networks assign paths to connections, and clouds limit the rate
/// of each, so several connections get more bandwidth. But each has buffers of its own.
pub const TCP_CHANNELS: u8 = 2;

/// Lanes of a long call over TCP that the user may set; also the programs of one schedule.
pub const CHANNELS_MAX: u8 = 8;
const _: () = assert!(TCP_CHANNELS <= CHANNELS_MAX);

/// Sources of one reduce step. A schedule with more sources splits the step.
pub const SOURCES_MAX: usize = 16;

/// Sends of a lane that may be unfinished while its program continues.
pub const POSTED_MAX: usize = 32;
const _: () = assert!(POSTED_MAX > SOURCES_MAX);

/// Bytes that every transport accepts on a link before the receiver consumes any. Schedules that
/// send memory and then overwrite it rely on this.
pub const LINK_BYTES_MIN: usize = 16 * 1024;
const _: () = assert!(LINK_BYTES_MIN <= UNEVEN_ROUND_BYTES);

/// Alignment of splits, in bytes. Transports split messages only at its multiples. So no element,
/// and no vector register of elements, spans two fragments.
pub const FRAGMENT_ALIGN: usize = 16;
const _: () = assert!(LINK_BYTES_MIN.is_multiple_of(FRAGMENT_ALIGN));
const _: () = assert!(INLINE_BYTES < LINK_BYTES_MIN && INLINE_BYTES.is_multiple_of(FRAGMENT_ALIGN));

/// Bytes of one frame of a long message on a data connection, without the header. With the header
/// it is as much as Linux sends at once, so a receiver finds the whole frame when it wakes.
pub const FRAME_BYTES: usize = 63 * 1024;
const _: () = assert!(FRAME_BYTES.is_multiple_of(FRAGMENT_ALIGN));

/// Bytes of one frame, without the header. A message of fewer bytes has one frame, because each
/// frame takes a system call at both ends.
pub const FRAME_BYTES_MAX: usize = 2 * FRAME_BYTES;
const _: () = assert!(FRAME_BYTES_MAX >= LINK_BYTES_MIN);

/// Bytes of one message on a control connection. The largest is the table of all ranks.
pub const CONTROL_BYTES_MAX: usize = 40 * 1024 * 1024;

/// Bytes of a rank's `PeerInfo` (its addresses, host and version), which it sends when it joins.
pub const PEER_INFO_BYTES_MAX: usize = 576;

/// Bytes of a rank's entry in the table of all ranks: its `PeerInfo`, and where it regroups.
pub const ROSTER_ENTRY_BYTES_MAX: usize = PEER_INFO_BYTES_MAX + 64;
const _: () = assert!(RANKS_MAX * ROSTER_ENTRY_BYTES_MAX <= CONTROL_BYTES_MAX);

/// Bytes of a rank's report about the fabric, which it sends when it joins.
pub const EVIDENCE_BYTES_MAX: usize = 9 * 1024;

/// Ports of one host in such a report: those of RDMA devices and of network interfaces.
pub const EVIDENCE_PORTS_MAX: usize = 32;
const _: () = assert!(EVIDENCE_PORTS_MAX <= u32::BITS as usize, "a mask of preferred ports");

/// Sources of facts about one port.
pub const EVIDENCE_SOURCES_MAX: usize = 8;

/// Bytes of the name of a port or of a group of hosts in such a report.
pub const EVIDENCE_NAME_BYTES_MAX: usize = 64;
const _: () = assert!(EVIDENCE_NAME_BYTES_MAX < 128, "lengths of a byte, as varints");

/// Nested groups of hosts around one host.
pub const FABRIC_LEVELS_MAX: usize = 8;
const _: () = assert!(
    EVIDENCE_PORTS_MAX * (EVIDENCE_SOURCES_MAX * 21 + EVIDENCE_NAME_BYTES_MAX + 8)
        + FABRIC_LEVELS_MAX * (EVIDENCE_NAME_BYTES_MAX + 1)
        + LANES_MAX * 21
        + 32
        <= EVIDENCE_BYTES_MAX
);

/// Unauthenticated connections per listening port. Further connections wait in the kernel.
pub const HANDSHAKES_MAX: usize = 256;

/// Time in milliseconds that a connection has to authenticate itself.
pub const HANDSHAKE_MS: u64 = 5_000;

/// Time in milliseconds that ranks wait for each other before the log names the missing ranks and
/// the reason.
pub const JOIN_WARNING_MS: u64 = 2_000;

/// Time in milliseconds that a rank which cannot join has to tell the others. Ranks are also
/// missing for that time after other processes have come in their place.
pub const JOIN_NEWS_MS: u64 = 2_000;

/// Bytes of the text that explains a failure to other ranks; longer texts are cut.
pub const CAUSE_BYTES_MAX: usize = 1024;

/// Bytes of the lists in a failure cause, or of missing ranks, in the messages to all ranks
/// together. Lists end earlier where there are many ranks.
pub const CAUSE_LISTS_BYTES: usize = 64 << 20;
const _: () = assert!(CAUSE_LISTS_BYTES / RANKS_MAX >= CAUSE_BYTES_MAX);

/// Time in milliseconds that every rank has to send its status after one has reported a failure,
/// and 1 ms more for each 100 ranks.
pub const ANSWER_MS: u64 = 500;

/// Time in milliseconds that a rank with a broken link waits for the news that the peer has died.
pub const LINK_GRACE_MS: u64 = 300;

/// Time in milliseconds that a failure report may stay without an answer. After that the
/// coordinator itself counts as silent. It is 2 ms more for each 100 ranks.
pub const COORDINATOR_SILENCE_MS: u64 = 2_000;
const _: () = assert!(COORDINATOR_SILENCE_MS >= 2 * (ANSWER_MS + LINK_GRACE_MS));

/// The same time for the report of a broken link: the network may be parted for a while, and lost
/// packets arrive later by up to as long again.
pub const PARTED_MS: u64 = 5_000;
const _: () = assert!(PARTED_MS > COORDINATOR_SILENCE_MS);

/// Time in milliseconds that a rank has to reconnect after its control connection broke. The death
/// of a rank is noticed that much later.
pub const RETURN_MS: u64 = 300;

/// Time in milliseconds after which ranks that regroup repeat their question or answer, and 1 ms
/// more for each 10 ranks.
pub const REGROUP_BEAT_MS: u64 = 200;

/// Time in milliseconds without an answer after which ranks that regroup leave a rank out, and 2 ms
/// more for each 10 ranks.
pub const REGROUP_SILENCE_MS: u64 = 2_000;
const _: () = assert!(REGROUP_SILENCE_MS >= 4 * REGROUP_BEAT_MS);

/// Longest time in milliseconds that a rank waits for its control thread to handle arrived
/// messages. Only rank 0 waits that long, and only during the inquiry into a failure.
pub const CATCH_UP_MS: u64 = 1_000;

/// Time in milliseconds that a leaving rank waits for the others to leave. In that time all ranks
/// learn whether their calls were the same.
pub const PARTING_MS: u64 = 1_000;

/// Bytes of a question that one rank asks the control threads of others.
pub const QUESTION_BYTES_MAX: usize = 4_096;

/// Communicators of one job that may exist at the same time, if each asks `ringrun` for a
/// coordinator.
pub const COORDINATORS_MAX: usize = 1_024;

/// Bytes of one line of a launcher's key-value protocol (PMI-1).
pub const PMI_LINE_BYTES_MAX: usize = 4_096;

/// Bytes of a host file.
pub const HOST_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Time in milliseconds of silence after which `ringrun` gives up a host, and a host without news
/// of `ringrun` ends its ranks. So a debugger may stop `ringrun` for nearly two minutes.
/// `--host-timeout` sets another time.
pub const HOST_SILENCE_MS: u64 = 120_000;

/// Shortest host timeout that a user may set, in milliseconds.
pub const HOST_SILENCE_MIN_MS: u64 = 1_000;

/// Bytes of one output line of a rank that the launcher keeps together. Other ranks' lines may
/// separate the pieces of a longer line.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
const _: () = assert!(4 * LINE_BYTES_MAX <= CONTROL_BYTES_MAX);

/// Calls that a rank remembers, to report them to others after a failure.
pub const CALLS_REMEMBERED: usize = 64;
const _: () = assert!(CALLS_REMEMBERED.is_power_of_two());

/// Bytes of the record of a process: its recent calls, failures, events of links, and counters.
pub const RECORD_BYTES: usize = 101 * 1024;

/// Kinds of calls whose durations a process counts apart: collective, size class and algorithm.
/// Calls of further kinds are counted together.
pub const CALL_KINDS_MAX: usize = 64;

/// Events of a trace that a process keeps until they are in the file. Further ones are lost, and
/// counted.
pub const TRACE_EVENTS_MAX: usize = 64 * 1024;

/// Clients that get metrics at once. Further ones wait in the kernel.
pub const SCRAPES_MAX: usize = 16;

/// Time in milliseconds for a client to ask for metrics and to take them.
pub const SCRAPE_MS: u64 = 5000;

/// Bytes of a request for metrics.
pub const SCRAPE_BYTES_MAX: usize = 8 * 1024;

/// Bytes of the path of the folder for dumps, which the record of a process names.
pub const DUMP_PATH_BYTES: usize = 1024;

/// Records of ended processes that a user's folder keeps. The oldest go first.
pub const RECORDS_KEPT: usize = 128;

/// Steps of one rank's schedule; chunks are enlarged until the schedule fits.
pub const STEPS_MAX: usize = 1 << 20;

/// Bytes of the largest buffer that `ringfold tune` measures.
pub const TUNE_BYTES_MAX: usize = 4 << 30;

/// Bytes of a file of measurements (`RINGFOLD_PLAN`).
pub const PLAN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Lines of a file of measurements.
pub const PLAN_ROWS_MAX: usize = 1 << 16;

/// Bytes of a file of prices (`RINGFOLD_PRICES`).
pub const PRICES_BYTES_MAX: usize = 8 * 1024;
const _: () = assert!(PRICES_BYTES_MAX <= EVIDENCE_BYTES_MAX, "ranks exchange both alike");

/// Longest time of a message in a file of prices, in nanoseconds.
pub const PRICE_NS_MAX: u64 = 1_000_000_000;

/// Longest time of a byte in a file of prices, in picoseconds.
pub const PRICE_BYTE_PS_MAX: u64 = 100_000_000;

/// Bytes of a machine's description in NCCL's XML format.
pub const MACHINE_XML_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Elements and texts of such a description.
pub const MACHINE_XML_NODES_MAX: u32 = 1 << 17;

/// Ports of RDMA devices that one rank uses side by side (rails).
pub const RAILS_MAX: usize = 16;

/// Queue pairs between two ranks, over all rails.
pub const PATHS_MAX: usize = 64;
const _: () = assert!(RAILS_MAX <= PATHS_MAX && PATHS_MAX <= u8::MAX as usize);

/// Registered bytes of one direction of an RDMA link, at either end. They hold whole pieces with
/// their headers. The sender writes some pieces while the receiver reads others, or wakes first.
pub const RDMA_RING_BYTES: usize = 16 * (RDMA_PIECE_BYTES + 64);

/// Queue pairs of one process, with all peers of all communicators and over all rails, unless
/// `RINGFOLD_IB_QPS_MAX` is set. Each takes about 10 KiB of a NIC's memory.
pub const RDMA_QUEUE_PAIRS: usize = 4096;

/// Bytes that one process registers with devices, counted once per rail, unless
/// `RINGFOLD_IB_BYTES_MAX` is set.
pub const RDMA_BYTES: usize = 8 << 30;

/// Bytes of one RDMA write. Longer messages are split: the receiver reads one piece while the next
/// arrives.
pub const RDMA_PIECE_BYTES: usize = 128 * 1024;
const _: () = assert!(RDMA_PIECE_BYTES.is_multiple_of(FRAGMENT_ALIGN));
const _: () = assert!(RDMA_RING_BYTES >= 4 * RDMA_PIECE_BYTES && RDMA_PIECE_BYTES > LINK_BYTES_MIN);

/// Bytes of one RDMA write straight to the receiver's memory, over all paths together. The receiver
/// need not read it piece by piece. A ring has room for two such writes: one is in flight while the
/// receiver learns of the other.
pub const RDMA_PLACED_BYTES: usize = 1024 * 1024;
const _: () = assert!(RDMA_PLACED_BYTES >= RDMA_PIECE_BYTES);

/// Least bytes of a message from registered memory whose sender waits for a ready-to-receive (RTR).
/// A copy of a shorter message takes no longer than the RTR.
pub const RDMA_ASK_BYTES: usize = 64 * 1024 + 1;

/// RDMA writes of a link that the receiver has not finished with.
pub const RDMA_CELLS: usize = 64;
const _: () =
    assert!(RDMA_CELLS.is_power_of_two() && RDMA_CELLS <= 128, "sequence numbers: 8 bits");

/// Callers' own buffers are registered for the time of a call from this length on. Registering
/// takes a device about 16 us, and 60 us for each MiB (UCX assumes as much). Copies at both ends
/// take about 200 us for each MiB. From 1 MiB on it pays even where two rails each need one.
pub const RDMA_LEASE_BYTES: usize = 1024 * 1024;

/// Callers' own buffers are registered for the time of a call up to this length. A registration
/// makes all of a buffer resident at once, and blocks the call for so long.
pub const RDMA_LEASE_MAX_BYTES: usize = 256 * 1024 * 1024;

/// Buffers that the callers of one process keep registered with RDMA devices. A long message looks
/// through all of them.
pub const RDMA_REGISTRATIONS_MAX: usize = 512;

/// Messages shorter than this are copied at both ends of an RDMA link, even from and to registered
/// memory. To wait until the device has read them takes longer, as does an RTR.
pub const RDMA_LEND_BYTES: usize = 32 * 1024;

/// Bytes of unused registered memory that a rank keeps for later requests.
pub const RDMA_IDLE_BYTES: usize = 256 * 1024 * 1024;

/// Time in milliseconds after which a queue pair that has carried no packet is given up. The
/// device's own time for retransmissions comes on top of it.
pub const RDMA_PROOF_MS: u64 = 2_000;

/// Time in milliseconds that a link without another path waits for a new one after a port's address
/// changed.
pub const RDMA_RETURN_MS: u64 = 10_000;

/// Time in milliseconds that RDMA data of a peer has to arrive after the peer closed its
/// connection. Sent data has the same time after a call has failed.
pub const RDMA_PARTING_MS: u64 = 1_000;

/// Bytes of a file that describes a fabric or a site.
pub const FABRIC_FILE_BYTES_MAX: usize = 256 << 20;

/// Bytes of the LLDP data of one host.
pub const LLDP_FILE_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(LLDP_FILE_BYTES_MAX <= FABRIC_FILE_BYTES_MAX);

/// Switches, adapters or hosts in a fabric file.
pub const FABRIC_NODES_MAX: usize = 1 << 18;

/// Link ends in a fabric file.
pub const FABRIC_PORTS_MAX: usize = 1 << 21;
const _: () = assert!(FABRIC_NODES_MAX <= FABRIC_PORTS_MAX);

/// Bytes of a name in a fabric file.
pub const FABRIC_NAME_BYTES_MAX: usize = 256;

/// Chunks of in-network reduction that a member may be ahead of its oldest result, by default.
pub const OFFLOAD_WINDOW: usize = 8;

/// Chunks of in-network reduction that a member may be ahead, at most.
pub const OFFLOAD_WINDOW_MAX: usize = 64;
const _: () = assert!(OFFLOAD_WINDOW <= OFFLOAD_WINDOW_MAX);
const _: () = assert!(OFFLOAD_WINDOW_MAX <= u8::MAX as usize, "a request has it in a byte");

/// Bytes of one chunk of in-network reduction, by default.
pub const OFFLOAD_CHUNK_BYTES: usize = 128 * 1024;
const _: () = assert!(OFFLOAD_CHUNK_BYTES.is_multiple_of(FRAGMENT_ALIGN));

/// Bytes of one chunk of in-network reduction, at most.
pub const OFFLOAD_CHUNK_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(OFFLOAD_CHUNK_BYTES <= OFFLOAD_CHUNK_BYTES_MAX);

/// Bytes by which rank 0 tells the others of all trees of aggregators.
pub const OFFLOAD_OFFER_BYTES_MAX: usize = 32 * 1024;
const _: () = assert!(EVIDENCE_BYTES_MAX <= OFFLOAD_OFFER_BYTES_MAX, "ranks exchange both alike");

/// Aggregators of one tree that have members as children.
pub const OFFLOAD_LEAVES_MAX: usize = 64;

/// Children of one aggregator in one group.
pub const AGGREGATOR_CHILDREN_MAX: usize = 64;
const _: () = assert!(AGGREGATOR_CHILDREN_MAX <= u64::BITS as usize, "a mask of children");
const _: () = assert!(
    OFFLOAD_LEAVES_MAX * AGGREGATOR_CHILDREN_MAX <= u16::MAX as usize,
    "members are numbered by 16 bits"
);

/// Levels of aggregators in one tree.
pub const AGGREGATOR_LEVELS_MAX: usize = 8;
const _: () = assert!(
    CHANNELS_MAX as usize * (32 * OFFLOAD_LEAVES_MAX + 512)
        + 2 * AGGREGATOR_LEVELS_MAX * 2 * OFFLOAD_LEAVES_MAX
        + 8 * 1024
        <= OFFLOAD_OFFER_BYTES_MAX,
    "leaves, names, the shape and the reasons"
);

/// Aggregators of one site.
pub const AGGREGATORS_MAX: usize = 4_096;

/// Hosts that a tree file names. Each tree names its own.
pub const AGGREGATOR_HOSTS_MAX: usize = 1 << 18;

/// Bytes of a file that names the aggregators of a site.
pub const AGGREGATOR_FILE_BYTES_MAX: usize = 4 << 20;

/// Groups of one aggregator.
pub const AGGREGATOR_GROUPS_MAX: usize = 4_096;

/// Time in milliseconds that a group without connected children keeps its memory. Members connect
/// in that time.
pub const AGGREGATOR_ATTACH_MS: u64 = 10_000;
const _: () = assert!(AGGREGATOR_ATTACH_MS > HANDSHAKE_MS);

/// Bytes of the text by which an aggregator refuses or ends a group; longer texts are cut.
pub const OFFLOAD_REASON_BYTES_MAX: usize = 256;

/// Time in milliseconds between two heartbeats of an aggregator to a child that awaits a result.
pub const OFFLOAD_BEAT_MS: u64 = 100;

/// Time in milliseconds of silence after which a child that awaits a result gives up its
/// aggregator.
pub const OFFLOAD_SILENCE_MS: u64 = 500;
const _: () = assert!(OFFLOAD_SILENCE_MS >= 4 * OFFLOAD_BEAT_MS);

/// Time in milliseconds that an aggregator may take for a result once all members have handed over
/// its chunk, whatever else it sends.
pub const OFFLOAD_RESULT_MS: u64 = 2_000;
const _: () = assert!(OFFLOAD_RESULT_MS > OFFLOAD_SILENCE_MS, "silence is the shorter way to tell");

/// The nearest timeout to `asked` within `TIMEOUT_MIN_MS` and `TIMEOUT_MAX_MS`.
#[must_use]
pub fn timeout(asked: Duration) -> Duration {
    asked.clamp(Duration::from_millis(TIMEOUT_MIN_MS), Duration::from_millis(TIMEOUT_MAX_MS))
}
