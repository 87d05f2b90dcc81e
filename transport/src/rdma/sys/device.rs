//! Devices, their ports, and the addresses of the ports.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfold_topology::discover::port_gbps;
use ringfold_topology::machine::Network;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::abi;
use super::library::{Library, library};

/// The kernel's list of its devices.
pub(in crate::rdma) const DEVICES: &str = "/sys/class/infiniband";

/// The size of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Limits {
    /// The most completions that a queue holds.
    pub(in crate::rdma) completions: u32,
    pub(in crate::rdma) ports: u8,
}

/// An open device.
#[derive(Clone)]
pub(in crate::rdma) struct Context(Arc<Open>);

struct Open {
    raw: NonNull<abi::Context>,
    library: &'static Library,
    name: String,
    is_iwarp: bool,
}

// SAFETY: libibverbs and its drivers may be called from any thread.
unsafe impl Send for Open {}
// SAFETY: as above; drivers lock what they share.
unsafe impl Sync for Open {}

/// The kind of network of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet, which RoCE and iWARP use.
    Ethernet,
}

/// The properties of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Port {
    pub(in crate::rdma) number: u8,
    pub(in crate::rdma) link_layer: LinkLayer,
    pub(in crate::rdma) is_active: bool,
    /// The port's address on its subnet; 0 on Ethernet.
    pub(in crate::rdma) lid: u16,
    /// Packets to and from the port must have a global header, within its subnet too.
    pub(in crate::rdma) needs_grh: bool,
    /// Bytes of payload per packet, as verbs count them: 1 is 256, 5 is 4096.
    pub(in crate::rdma) mtu: u8,
    /// Gigabits per second, as far as the width and speed are known.
    pub(in crate::rdma) gigabits: u32,
    /// Entries of its table of GIDs.
    pub(in crate::rdma) gids: u32,
    /// Entries of its table of partition keys.
    pub(in crate::rdma) partition_keys: u16,
}

/// The packet format that a GID stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::rdma) enum GidKind {
    #[default]
    InfiniBand = 0,
    RoceV1 = 1,
    RoceV2 = 2,
    /// An IP address in place of a GID, in the format of RoCE v2.
    Iwarp = 3,
}

impl GidKind {
    /// Returns the kind of that number, by which other ranks know it.
    pub(in crate::rdma) const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::InfiniBand),
            1 => Some(Self::RoceV1),
            2 => Some(Self::RoceV2),
            3 => Some(Self::Iwarp),
            _ => None,
        }
    }

    /// The network of a port with such an address.
    pub(in crate::rdma) const fn network(self) -> Network {
        match self {
            Self::InfiniBand => Network::InfiniBand,
            Self::RoceV1 | Self::RoceV2 => Network::Roce,
            Self::Iwarp => Network::Iwarp,
        }
    }
}

/// An entry of a port's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::rdma) struct Gid {
    pub(in crate::rdma) index: u32,
    /// The index of its network interface, in the namespace of that; 0 if unknown.
    pub(in crate::rdma) interface: u32,
    pub(in crate::rdma) bytes: [u8; 16],
    pub(in crate::rdma) kind: GidKind,
}

/// An event of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Event {
    pub(in crate::rdma) about: About,
    /// The event in libibverbs' words.
    pub(in crate::rdma) what: String,
}

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum About {
    /// The device, which cannot be used any more.
    Device,
    /// Some completion queue, which cannot be used any more (`Cq::has_failed`).
    Queue,
    /// A port, which is up or down.
    Port,
    Other,
}

/// Returns the names of the host's RDMA devices. A device that can never be used comes with the
/// reason.
///
/// # Errors
/// The devices cannot be listed.
pub(in crate::rdma) fn devices() -> Result<Vec<(String, Option<&'static str>)>, String> {
    let library = library()?;
    let mut names = Vec::new();
    each_device(library, |device| {
        let lack = match device.transport_type {
            abi::TRANSPORT_IB | abi::TRANSPORT_IWARP => None,
            _ => Some("is none of InfiniBand, RoCE and iWARP"),
        };
        names.push((name(device), lack));
    })?;
    Ok(names)
}

