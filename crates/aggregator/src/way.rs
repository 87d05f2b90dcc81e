//! The way of a child's bytes: its TCP connection, or a link that has replaced it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use ringfold_transport::offload::links::child_rank;
use ringfold_transport::{LinkError, LinkFault};
use ringfold_types::Rank;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::links::SharedLinks;

/// A way to a child.
#[derive(Debug)]
pub(crate) struct Way {
    stream: TcpStream,
    /// The link that replaces the connection. The connection stays open, because its end tells a
    /// child that has no answer by the link yet that the link has failed.
    link: Option<(SharedLinks, Rank)>,
    /// Whether the child has spoken by its link.
    is_settled: bool,
}

impl Way {
    pub(crate) const fn new(stream: TcpStream) -> Self {
        Self { stream, link: None, is_settled: false }
    }

    /// Sends a message by the connection, and has the link of a child replace it.
    ///
    /// # Errors
    /// The connection does not take the message at once.
    pub(crate) fn join(
        &mut self,
        links: SharedLinks,
        number: u8,
        message: &[u8],
    ) -> io::Result<()> {
        if self.stream.try_write(message)? < message.len() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.link = Some((links, child_rank(number)));
        Ok(())
    }

    /// Whether a link replaces the connection, and the child has not spoken by it yet.
    pub(crate) const fn is_joining(&self) -> bool {
        self.link.is_some() && !self.is_settled
    }

    /// Whether a link has replaced the connection.
    pub(crate) const fn has_link(&self) -> bool {
        self.link.is_some()
    }

    /// Notes that the child has spoken by its link.
    pub(crate) const fn settle(&mut self) {
        self.is_settled = true;
    }

    /// Reads into `into`. Returns `None` if nothing has arrived. The task wakes when something
    /// does, where the session has armed its links.
    pub(crate) fn read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let Some((links, child)) = &self.link else { return self.read_stream(cx, into) };
        match links.with(|links| links.read(*child, into)).map_err(ended)? {
            0 if self.is_joining() => match self.read_stream(cx, &mut [0])? {
                Some(_) => Err(io::ErrorKind::InvalidData.into()),
                None => Ok(None),
            },
            0 => Ok(None),
            count => Ok(Some(count)),
        }
    }

    fn read_stream(&self, cx: &mut Context<'_>, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.try_read(into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => return Ok(Some(count)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    match self.stream.poll_read_ready(cx) {
                        Poll::Ready(ready) => ready?,
                        Poll::Pending => return Ok(None),
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes `parts` one after the other, and returns the number of accepted bytes. Returns `None`
    /// if the way accepts nothing now. The next call must begin with the bytes that are left.
    pub(crate) fn write(
        &self,
        cx: &mut Context<'_>,
        parts: [&[u8]; 2],
    ) -> io::Result<Option<usize>> {
        if let Some((links, child)) = &self.link {
            return links.with(|links| {
                let mut sent = 0;
                for part in parts.into_iter().filter(|part| !part.is_empty()) {
                    let accepted = links.write(*child, part).map_err(ended)?;
                    sent += accepted;
                    if accepted < part.len() {
                        break;
                    }
                }
                Ok((sent > 0).then_some(sent))
            });
        }
        let parts = parts.map(IoSlice::new);
        loop {
            match self.stream.try_write_vectored(&parts) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    match self.stream.poll_write_ready(cx) {
                        Poll::Ready(ready) => ready?,
                        Poll::Pending => return Ok(None),
                    }
                }
                sent => return sent.map(Some),
            }
        }
    }

    /// Does the link's work, which nobody else does once the epoch has ended. Returns whether all
    /// that was written is on its way.
    pub(crate) fn poll_link(&self) -> io::Result<bool> {
        let Some((links, _)) = &self.link else { return Ok(true) };
        links.with(|links| {
            links.poll().map_err(ended)?;
            Ok(links.is_flushed())
        })
    }

    /// Waits until the child has read what was written to its connection. Unread bytes would make
    /// the kernel discard it.
    pub(crate) async fn drain(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.stream.shutdown().await?;
        loop {
            self.stream.readable().await?;
            match self.stream.try_read(buffer) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }
}

/// The error of a link that ended, without the child's rank on the link.
fn ended(error: LinkError) -> io::Error {
    match error.fault {
        LinkFault::Io(error) | LinkFault::Unreachable(error) => error,
        fault => io::Error::other(fault.to_string()),
    }
}
