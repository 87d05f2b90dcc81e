//! Messages that carry descriptors between processes, over sockets that keep message boundaries.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, recvmsg, sendmsg, sendmsg_addr,
};

/// Descriptors that one message can carry.
const DESCRIPTORS_MAX: usize = 2;

/// Sends `bytes` as one message, with up to two descriptors: to the other end of a connection, or
/// to the socket of the name `to`. Does not block.
pub(crate) fn transmit(
    socket: impl AsFd,
    to: Option<&SocketAddrUnix>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let parts = [IoSlice::new(bytes)];
    let sent = match to {
        Some(name) => sendmsg_addr(socket, name, &parts, &mut control, flags)?,
        None => sendmsg(socket, &parts, &mut control, flags)?,
    };
    if sent == bytes.len() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::WriteZero)) }
}

/// Receives one message, and the descriptors that came with it (at most two; close-on-exec). The
/// number of bytes is 0 where the other end is closed. A message that is longer than `bytes`, or
/// carries more descriptors than this process may have, is consumed and an error without an
/// operating system's number.
pub(crate) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    let lacks_some = message.flags.contains(ReturnFlags::CTRUNC);
    if message.flags.contains(ReturnFlags::TRUNC)
        || lacks_some && descriptors.len() == DESCRIPTORS_MAX
    {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an oversized message"));
    }
    if lacks_some {
        let why = "this process has no free descriptor for a received one; raise `ulimit -n`";
        return Err(io::Error::other(why));
    }
    Ok((message.bytes, descriptors))
}
