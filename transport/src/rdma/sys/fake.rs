//! The controls of the fake libibverbs (`tests/fake-verbs`), in a process that has loaded it.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only tests use it, of several crates"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::num::NonZero;
use std::time::Duration;

use super::abi;
use super::library::{find, open};
use crate::sys::{Placement, UserBuffer};

/// The address and the flags of a device's port.
#[derive(Clone, Copy, Debug)]
pub struct Like {
    pub is_infiniband: bool,
    pub needs_grh: bool,
    pub lid: u16,
    pub gid: [u8; 16],
    /// The rate that the port reports.
    pub gigabits: u32,
}

/// A device of the fake, by one of its ports.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    number: c_int,
    port: c_int,
}

/// Objects that are alive and their bytes, and calls and work since the beginning.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    Domains,
    Regions,
    Queues,
    QueuePairs,
    Polls,
    /// Calls that post sends.
    Doorbells,
    /// Sends.
    Works,
    /// Sends whose completion is signalled.
    Signalled,
    /// Sends with inline data.
    Inlines,
    /// Calls that post receives.
    ReceivePosts,
    /// Bytes of all regions.
    RegionBytes,
    Contexts,
    /// Bytes of all queues, as mlx5 lays them out.
    QueueBytes,
}

/// Events about a device's addresses, with libibverbs' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressEvent {
    LidChange = 11,
    PartitionChange = 12,
    ClientReregister = 17,
    GidChange = 18,
}

/// Faults of a device.
#[derive(Clone, Copy, Debug)]
pub enum Hook {
    Hold,
    RefuseError(bool),
    FlushNever,
    Destruction(Duration),
    /// Memory cannot be deregistered, for this reason.
    RefuseDeregistration(c_int),
    RefuseRegistration(bool),
    /// Registrations take as long, or until the hook is set to zero.
    Registration(Duration),
    RefuseDestruction,
    /// Packets with a longer payload are lost in silence.
    LoseLonger(u32),
    /// The device sends and receives so many bytes in a millisecond. None means any number.
    Pace(Option<u32>),
    /// So many writes with an immediate arrive twice.
    Repeat(u16),
    /// The answers of receivers are lost.
    LoseReplies(bool),
    /// Queue pairs do not become ready to receive.
    RefuseReady(bool),
    /// Queue pairs in error complete their work so much later.
    Flush(Duration),
    /// The driver cannot let queues grow, nor make queue pairs for some kinds of work only.
    OldDriver,
}

/// The promise of the tests, which read only bytes that have arrived.
pub const fn placement() -> Placement {
    // SAFETY: the fake's devices write in this thread, while it posts, and so never while a test
    // reads. Tests that receive in parts receive the rest too, or withdraw.
    unsafe { Placement::new() }
}

/// A buffer that a test lends until it releases it.
pub const fn input(bytes: &[u8]) -> UserBuffer {
    // SAFETY: tests keep the buffer until the release.
    unsafe { UserBuffer::input(bytes) }
}

/// As `input`, for peers that write.
pub const fn output(bytes: &mut [u8]) -> UserBuffer {
    // SAFETY: as above, and as for `placement`.
    unsafe { UserBuffer::output(bytes) }
}

/// Returns the fake's function of that name.
///
/// # Panics
/// The process has loaded another libibverbs.
fn control(symbol: &CStr) -> *mut c_void {
    let name = c"libibverbs.so.1";
    let library = open(name, "tests/fake-verbs").expect("a libibverbs");
    find(name, library, symbol).expect("the fake one")
}

/// Calls a control.
macro_rules! call {
    ($symbol:literal ($($value:expr => $type:ty),*) $(-> $result:ty)?) => {{
        let symbol = control($symbol);
        // SAFETY: the fake's function of that name has this type, takes any numbers, and copies the
        // data that its pointers name.
        unsafe {
            let call: unsafe extern "C" fn($($type),*) $(-> $result)? =
                std::mem::transmute::<*mut c_void, _>(symbol);
            call($($value),*)
        }
    }};
}

impl Device {
    /// Adds a device of that name, with that port.
    pub fn add(name: &str, like: Like) -> Self {
        let name = CString::new(name).unwrap();
        let number = call!(c"fake_device" (name.as_ptr() => *const c_char) -> c_int);
        Self { number, port: 0 }.another(like)
    }

    /// Adds a port to the device.
    pub fn another(self, like: Like) -> Self {
        let Like { is_infiniband, needs_grh, lid, gid, gigabits } = like;
        let layer =
            if is_infiniband { abi::LINK_LAYER_INFINIBAND } else { abi::LINK_LAYER_ETHERNET };
        let kind = if is_infiniband { 0 } else { abi::GID_TYPE_ROCE_V2 };
        let port = call!(c"fake_port" (
            self.number => c_int,
            layer.into() => c_int,
            needs_grh.into() => c_int,
            lid.into() => c_int,
            gid.as_ptr() => *const u8,
            kind.cast_signed() => c_int
        ) -> c_int);
        let made = Self { port, ..self };
        made.train(gigabits);
        made
    }

    /// The number of the port.
    pub fn port_number(self) -> u8 {
        u8::try_from(self.port).unwrap()
    }

