//! Asks the kernel for interfaces and addresses over netlink, because safe Rust cannot use the C
//! library's way.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// A network interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, as in `eth0`.
    pub name: String,
    /// Whether it is switched on and has a carrier.
    pub up: bool,
    /// Whether it leads to this host only.
    pub loopback: bool,
    /// Its addresses, without link-local ones, which mean nothing to other hosts.
    pub addresses: Vec<Address>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The number of prefix bits of its network, of 32 or 128.
    pub prefix: u8,
}

const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const GET_ADDRESS: u16 = 22;
const NEW_ADDRESS: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The flags of a request for all objects of a kind.
const REQUEST_DUMP: u16 = 0x301;

const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;

const LINK_NAME: u16 = 3;
const ADDRESS_PEER: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;

const FLAG_UP: u32 = 1;
const FLAG_LOOPBACK: u32 = 8;
const FLAG_RUNNING: u32 = 0x40;
/// The scope of addresses that mean nothing beyond the cable.
const SCOPE_LINK: u8 = 253;
/// The scope of addresses that mean nothing beyond the host.
const SCOPE_HOST: u8 = 254;
/// The flags of an address that is tentative or refused as a duplicate.
const ADDRESS_UNUSABLE: u8 = 0x48;

/// The network interfaces of this host, in the kernel's order. Asks the kernel. Does not block.
///
/// # Errors
/// The kernel does not answer netlink requests here.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    // Protocol 0 is that of routes and interfaces.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut found = BTreeMap::new();
    dump(&socket, GET_LINK, LINK_BYTES, |kind, body| {
        if kind == NEW_LINK {
            found.extend(link(body));
        }
    })?;
    dump(&socket, GET_ADDRESS, ADDRESS_BYTES, |kind, body| {
        if let Some((index, address)) = (kind == NEW_ADDRESS).then(|| address(body)).flatten() {
            found.entry(index).and_modify(|it: &mut Interface| it.addresses.push(address));
        }
    })?;
    Ok(found.into_values().collect())
}

/// Requests all objects of a kind, and passes the type and body of every message of the answer to
/// `each`.
fn dump(
    socket: &OwnedFd,
    request: u16,
    body_bytes: usize,
    mut each: impl FnMut(u16, &[u8]),
) -> io::Result<()> {
    let mut message = vec![0; HEADER_BYTES + body_bytes];
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    message[..4].copy_from_slice(&native_word(length));
    let [a, b] = native_half(request);
    let [c, d] = native_half(REQUEST_DUMP);
    message[4..8].copy_from_slice(&[a, b, c, d]);
    sendto(socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let (_, bytes) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = buffer.get(..bytes).unwrap_or_default();
        if rest.is_empty() {
            return Err(Errno::IO.into());
        }
        while let Some((length, kind)) = word(rest, 0).zip(half(rest, 4)) {
            let length = length as usize;
            let Some(body) = rest.get(HEADER_BYTES..length) else { break };
            match kind {
                DONE => return Ok(()),
                ERROR => return Err(Errno::IO.into()),
                _ => each(kind, body),
            }
            rest = rest.get(padded(length)..).unwrap_or_default();
        }
    }
}

fn link(body: &[u8]) -> Option<(u32, Interface)> {
    let (index, flags) = (word(body, 4)?, word(body, 8)?);
    let name = attributes(body.get(LINK_BYTES..)?).find(|(kind, _)| *kind == LINK_NAME)?.1;
    let name = name.split(|byte| *byte == 0).next()?;
    let interface = Interface {
        name: String::from_utf8_lossy(name).into_owned(),
        up: flags & FLAG_UP != 0 && flags & FLAG_RUNNING != 0,
        loopback: flags & FLAG_LOOPBACK != 0,
        addresses: Vec::new(),
    };
    Some((index, interface))
}

fn address(body: &[u8]) -> Option<(u32, Address)> {
    let [_, prefix, flags, scope] = *body.first_chunk()?;
    if scope == SCOPE_LINK || flags & ADDRESS_UNUSABLE != 0 {
        return None;
    }
    let find = |wanted| {
        attributes(body.get(ADDRESS_BYTES..)?).find(|(kind, _)| *kind == wanted).map(|it| it.1)
    };
    // On a point-to-point link the plain address belongs to the other end.
    let bytes = find(ADDRESS_LOCAL).or_else(|| find(ADDRESS_PEER))?;
    let ip = match bytes.len() {
        4 => IpAddr::from(*bytes.first_chunk::<4>()?),
        16 => IpAddr::from(*bytes.first_chunk::<16>()?),
        _ => return None,
    };
    let is_private = scope == SCOPE_HOST && !ip.is_loopback();
    (!is_private).then_some((word(body, 4)?, Address { ip, prefix }))
}

/// The attributes in `bytes`: type and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(half(bytes, 0)?), half(bytes, 2)?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(padded(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

const fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[expect(clippy::host_endian_bytes, reason = "the kernel of this host speaks its byte order")]
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[expect(clippy::host_endian_bytes, reason = "the kernel of this host speaks its byte order")]
fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[expect(clippy::host_endian_bytes, reason = "the kernel of this host speaks its byte order")]
const fn native_word(word: u32) -> [u8; 4] {
    word.to_ne_bytes()
}

#[expect(clippy::host_endian_bytes, reason = "the kernel of this host speaks its byte order")]
const fn native_half(half: u16) -> [u8; 2] {
    half.to_ne_bytes()
}
