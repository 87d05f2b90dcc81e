//! Connections over iWARP, which are TCP connections: librdmacm makes them, and so connects queue
//! pairs by their numbers. Only `Connection::connect` blocks.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ringfold_types::limits::RDMA_PROOF_MS;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use socket2::SockAddr;

use super::abi;
use super::addresses::{Assigned, addresses};
use super::device::{Context, Gid, GidKind};
use super::library::{CmLibrary, cm_library};

/// Connections that may wait to be handled.
const BACKLOG: i32 = 128;
/// Time to resolve an address, in milliseconds. A kernel that misses the answer to its own query
/// looks again only at the end of that time.
const RESOLVE_MS: u16 = 500;
const _: () = assert!(2 * RESOLVE_MS as u64 <= RDMA_PROOF_MS, "and then there is more to do");
/// Bytes of a ticket.
const TICKET_BYTES: u8 = 16;

/// The secret by which a listener recognises the peer that connects.
pub(in crate::rdma) type Ticket = [u8; TICKET_BYTES as usize];

/// The listener at a port's address, which also makes connections.
pub(in crate::rdma) struct Connector {
    channel: Arc<EventChannel>,
    listener: Id,
    address: IpAddr,
    device: Context,
    number: u8,
}

/// One end of a connection.
#[derive(Debug)]
pub(in crate::rdma) struct Connection(Id);

/// An event of a connection, which its tag names.
#[derive(Debug)]
pub(in crate::rdma) enum CmEvent {
    /// The route to the peer is resolved: `connect` is next.
    RouteResolved(u64),
    /// A peer wants to connect, with this ticket if it shows any.
    ConnectRequest(Connection, Option<Ticket>),
    /// The connection is established.
    Established(u64),
    /// The connection cannot be made, or has ended.
    Disconnected(u64, String),
    /// The device was removed.
    DeviceRemoval,
    /// An event of no interest.
    Other,
}

/// The channel of librdmacm for the events of all of a port's connections.
struct EventChannel {
    raw: NonNull<abi::CmChannel>,
    library: &'static CmLibrary,
}

struct Id {
    raw: NonNull<abi::CmId>,
    channel: Arc<EventChannel>,
}

// SAFETY: librdmacm may be called from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}
// SAFETY: as above.
unsafe impl Send for Id {}
// SAFETY: of a shared id, only `connect` and `Connector::event` access the object behind it, and
// librdmacm lets one thread call while another takes events.
unsafe impl Sync for Id {}

/// Converts the status of calls that set errno.
fn check(status: i32) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl EventChannel {
    fn new() -> io::Result<Arc<Self>> {
        let library = cm_library().map_err(io::Error::other)?;
        // SAFETY: takes nothing.
        let raw = unsafe { (library.create_channel)() };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let error = io::Error::last_os_error();
            io::Error::other(format!("{error}; is there /dev/infiniband/rdma_cm (rdma_ucm)?"))
        })?;
        let channel = Self { raw, library };
        let fd = channel.fd();
        fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        Ok(Arc::new(channel))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, and so as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: its ids held it, and are gone; every event was acknowledged.
        unsafe { (self.library.destroy_channel)(self.raw.as_ptr()) };
    }
}

impl Id {
    fn new(channel: &Arc<EventChannel>, tag: u64) -> io::Result<Self> {
        let (mut raw, tag) = (ptr::null_mut(), tag_as_pointer(tag));
        let (create, own) = (channel.library.create_id, channel.raw.as_ptr());
        // SAFETY: the channel lives and is kept by the id; the tag is never followed.
        check(unsafe { create(own, &raw mut raw, tag, abi::PS_TCP) })?;
        let raw = NonNull::new(raw).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { raw, channel: Arc::clone(channel) })
    }

    fn library(&self) -> &'static CmLibrary {
        self.channel.library
    }

    /// Binds the id to an address of this host, with a port of the kernel's choice.
    fn bind(&self, address: IpAddr) -> io::Result<()> {
        let address = SockAddr::from(SocketAddr::new(address, 0));
        // SAFETY: the id lives, and the address is one, which is only read.
        check(unsafe {
            (self.library().bind_addr)(self.raw.as_ptr(), address.as_ptr().cast_mut().cast())
        })
    }
}