    /// Lets the port report that rate, without an event.
    ///
    /// # Panics
    /// No port has that rate.
    pub fn train(self, gigabits: u32) {
        // As verbs count them: widths of 1 and 4 lanes, and speeds from QDR to NDR.
        let (width, speed) = match gigabits {
            10 => (1, 4),
            25 => (1, 32),
            40 => (2, 4),
            50 => (1, 64),
            100 => (2, 32),
            200 => (2, 64),
            400 => (2, 128),
            _ => panic!("no port of {gigabits} Gbit/s"),
        };
        call!(c"fake_train" (
            self.number => c_int,
            self.port => c_int,
            width => c_int,
            speed => c_int
        ));
    }

    /// Returns the payload bytes that have left the device and arrived.
    pub fn carried(self) -> i64 {
        call!(c"fake_carried" (self.number => c_int, self.port => c_int) -> c_long)
    }

    /// Returns the completion vectors of all queues that were made, as bits.
    pub fn vectors(self) -> i32 {
        call!(c"fake_vectors" (self.number => c_int) -> c_int)
    }

    /// Takes the port down, or up.
    pub fn port(self, is_up: bool) {
        let event = if is_up { abi::EVENT_PORT_ACTIVE } else { abi::EVENT_PORT_ERR };
        self.event(event);
    }

    /// Reports that the device is gone.
    pub fn die(self) {
        self.event(abi::EVENT_DEVICE_FATAL);
    }

    /// Reports that all completion queues of the device are in error.
    pub fn fail_queues(self) {
        self.event(abi::EVENT_CQ_ERR);
    }

    /// Gives the port another LID and GID without an event.
    pub fn relocate(self, lid: u16, gid: [u8; 16]) {
        call!(c"fake_move" (
            self.number => c_int,
            self.port => c_int,
            lid.into() => c_int,
            gid.as_ptr() => *const u8
        ));
    }

    /// Sets an entry of the table of GIDs. Packets from and to one `is_elsewhere` are lost: in
    /// another network namespace.
    pub fn set_gid(self, index: u32, (gid, interface): ([u8; 16], u32), is_elsewhere: bool) {
        call!(c"fake_gid" (
            self.number => c_int,
            self.port => c_int,
            index.cast_signed() => c_int,
            gid.as_ptr() => *const u8,
            interface.cast_signed() => c_int,
            is_elsewhere.into() => c_int
        ));
    }

    /// Gives the port that table of partition keys, without an event.
    pub fn set_partitions(self, keys: &[u16]) {
        call!(c"fake_partitions" (
            self.number => c_int,
            self.port => c_int,
            i32::try_from(keys.len()).unwrap() => c_int,
            keys.as_ptr() => *const u16
        ));
    }

    /// Reports an event about the port's address.
    pub fn report(self, event: AddressEvent) {
        self.event(event as u32);
    }

    fn event(self, event: u32) {
        call!(c"fake_event" (
            self.number => c_int,
            self.port => c_int,
            event.cast_signed() => c_int
        ));
    }

    /// Breaks all queue pairs of the device.
    pub fn break_queue_pairs(self, status: c_int) {
        call!(c"fake_break" (self.number => c_int, status => c_int));
    }

    /// Makes the device have that fault from now on.
    pub fn hook(self, hook: Hook) {
        let (hook, value) = match hook {
            Hook::Hold => (0, 1),
            Hook::RefuseError(refuses) => (1, refuses.into()),
            Hook::FlushNever => (2, 1),
            Hook::Destruction(time) => (3, i32::try_from(time.as_millis()).unwrap()),
            Hook::RefuseDeregistration(error) => (4, error),
            Hook::RefuseDestruction => (5, 1),
            Hook::LoseLonger(bytes) => (6, bytes.cast_signed()),
            Hook::Pace(bytes) => (7, bytes.unwrap_or(0).cast_signed()),
            Hook::LoseReplies(loses) => (8, loses.into()),
            Hook::Repeat(writes) => (9, writes.into()),
            Hook::RefuseReady(refuses) => (10, refuses.into()),
            Hook::Flush(time) => (11, i32::try_from(time.as_millis()).unwrap()),
            Hook::OldDriver => (13, 1),
            Hook::RefuseRegistration(refuses) => (14, refuses.into()),
            Hook::Registration(time) => (15, i32::try_from(time.as_millis()).unwrap()),
        };
        call!(c"fake_hook" (
            self.number => c_int,
            self.port => c_int,
            hook => c_int,
            value => c_int
        ));
    }

    /// Lets held requests arrive. Returns how many found a queue pair.
    pub fn release(self) -> i32 {
        call!(c"fake_release" (self.number => c_int) -> c_int)
    }
}

/// Makes the order of packets and answers random from that seed on. Without a seed there is no
/// disorder.
pub fn seed(seed: Option<NonZero<u64>>) {
    call!(c"fake_seed" (seed.map_or(0, NonZero::get) => u64));
}

/// Tells what a `fork` does to pinned pages, with the number of libibverbs.
pub fn fork_status(status: i32) {
    call!(c"fake_fork" (status => c_int));
}

/// Sets the LID by which other subnets are reached.
pub fn router(lid: u16) {
    call!(c"fake_router" (lid.into() => c_int));
}

/// Returns a count.
pub fn count(what: Count) -> i64 {
    call!(c"fake_count" (what as c_int => c_int) -> c_long)
}
