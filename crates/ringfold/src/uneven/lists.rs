//! The messages of an uneven call whose counts no rank knows all of.

use ringfold_types::Rank;

use super::{Uneven, check_len};
use crate::buffers::{AlignedBytes, Buffers};
use crate::messages::{Incoming, Lists, Outgoing};
use crate::parts::{Parts, split};

/// This rank, and the number of ranks.
type Ranks = (Rank, usize);

impl<'b> Lists<'b> {
    /// Adds the messages of an all-to-all, a gather or a scatter of elements of `element` bytes,
    /// and copies this rank's own part. An all-to-all in place sends from a `copy`.
    ///
    /// # Errors
    /// A text that says why the parts do not fit the buffers. Nothing is copied then.
    pub(super) fn fill(
        &mut self,
        uneven: &Uneven<'_>,
        element: usize,
        (buffers, copy): (&'b mut Buffers<'_>, &'b mut AlignedBytes),
        ranks: Ranks,
    ) -> Result<(), String> {
        match *uneven {
            Uneven::AllToAll { send, recv } => {
                let send = if matches!(buffers, Buffers::InPlace(_)) { recv } else { send };
                let Buffers::Apart { input, output } = buffers.apart(true, copy) else {
                    unreachable!("a copy is apart")
                };
                let sent = self.send(send, element, input, ranks)?;
                let kept = self.receive(recv, element, output, ranks)?;
                check_len("own part of the output", kept, sent.len())?;
                kept.copy_from_slice(sent);
            }
            Uneven::Gather { root, parts } if root == ranks.0 => match buffers {
                Buffers::Apart { input, output } => {
                    let kept = self.receive(parts, element, output, ranks)?;
                    check_len("input", input, kept.len())?;
                    kept.copy_from_slice(input);
                }
                Buffers::InPlace(both) => {
                    self.receive(parts, element, both, ranks)?;
                }
            },
            Uneven::Gather { root, .. } => {
                let input: &[u8] = match buffers {
                    Buffers::Apart { input, .. } => input,
                    Buffers::InPlace(both) => both,
                };
                self.outgoing.push(Outgoing::new(input, root, 0));
            }
            Uneven::Scatter { root, parts } if root == ranks.0 => match buffers {
                Buffers::Apart { input, output } => {
                    let sent = self.send(parts, element, input, ranks)?;
                    check_len("output", output, sent.len())?;
                    output.copy_from_slice(sent);
                }
                Buffers::InPlace(both) => {
                    self.send(parts, element, both, ranks)?;
                }
            },
            Uneven::Scatter { root, .. } => {
                let (Buffers::Apart { output, .. } | Buffers::InPlace(output)) = buffers;
                self.incoming.push(Incoming::new(output, root, 0));
            }
            Uneven::AllGather { .. } | Uneven::ReduceScatter { .. } => {
                unreachable!("all ranks know their counts")
            }
        }
        Ok(())
    }

    /// Adds a message with its part to every other rank. Returns this rank's own part.
    fn send(
        &mut self,
        parts: Parts<'_>,
        element: usize,
        input: &'b [u8],
        (own, size): Ranks,
    ) -> Result<&'b [u8], String> {
        let mut kept: &[u8] = &[];
        parts.each(element, input.len(), size, |rank, range| match &input[range] {
            part if rank == own.index() => kept = part,
            part => self.outgoing.push(Outgoing::new(part, Rank::at(rank), 0)),
        })?;
        Ok(kept)
    }

    /// Adds a message from every other rank to its part. Returns this rank's own part.
    fn receive(
        &mut self,
        parts: Parts<'_>,
        element: usize,
        output: &'b mut [u8],
        (own, size): Ranks,
    ) -> Result<&'b mut [u8], String> {
        let Self { incoming, ranges, .. } = self;
        ranges.clear();
        parts.each(element, output.len(), size, |_, range| ranges.push(range))?;
        let mut kept: &mut [u8] = &mut [];
        split(output, ranges, |rank, part| match rank == own.index() {
            true => kept = part,
            false => incoming.push(Incoming::new(part, Rank::at(rank), 0)),
        })?;
        Ok(kept)
    }
}
