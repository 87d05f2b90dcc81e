//! How much is too much. Every bound of ringfold stands here, and is enforced before memory is
//! allocated for what it bounds.

/// Bytes of one rank's part of a window (`Communicator::alloc`).
pub const WINDOW_BYTES_MAX: usize = 1 << 38;

/// Bytes of one rank's stage: memory through which ranks of a host pass calls on ordinary buffers.
/// Small enough that those of some ranks stay in cache together, large enough that a piece of a
/// call is worth a turn or two of all ranks.
pub const STAGE_BYTES: usize = 3 << 19;

/// A half of it. Calls use the halves in turn, so that one is quiet between calls: nobody reads it
/// of a rank whose call has ended. The other may be read until its readers are heard of again.
pub const STAGE_HALF_BYTES: usize = STAGE_BYTES / 2;

/// Tells of a rank of which another may not have heard yet: as many numbers as a cache line holds.
pub const TELLS_MAX: usize = 8;

/// Ranks of a communicator.
pub const RANKS_MAX: usize = 65_536;

/// Parallel streams between two ranks, and programs of a schedule.
pub const LANES_MAX: usize = 8;

/// Lanes that a long call takes where data goes by TCP. Networks divide their paths between
/// connections, and clouds limit each: more of them get more. But each has buffers of its own.
pub const TCP_CHANNELS: u8 = 2;

/// And how many it may take where the user says.
pub const CHANNELS_MAX: u8 = 8;

/// Sources of one reduce step; a schedule with more splits the step.
pub const SOURCES_MAX: usize = 16;

/// Sends that a lane may have under way while its program goes on.
pub const POSTED_MAX: usize = 32;

/// Bytes that every transport accepts on a link before the receiver has consumed any. Schedules
/// that send and overwrite the same memory rely on it.
pub const LINK_BYTES_MIN: usize = 16 * 1024;

/// Messages of a call are never split other than at multiples of this many bytes, so that no
/// element (nor a vector register of them) straddles two fragments.
pub const FRAGMENT_ALIGN: usize = 16;

/// Bytes of one frame on a data connection, header excluded: with that, as much as Linux sends at
/// once, so that a receiver has all of it when it wakes, while its sender turns to something else.
pub const FRAME_BYTES_MAX: usize = 63 * 1024;

/// Bytes of one message on a control connection. The table of all ranks is the largest.
pub const CONTROL_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes that one rank says of itself when it joins (addresses, host, version).
pub const CARD_BYTES_MAX: usize = 480;

/// Bytes that one rank tells of the fabric when it joins.
pub const EVIDENCE_BYTES_MAX: usize = 8 * 1024;

/// Ports of one host that a rank tells of: those of RDMA devices and network interfaces.
pub const EVIDENCE_PORTS_MAX: usize = 32;

/// Sources that tell of one port.
pub const EVIDENCE_SOURCES_MAX: usize = 8;

/// Bytes of the name of a port or of a group of hosts that ranks tell each other.
pub const EVIDENCE_NAME_BYTES_MAX: usize = 64;

/// Groups around a host, one within the other.
pub const FABRIC_LEVELS_MAX: usize = 8;

/// Connections that have not yet proven themselves, per listening port; further ones wait in the
/// kernel.
pub const HANDSHAKES_MAX: usize = 256;

/// Time that a connection keeps its place without a sign that it knows the secret, in milliseconds,
/// where all places are taken,
pub const HANDSHAKE_MUTE_MS: u64 = 200;

/// and with that sign, but without its first message.
pub const HANDSHAKE_OPENED_MS: u64 = 1_000;

/// Time that an address has to answer where the peer has others, in milliseconds.
pub const ROUTE_MS: u64 = 2_000;

/// Time that a connection has to prove itself, in milliseconds.
pub const HANDSHAKE_MS: u64 = 5_000;

/// Ranks to which one rank hands on the roster (the cards of all ranks) when a job forms.
pub const ROSTER_FAN_OUT: usize = 32;

/// Connections that have not yet proven themselves, at a port where a rank hands on the roster:
/// twice its children.
pub const RELAY_HANDSHAKES_MAX: usize = 2 * ROSTER_FAN_OUT;

/// Time that a rank has to get the roster from the rank that hands it on, before it asks rank 0, in
/// milliseconds.
pub const RELAY_MS: u64 = 10_000;

/// Time that ranks wait for each other before the log says for whom and why, in milliseconds.
pub const JOIN_WARNING_MS: u64 = 2_000;

/// Bytes of a text that one rank sends to explain a failure to the others; longer ones are cut.
pub const CAUSE_BYTES_MAX: usize = 1024;

/// Time that every rank has to say where it is, once one has complained, in milliseconds.
pub const ANSWER_MS: u64 = 500;

/// Time without a check of the control connection, in milliseconds, after which a rank may have
/// been stopped: it then reads the connection before it goes on with a call.
pub const PAUSE_MS: i64 = 100;

/// Time that a broken link waits for the news that its far end has died, in milliseconds.
pub const LINK_GRACE_MS: u64 = 300;