/// Calls `look` for every device, while the list of them is held.
fn each_device(library: &Library, mut look: impl FnMut(&mut abi::Device)) -> Result<(), String> {
    let mut count = 0;
    // SAFETY: `count` is where the number goes.
    let list = unsafe { (library.get_device_list)(&raw mut count) };
    if list.is_null() {
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ENOSYS) {
            return Err("this kernel has no RDMA (no ib_uverbs module)".to_owned());
        }
        return Err(format!("the RDMA devices cannot be listed: {error}"));
    }
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` entries, each a device, that live until it is freed.
        if let Some(device) = unsafe { (*list.add(at)).as_mut() } {
            look(device);
        }
    }
    // SAFETY: made above, and no reference to a device is left.
    unsafe { (library.free_device_list)(list) };
    Ok(())
}

fn name(device: &abi::Device) -> String {
    // SAFETY: the kernel's name of a device ends within its 64 bytes.
    unsafe { CStr::from_ptr(device.name.as_ptr()) }.to_string_lossy().into_owned()
}

impl Context {
    /// Opens the device of that name.
    pub(in crate::rdma) fn open(wanted: &str) -> io::Result<Self> {
        let library = library().map_err(io::Error::other)?;
        let mut opened = Err(io::Error::from(io::ErrorKind::NotFound));
        each_device(library, |device| {
            if name(device) == wanted {
                // SAFETY: the device is in a list that is held.
                let raw = unsafe { (library.open_device)(device) };
                let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error);
                opened = raw.map(|raw| (raw, device.transport_type == abi::TRANSPORT_IWARP));
            }
        })
        .map_err(io::Error::other)?;
        let ((raw, is_iwarp), name) = (opened?, wanted.to_owned());
        let context = Self(Arc::new(Open { raw, library, name, is_iwarp }));
        let events = context.events();
        // A query for events must not block.
        fcntl_setfl(events, fcntl_getfl(events)? | OFlags::NONBLOCK)?;
        Ok(context)
    }

    pub(in crate::rdma) fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns whether the device's connections are TCP connections, which librdmacm makes.
    pub(in crate::rdma) fn is_iwarp(&self) -> bool {
        self.0.is_iwarp
    }

    pub(super) fn raw(&self) -> *mut abi::Context {
        self.0.raw.as_ptr()
    }

    pub(super) fn library(&self) -> &'static Library {
        self.0.library
    }

    /// The driver's functions.
    pub(super) fn ops(&self) -> &abi::ContextOps {
        // SAFETY: the context is open as long as `self`, and its functions never change.
        unsafe { &(*self.raw()).ops }
    }

    /// The driver's function that makes queue pairs for the named kinds of work only, if it has
    /// one.
    pub(super) fn create_qp_ex(&self) -> Option<abi::CreateQpEx> {
        let context = self.raw();
        // SAFETY: the context is open. Where it has the mark, it is the last field of a structure
        // whose size tells whether the fields before it are there (`verbs_get_ctx_op` in verbs.h).
        unsafe {
            if (*context).abi_compat.addr() != abi::IS_EXTENDED {
                return None;
            }
            let before = &*context.cast::<abi::BeforeContext>().sub(1);
            let least = size_of::<abi::BeforeContext>() + size_of::<abi::Context>();
            before.create_qp_ex.filter(|_| before.bytes >= least)
        }
    }

    /// The completion vector of a user.
    pub(super) fn vector(&self, user: usize) -> i32 {
        // SAFETY: the context is open as long as `self`, and the number never changes.
        let vectors = unsafe { (*self.raw()).num_comp_vectors };
        let vector = usize::try_from(vectors).ok().and_then(|vectors| user.checked_rem(vectors));
        vector.and_then(|vector| i32::try_from(vector).ok()).unwrap_or(0)
    }

    /// The size of the device.
    pub(in crate::rdma) fn limits(&self) -> io::Result<Limits> {
        let mut found = std::mem::MaybeUninit::<abi::DeviceAttr>::zeroed();
        // SAFETY: the context is open, and there is room for the answer.
        check(unsafe { (self.library().query_device)(self.raw(), found.as_mut_ptr()) })?;
        // SAFETY: zero is valid for every field, even if not all were filled in.
        let found = unsafe { found.assume_init() };
        let positive = |number: i32| u32::try_from(number).unwrap_or(0);
        Ok(Limits { completions: positive(found.max_cqe), ports: found.phys_port_cnt })
    }

    /// Queries port `number`, counted from 1.
    pub(in crate::rdma) fn port(&self, number: u8) -> io::Result<Port> {
        let mut found = abi::PortAttr::default();
        // SAFETY: the context is open. This symbol fills in the fields of the first headers, up to
        // the flags. There is room for the fields that later headers added, which stay zero.
        check(unsafe { (self.library().query_port)(self.raw(), number, &raw mut found) })?;
        let link_layer = match found.link_layer {
            abi::LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            // Drivers that know no other link layer leave the field at zero.
            abi::LINK_LAYER_INFINIBAND | 0 => LinkLayer::InfiniBand,
            _ => return Err(io::Error::other("a link layer that is not known")),
        };
        Ok(Port {
            number,
            link_layer,
            is_active: found.state == abi::PORT_ACTIVE,
            lid: found.lid,
            needs_grh: found.flags & abi::PORT_GRH_REQUIRED != 0,
            mtu: u8::try_from(found.active_mtu).unwrap_or(0),
            gigabits: self.gigabits(number, &found),
            gids: u32::try_from(found.gid_tbl_len).unwrap_or(0),
            partition_keys: found.pkey_tbl_len,
        })
    }

    /// Returns the rate of port `number`. The kernel tells libibverbs no speed above NDR, and
    /// states the rates of faster ports, such as XDR's, in a file.
    fn gigabits(&self, number: u8, found: &abi::PortAttr) -> u32 {
        let told = gigabits(found.active_width, found.active_speed);
        match found.active_speed {
            NDR => told.max(port_gbps(Path::new("/"), self.name(), number)),
            _ => told,
        }
    }

    /// Returns entry `index` of a port's table of GIDs, if there is one.
    pub(in crate::rdma) fn gid(&self, port: u8, index: u32) -> Option<Gid> {
        let mut entry = abi::GidEntry::default();
        let (out, bytes) = (&raw mut entry, size_of::<abi::GidEntry>());
        // SAFETY: the context is open, and there is room for the entry, whose size is passed.
        let status =
            unsafe { (self.library().query_gid)(self.raw(), port.into(), index, out, 0, bytes) };
        let kind = match entry.gid_type {
            abi::GID_TYPE_ROCE_V1 => GidKind::RoceV1,
            abi::GID_TYPE_ROCE_V2 => GidKind::RoceV2,
            _ => GidKind::InfiniBand,
        };
        let gid = Gid { index, interface: entry.ndev_ifindex, bytes: entry.gid, kind };
        (status == 0 && entry.gid != [0; 16]).then_some(gid)
    }

    /// Returns entry `index` of a port's table of partition keys, if there is one.
    pub(in crate::rdma) fn partition_key(&self, port: u8, index: u16) -> Option<u16> {
        let mut key = 0;
        // SAFETY: the context is open, and there is room for the key.
        let status =
            unsafe { (self.library().query_pkey)(self.raw(), port, index.into(), &raw mut key) };
        (status == 0).then_some(u16::from_be(key))
    }

    /// The descriptor, which is readable when `event` has an event.
    pub(in crate::rdma) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context, and so as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.raw()).async_fd) }
    }

    /// Returns the next event of the device, if any. Does not block.
    ///
    /// # Errors
    /// The device is gone.
    pub(in crate::rdma) fn event(&self) -> io::Result<Option<Event>> {
        let mut event = abi::AsyncEvent { element: std::ptr::null_mut(), event_type: 0 };
        // SAFETY: the context is open, its descriptor does not block, and there is room.
        if unsafe { (self.library().async_event)(self.raw(), &raw mut event) } != 0 {
            let error = io::Error::last_os_error();
            let is_none =
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            return if is_none { Ok(None) } else { Err(error) };
        }
        if event.event_type == abi::EVENT_CQ_ERR {
            // SAFETY: an event about a queue has its address. The queue cannot go before the event
            // is acknowledged.
            unsafe { mark_failed(event.element.cast()) }
        }
        // SAFETY: the event was just given; the name is a constant string.
        let what = unsafe {
            (self.library().ack_async_event)(&raw mut event);
            CStr::from_ptr((self.library().event_name)(event.event_type))
        };
        let about = match event.event_type {
            abi::EVENT_CQ_ERR => About::Queue,
            abi::EVENT_DEVICE_FATAL => About::Device,
            abi::EVENT_PORT_ACTIVE | abi::EVENT_PORT_ERR => About::Port,
            _ => About::Other,
        };
        Ok(Some(Event { about, what: what.to_string_lossy().into_owned() }))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: opened by `Context::open`. Every object of the context holds it.
        unsafe { (self.library.close_device)(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.0.name)
    }
}

impl fmt::Display for Gid {
    /// Formats the GID as an IP address, which it is on RoCE v2.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ipv4() {
            Some(address) => write!(f, "{address}"),
            None => write!(f, "{}", Ipv6Addr::from(self.bytes)),
        }
    }
}

impl Gid {
    /// Returns whether the GID is valid on its own subnet only.
    pub(in crate::rdma) const fn is_link_local(&self) -> bool {
        self.bytes[0] == 0xfe && self.bytes[1] & 0xc0 == 0x80
    }

    /// The IP address that the GID is, unless it is InfiniBand's.
    pub(in crate::rdma) fn address(&self) -> IpAddr {
        Ipv6Addr::from(self.bytes).to_canonical()
    }

    /// The IPv4 address that the GID stands for, if it does.
    pub(in crate::rdma) fn ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.bytes).to_ipv4_mapped()
    }
}

/// Converts the status of calls that return an error number.
pub(super) fn check(status: i32) -> io::Result<()> {
    match status {
        0 => Ok(()),
        // Old drivers return -1 and set errno.
        ..0 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// Marks a queue as failed.
///
/// # Safety
/// The queue was made by `Cq::new`, and is not destroyed meanwhile.
unsafe fn mark_failed(cq: *const abi::Cq) {
    // SAFETY: by the caller. `Cq` keeps the mark for longer than the queue.
    let mark = unsafe { &*(*cq).cq_context.cast_const().cast::<AtomicBool>() };
    mark.store(true, Ordering::Relaxed);
}

/// The highest speed that the kernel tells libibverbs.
const NDR: u8 = 128;

/// The rate of a link of that width and speed.
fn gigabits(width: u8, speed: u8) -> u32 {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    // Tenths of a gigabit per second and lane: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR.
    let tenths = match speed {
        1 => 25,
        2 => 50,
        4 | 8 => 100,
        16 => 140,
        32 => 250,
        64 => 500,
        NDR => 1000,
        _ => 0,
    };
    lanes * tenths / 10
}