/// Returns whether an id is bound to that port of that device.
///
/// # Safety
/// The id lives.
unsafe fn is_of(id: NonNull<abi::CmId>, device: &Context, number: u8) -> bool {
    // SAFETY: by the caller. librdmacm sets the device once the id is bound to one, and keeps its
    // context open.
    unsafe {
        let id = id.as_ref();
        let Some(context) = id.verbs.as_ref() else { return false };
        let name = CStr::from_ptr((*context.device).name.as_ptr());
        id.port_num == number && name.to_bytes() == device.name().as_bytes()
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: librdmacm made the id for us alone, and its queue pairs are known by number.
        unsafe { (self.library().destroy_id)(self.raw.as_ptr()) };
    }
}

fn tag_as_pointer(tag: u64) -> *mut std::ffi::c_void {
    const _: () = assert!(size_of::<usize>() == size_of::<u64>());
    ptr::without_provenance_mut(usize::try_from(tag).unwrap_or_default())
}

impl Connector {
    /// Listens at the address of the port that `choose` returns. Returns the choice too.
    ///
    /// # Errors
    /// There is no librdmacm, or no address that can be used.
    pub(in crate::rdma) fn new<T>(
        device: &Context,
        number: u8,
        choose: impl FnOnce(&[Gid]) -> Option<(Gid, T)>,
    ) -> io::Result<(Self, (Gid, T))> {
        let channel = EventChannel::new()?;
        let mut gids = Vec::new();
        for address in outer_addresses()? {
            let id = Id::new(&channel, 0)?;
            // SAFETY: the id lives.
            if id.bind(address).is_ok() && unsafe { is_of(id.raw, device, number) } {
                let bytes = match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                gids.push(Gid { bytes, kind: GidKind::Iwarp, ..Gid::default() });
            }
        }
        let none = || io::Error::other("give its interface an IP address");
        let (gid, why) = choose(&gids).ok_or_else(none)?;
        let (listener, address) = (Id::new(&channel, 0)?, gid.address());
        listener.bind(address)?;
        // SAFETY: the id lives, and is bound.
        check(unsafe { (listener.library().listen)(listener.raw.as_ptr(), BACKLOG) })?;
        Ok((Self { channel, listener, address, device: device.clone(), number }, (gid, why)))
    }

    /// The descriptor, which is readable when `event` has an event.
    pub(in crate::rdma) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// The port to which peers connect.
    pub(in crate::rdma) fn port(&self) -> u16 {
        // SAFETY: the id lives, and is bound.
        u16::from_be(unsafe { (self.listener.library().src_port)(self.listener.raw.as_ptr()) })
    }

    /// Begins to connect by resolving the route, which `CmEvent::RouteResolved` reports.
    pub(in crate::rdma) fn resolve(&self, to: SocketAddr, tag: u64) -> io::Result<Connection> {
        let id = Id::new(&self.channel, tag)?;
        let own = SockAddr::from(SocketAddr::new(self.address, 0));
        let (to, find) = (SockAddr::from(to), id.library().resolve_addr);
        let [from, into] = [&own, &to].map(|it| it.as_ptr().cast_mut().cast());
        // SAFETY: the id lives, and the addresses are valid and only read.
        check(unsafe { find(id.raw.as_ptr(), from, into, RESOLVE_MS.into()) })?;
        Ok(Connection(id))
    }

    /// Returns the next event of connections, if any. Does not block.
    ///
    /// # Errors
    /// The channel reports no more events.
    pub(in crate::rdma) fn event(&self) -> io::Result<Option<CmEvent>> {
        let library = self.channel.library;
        let mut event = ptr::null_mut();
        // SAFETY: the channel lives and does not block, and there is room for the answer.
        let status = unsafe { (library.get_event)(self.channel.raw.as_ptr(), &raw mut event) };
        if let Err(error) = check(status) {
            let is_none =
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            return if is_none { Ok(None) } else { Err(error) };
        }
        // SAFETY: the event was just given, and neither it nor its id goes before it is
        // acknowledged.
        let told = unsafe { self.read(&*event) };
        // SAFETY: as above; nothing of it is used any more.
        unsafe { (library.ack_event)(event) };
        Ok(Some(told))
    }