/// Time after which a complaint without a verdict means that the hub itself is silent, in
/// milliseconds.
pub const HUB_SILENCE_MS: u64 = 2_000;

/// Time that a rank has to come back when its control connection broke, in milliseconds. A rank
/// that has died is noticed as much later.
pub const RETURN_MS: u64 = 300;

/// How often a rank comes back. A connection that breaks more often is of no use.
pub const RETURNS_MAX: u32 = 16;

/// Time that a rank waits at most until its control thread has handled what has arrived, in
/// milliseconds. It is that long only in rank 0, and only while a failure is looked into.
pub const CATCH_UP_MS: u64 = 1_000;

/// Time that a rank which leaves waits for the others to leave too, so that all hear whether their
/// calls were the same, in milliseconds.
pub const PARTING_MS: u64 = 1_000;

/// Communicators of one job that may be there at the same time, where `ringrun` is asked for each.
pub const HUBS_MAX: usize = 1_024;

/// Bytes of one line of a launcher's key-value protocol (PMI-1).
pub const PMI_LINE_BYTES_MAX: usize = 4_096;

/// Bytes of a host file.
pub const HOST_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Time without a word from another host after which `ringrun` takes the host for lost, and after
/// which a host that hears nothing from `ringrun` ends its ranks, in milliseconds. So `ringrun` may
/// be stopped, as by a debugger, for nearly two minutes. `--host-timeout` sets another time.
pub const HOST_SILENCE_MS: u64 = 120_000;

/// The shortest that may be set,
pub const HOST_SILENCE_MIN_MS: u64 = 1_000;

/// and the longest time between two signs of life.
pub const HOST_BEAT_MS: u64 = 5_000;

/// Bytes of one line of a rank's output that the launcher keeps together. Of a longer line, other
/// ranks' lines may come between the pieces.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Calls that a rank remembers, to tell others what it did when something went wrong.
pub const CALLS_REMEMBERED: usize = 64;

/// Steps of one rank's schedule; chunks grow until it fits.
pub const STEPS_MAX: usize = 1 << 20;

/// Bytes of the largest buffer that `ringfold tune` measures with.
pub const TUNE_BYTES_MAX: usize = 4 << 30;

/// Bytes of a file of measurements (`RINGFOLD_PLAN`),
pub const PLAN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// and its lines.
pub const PLAN_ROWS_MAX: usize = 1 << 16;

/// Bytes of one file of `/sys` or `/proc`, or of a recording of them, that describes the machine.
pub const MACHINE_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Entries of one folder there.
pub const MACHINE_ENTRIES_MAX: usize = 8192;

/// Bytes of a machine's description in NCCL's XML format.
pub const MACHINE_XML_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Bytes of one tag of such a description,
pub const MACHINE_TAG_BYTES_MAX: usize = 4 * 1024;

/// and its elements and texts.
pub const MACHINE_XML_NODES_MAX: u32 = 1 << 17;

/// Ports of RDMA devices that one rank uses side by side,
pub const RAILS_MAX: usize = 16;

/// and queue pairs between two ranks, over all rails.
pub const PATHS_MAX: usize = 64;

/// Registered bytes of a link over RDMA, at either end, for each direction that is used: whole
/// pieces with their headers, of which the sender writes some while the receiver, which may have
/// to be woken first, reads the others.
pub const RDMA_RING_BYTES: usize = 16 * (RDMA_PIECE_BYTES + 64);

/// Queue pairs of one rank of a communicator, with all peers and over all rails, where
/// `RINGFOLD_IB_QPS_MAX` says nothing: about 10 KiB of a NIC's memory each,
pub const RDMA_QUEUE_PAIRS: usize = 4096;

/// and bytes that it registers with devices, counted once for each rail, where
/// `RINGFOLD_IB_BYTES_MAX` says nothing.
pub const RDMA_BYTES: usize = 8 << 30;

/// Bytes of one RDMA write. Longer messages are cut, so that the receiver reads one piece while the
/// next arrives.
pub const RDMA_PIECE_BYTES: usize = 128 * 1024;

/// What is worth one of its own where there are several paths, each of which takes its part of a
/// message.
pub const RDMA_STRIPE_BYTES: usize = 64 * 1024;

/// And of one that goes straight to where the receiver wants it, of all paths to it together: it
/// need not be read piece by piece. A ring has room for two, so that one is under way while the
/// receiver hears of the other.
pub const RDMA_PLACED_BYTES: usize = 1024 * 1024;

/// How long a message from registered memory is at least whose receiver is asked where it wants it:
/// to copy a shorter one takes no longer than to answer.
pub const RDMA_ASK_BYTES: usize = 64 * 1024 + 1;

/// Where a network may let packets overtake each other (adaptive routing), a payload that is longer
/// goes before what tells of it, since devices let only plain writes take any way.
pub const RDMA_ADAPTIVE_BYTES: usize = 8 * 1024;

/// RDMA writes of a link that the receiver is not done with.
pub const RDMA_CELLS: usize = 64;

/// Shorter messages are copied to be sent by RDMA, and where they are received, be they in
/// registered memory: to wait for the device's word that it has read them takes longer, as does to
/// tell the sender where to write.
pub const RDMA_LEND_BYTES: usize = 32 * 1024;

