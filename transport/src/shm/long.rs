//! Messages that do not fit a cell, and rendezvous sends.

use ringfold_types::Way;
use ringfold_types::limits::LINK_BYTES_MIN;

use super::endpoint::{End, Shm, SingleCopy};
use super::error::{broken, error};
use crate::contract::{Fragment, Link, LinkError};
use crate::sys::sent;

impl Shm {
    /// Sends a message that does not fit a cell, or finds no free cell, or is `asked` to go by
    /// rendezvous. Counts its bytes.
    pub(super) fn send_long(
        &mut self,
        link: Link,
        tag: u32,
        bytes: &[u8],
        asked: bool,
    ) -> Result<usize, LinkError> {
        let accepted = self.accept_long(link, tag, bytes, asked)?;
        sent(Way::Shm, accepted);
        Ok(accepted)
    }

    fn accept_long(
        &mut self,
        link: Link,
        tag: u32,
        bytes: &[u8],
        asked: bool,
    ) -> Result<usize, LinkError> {
        let at = match self.place(link) {
            Some(at) => at,
            None => self.open_link(link)?,
        };
        let End { peer, producer, .. } = &mut self.ends[at];
        let peer = &self.peers[*peer];
        if peer.has_ended {
            return Err(error(link, peer.fault()));
        }
        let mut accepted = 0;
        if producer.has_rendezvous() {
            accepted = producer.accepted(bytes.len()).map_err(|why| broken(link, why))?;
            if accepted > 0 || producer.has_rendezvous() {
                return Ok(accepted);
            }
        }
        let is_asked = match self.offers {
            SingleCopy::Never => false,
            SingleCopy::Asked => asked,
            SingleCopy::From(least) => asked || bytes.len() >= least,
        };
        // A link must accept that many bytes whatever the peer does.
        let is_long = bytes.len() > LINK_BYTES_MIN;
        if is_asked
            && is_long
            && producer.send_rendezvous(tag, bytes).map_err(|why| broken(link, why))?
        {
            peer.notify(&self.waker);
            return Ok(0);
        }
        while accepted < bytes.len() {
            let was_flushed = producer.is_flushed();
            let pushed = producer.push(tag, &bytes[accepted..]).map_err(|why| broken(link, why))?;
            if pushed == 0 {
                break;
            }
            accepted += pushed;
            if was_flushed && !producer.is_flushed() {
                self.unflushed += 1;
            }
            peer.notify(&self.waker);
        }
        Ok(accepted)
    }

    /// Lends the bytes of a rendezvous message that were read ahead; reads more of them first if
    /// there are none.
    #[cold]
    pub(super) fn read_ahead(
        &self,
        link: Link,
        at: usize,
    ) -> Result<Option<Fragment<'_>>, LinkError> {
        let End { peer, consumer, .. } = &self.ends[at];
        let peer = &self.peers[*peer];
        if consumer.pull_ahead().map_err(|why| broken(link, why))? {
            peer.notify(&self.waker);
        }
        match consumer.front().map_err(|why| broken(link, why))? {
            Some((tag, bytes)) => Ok(Some(Fragment { tag, bytes })),
            None if peer.has_ended => Err(error(link, peer.fault())),
            None => Ok(None),
        }
    }

    /// Reads the next part of a rendezvous message into `dst`; returns its length.
    #[cold]
    pub(super) fn read(
        &mut self,
        link: Link,
        at: usize,
        dst: &mut [u8],
    ) -> Result<usize, LinkError> {
        let End { peer, consumer, .. } = &mut self.ends[at];
        let peer = &self.peers[*peer];
        let (bytes, is_told) = consumer.pull(dst).map_err(|why| broken(link, why))?;
        if is_told {
            peer.notify(&self.waker);
        }
        if bytes == 0 && peer.has_ended {
            return Err(error(link, peer.fault()));
        }
        Ok(bytes)
    }
}