    /// Reads an event.
    ///
    /// # Safety
    /// The event is one of this channel's that was not acknowledged.
    unsafe fn read(&self, event: &abi::CmEvent) -> CmEvent {
        let library = self.channel.library;
        let Some(raw) = NonNull::new(event.id) else { return CmEvent::Other };
        // SAFETY: by the caller.
        let tag = unsafe { (*raw.as_ptr()).context }.addr() as u64;
        match event.event {
            abi::CM_ADDR_RESOLVED => {
                // SAFETY: by the caller.
                let found = if unsafe { is_of(raw, &self.device, self.number) } {
                    // SAFETY: by the caller.
                    check(unsafe { (library.resolve_route)(raw.as_ptr(), RESOLVE_MS.into()) })
                } else {
                    Err(io::Error::other("the way to the peer is by another device"))
                };
                found.map_or_else(
                    |error| CmEvent::Disconnected(tag, error.to_string()),
                    |()| CmEvent::Other,
                )
            }
            abi::CM_ROUTE_RESOLVED => CmEvent::RouteResolved(tag),
            abi::CM_ESTABLISHED => CmEvent::Established(tag),
            abi::CM_CONNECT_REQUEST => {
                let (from, bytes) = (event.param.private_data, event.param.private_data_len);
                let has_ticket = !from.is_null() && bytes >= TICKET_BYTES;
                // SAFETY: by the caller, there are so many bytes.
                let ticket = has_ticket.then(|| unsafe { from.cast::<Ticket>().read() });
                CmEvent::ConnectRequest(
                    Connection(Id { raw, channel: Arc::clone(&self.channel) }),
                    ticket,
                )
            }
            abi::CM_DISCONNECTED => {
                CmEvent::Disconnected(tag, "the connection was closed".to_owned())
            }
            abi::CM_ADDR_ERROR
            | abi::CM_ROUTE_ERROR
            | abi::CM_CONNECT_ERROR
            | abi::CM_UNREACHABLE
            | abi::CM_REJECTED => {
                // SAFETY: the name is a constant string.
                let what = unsafe { CStr::from_ptr((library.event_name)(event.event)) };
                let (what, status) = (what.to_string_lossy(), event.status);
                let why = match status {
                    ..0 => io::Error::from_raw_os_error(-status).to_string(),
                    _ => format!("status {status}"),
                };
                CmEvent::Disconnected(tag, format!("{what}: {why}"))
            }
            abi::CM_DEVICE_REMOVAL => CmEvent::DeviceRemoval,
            _ => CmEvent::Other,
        }
    }
}

impl Connection {
    /// Connects the queue pair of that number, once the route is resolved. Soft devices block here
    /// for as long as TCP waits for an answer.
    pub(in crate::rdma) fn connect(&self, number: u32, ticket: &Ticket) -> io::Result<()> {
        let mut wanted = wanted(number);
        wanted.private_data = ticket.as_ptr().cast();
        wanted.private_data_len = TICKET_BYTES;
        // SAFETY: the id lives, and so does the ticket, which is copied.
        check(unsafe { (self.0.library().connect)(self.0.raw.as_ptr(), &raw mut wanted) })
    }

    /// Lets the peer connect to the queue pair of that number.
    pub(in crate::rdma) fn accept(&self, number: u32, tag: u64) -> io::Result<()> {
        let mut wanted = wanted(number);
        // SAFETY: the id lives, and nothing else has it, because its only event so far is the one
        // that brought it.
        unsafe { (*self.0.raw.as_ptr()).context = tag_as_pointer(tag) };
        // SAFETY: the id lives.
        check(unsafe { (self.0.library().accept)(self.0.raw.as_ptr(), &raw mut wanted) })
    }

    /// Refuses the peer's connection.
    pub(in crate::rdma) fn refuse(self) {
        // SAFETY: the id lives, and there is nothing to send. If the call fails, the id is
        // destroyed.
        unsafe { (self.0.library().reject)(self.0.raw.as_ptr(), ptr::null(), 0) };
    }
}

/// The addresses of this host by which other hosts may reach it. A link-local address would need
/// the peer's interface too.
fn outer_addresses() -> io::Result<impl Iterator<Item = IpAddr>> {
    let is_link_local = |it: IpAddr| matches!(it, IpAddr::V6(it) if it.is_unicast_link_local());
    let is_outer = move |it: &Assigned| !it.is_loopback && !is_link_local(it.address);
    Ok(addresses()?.into_iter().filter(is_outer).map(|it| it.address))
}

/// The parameters of a connection: one question may be under way in either direction.
const fn wanted(number: u32) -> abi::ConnParam {
    abi::ConnParam {
        private_data: ptr::null(),
        private_data_len: 0,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: number,
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connector({} port {})", self.address, self.port())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({:p})", self.raw)
    }
}