/// Bytes of registered memory that nobody uses any more and that is kept for who asks next.
pub const RDMA_IDLE_BYTES: usize = 256 * 1024 * 1024;

/// Time after which a queue pair by which no packet has passed is given up, in milliseconds. The
/// time that a device may take to send a lost packet again comes on top of it.
pub const RDMA_PROOF_MS: u64 = 2_000;

/// The least such time where TCP may not take its place, in milliseconds.
pub const RDMA_LAST_PROOF_MS: u64 = 10_000;

/// Time that a device has to say what became of a failed queue pair's work, in milliseconds.
pub const RDMA_FLUSH_MS: u64 = 500;

/// Time that a device may take to destroy a queue pair by which the peer may still write, before
/// the link to the peer ends, in milliseconds.
pub const RDMA_DESTROY_MS: u64 = 10_000;

/// Time after which a lost queue pair is made again, in milliseconds; it doubles each time in vain,
pub const RDMA_RETRY_MS: u64 = 1_000;

/// up to this.
pub const RDMA_RETRY_MAX_MS: u64 = 60_000;

/// Time for which a link without another way waits for a path to be made again after a port got
/// another address, in milliseconds.
pub const RDMA_RETURN_MS: u64 = 10_000;

/// Time that is left, once a peer has closed its connection, to what it sent by RDMA before, and
/// once a call has failed, to what was sent, in milliseconds.
pub const RDMA_PARTING_MS: u64 = 1_000;

/// Bytes of a file that describes a fabric or a site.
pub const FABRIC_FILE_BYTES_MAX: usize = 256 << 20;

/// Bytes of what one host hears by LLDP.
pub const LLDP_FILE_BYTES_MAX: usize = 4 << 20;

/// Switches, adapters or hosts that a file of a fabric may have.
pub const FABRIC_NODES_MAX: usize = 1 << 18;

/// Ends of links that such a file may have.
pub const FABRIC_PORTS_MAX: usize = 1 << 21;

/// Bytes of a name in such a file.
pub const FABRIC_NAME_BYTES_MAX: usize = 256;

const _: () = assert!(LLDP_FILE_BYTES_MAX <= FABRIC_FILE_BYTES_MAX);
const _: () = assert!(FABRIC_NODES_MAX <= FABRIC_PORTS_MAX);
const _: () = assert!(LINK_BYTES_MIN.is_multiple_of(FRAGMENT_ALIGN));
const _: () = assert!(FRAME_BYTES_MAX.is_multiple_of(FRAGMENT_ALIGN));
const _: () = assert!(FRAME_BYTES_MAX >= LINK_BYTES_MIN);
const _: () = assert!(RANKS_MAX * CARD_BYTES_MAX <= CONTROL_BYTES_MAX);
const _: () = assert!(EVIDENCE_PORTS_MAX <= u32::BITS as usize, "a mask of preferred ports");
const _: () = assert!(EVIDENCE_NAME_BYTES_MAX <= u8::MAX as usize, "lengths of a byte");
const _: () = assert!(
    EVIDENCE_PORTS_MAX * (EVIDENCE_SOURCES_MAX * 17 + EVIDENCE_NAME_BYTES_MAX + 26)
        + FABRIC_LEVELS_MAX * (EVIDENCE_NAME_BYTES_MAX + 1)
        + LANES_MAX * 19
        + 32
        <= EVIDENCE_BYTES_MAX
);
const _: () = assert!(HANDSHAKE_MUTE_MS < HANDSHAKE_OPENED_MS);
const _: () = assert!(HANDSHAKE_OPENED_MS < HANDSHAKE_MS);
const _: () = assert!(HUB_SILENCE_MS >= 2 * (ANSWER_MS + LINK_GRACE_MS));
const _: () = assert!(CALLS_REMEMBERED.is_power_of_two());
const _: () = assert!(HOST_SILENCE_MS >= 4 * HOST_BEAT_MS);
const _: () = assert!(4 * LINE_BYTES_MAX <= CONTROL_BYTES_MAX);
const _: () = assert!(POSTED_MAX > SOURCES_MAX);
const _: () = assert!(TELLS_MAX.is_power_of_two());
const _: () = assert!(LANES_MAX <= u8::MAX as usize && CHANNELS_MAX as usize <= LANES_MAX);
const _: () = assert!(TCP_CHANNELS <= CHANNELS_MAX);
const _: () = assert!(RDMA_PIECE_BYTES.is_multiple_of(FRAGMENT_ALIGN));
const _: () = assert!(RDMA_PLACED_BYTES >= RDMA_PIECE_BYTES);
const _: () = assert!(RDMA_RING_BYTES >= 4 * RDMA_PIECE_BYTES && RDMA_PIECE_BYTES > LINK_BYTES_MIN);
const _: () =
    assert!(RDMA_CELLS.is_power_of_two() && RDMA_CELLS <= 128, "sequence numbers: 8 bits");
const _: () = assert!(RAILS_MAX <= PATHS_MAX && PATHS_MAX <= u8::MAX as usize);
