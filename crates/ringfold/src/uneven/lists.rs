//! The messages of an uneven call whose counts no rank knows all of.

use ringfold_types::Rank;

use super::{Uneven, check_len};
use crate::messages::{Exchange, Sides};
use crate::parts::{Parts, split};

/// This rank, and the number of ranks.
type Ranks = (Rank, usize);

impl Uneven<'_> {
    /// The buffers that the messages of rank `own` read and fill.
    pub(super) fn sides(&self, own: Rank) -> Sides {
        match *self {
            Self::Gather { root, .. } if own == root => Sides::Receives,
            Self::Scatter { root, .. } if own != root => Sides::Receives,
            Self::Gather { .. } | Self::Scatter { .. } => Sides::Sends,
            _ => Sides::Both,
        }
    }
}

impl Exchange {
    /// Adds the messages of an all-to-all, a gather or a scatter of elements of `element` bytes.
    ///
    /// # Errors
    /// A text that says why the parts do not fit the memory.
    pub(super) fn fill(
        &mut self,
        uneven: &Uneven<'_>,
        element: usize,
        (input, output): (&[u8], &mut [u8]),
        is_in_place: bool,
        ranks: Ranks,
    ) -> Result<(), String> {
        self.clear();
        let own = ranks.0;
        match *uneven {
            Uneven::AllToAll { send, recv } => {
                let send = if is_in_place { recv } else { send };
                let sent = self.send_parts(send, element, input, ranks, false)?;
                let kept = self.receive_parts(recv, element, output, ranks, false)?;
                check_len("own part of the output", kept, sent)?;
            }
            Uneven::Gather { root, parts } if root == own => {
                let kept = self.receive_parts(parts, element, output, ranks, is_in_place)?;
                if !is_in_place {
                    check_len("input", input.len(), kept)?;
                    self.send(own, 0..input.len());
                }
            }
            Uneven::Gather { root, .. } => self.send(root, 0..input.len()),
            Uneven::Scatter { root, parts } if root == own => {
                let sent = self.send_parts(parts, element, input, ranks, is_in_place)?;
                if !is_in_place {
                    check_len("output", output.len(), sent)?;
                    self.receive(own, 0..output.len());
                }
            }
            Uneven::Scatter { root, .. } => self.receive(root, 0..output.len()),
            Uneven::AllGather { .. } | Uneven::ReduceScatter { .. } => {
                unreachable!("all ranks know their counts")
            }
        }
        Ok(())
    }

    /// Adds a message with its part to every rank, or to every other one. Returns the length of
    /// this rank's own part.
    fn send_parts(
        &mut self,
        parts: Parts<'_>,
        element: usize,
        input: &[u8],
        (own, size): Ranks,
        keeps_own: bool,
    ) -> Result<usize, String> {
        let mut kept = 0;
        parts.each(element, input.len(), size, |rank, range| {
            if rank == own.index() {
                kept = range.len();
            }
            if rank != own.index() || !keeps_own {
                self.send(Rank::at(rank), range);
            }
        })?;
        Ok(kept)
    }

    /// Adds a message from every rank, or from every other one, to its part. Returns the length of
    /// this rank's own part.
    fn receive_parts(
        &mut self,
        parts: Parts<'_>,
        element: usize,
        output: &mut [u8],
        (own, size): Ranks,
        keeps_own: bool,
    ) -> Result<usize, String> {
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.clear();
        parts.each(element, output.len(), size, |_, range| ranges.push(range))?;
        split(output, &ranges, |_, _| ())?;
        for (rank, range) in (0..).map(Rank).zip(&ranges) {
            if rank != own || !keeps_own {
                self.receive(rank, range.clone());
            }
        }
        let kept = ranges[own.index()].len();
        self.ranges = ranges;
        Ok(kept)
    }
}
