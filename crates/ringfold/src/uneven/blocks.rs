//! The uneven collectives whose counts all ranks know. They run schedules, as even ones do.

use std::ops::Range;

use ringfold_collectives::Blocks;
use ringfold_types::{Call, Collective, UnevenCall};

use super::check_len;
use crate::arguments::check_count;
use crate::buffers::{Buffers, Place, User};
use crate::cache::Request;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::parts::{Parts, split};

/// The bytes of a part in its buffer.
type Bytes = Range<usize>;

impl Communicator {
    /// Gives every rank all parts, or reduces each part of all inputs on its rank. A call that
    /// repeats the latest one needs no checks.
    pub(super) fn perform_known(
        &mut self,
        uneven: &UnevenCall,
        parts: Parts<'_>,
        mut buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let Some(collective) = uneven.collective.scheduled_as() else {
            unreachable!("all ranks know the counts")
        };
        let latest = {
            let (cache, place) = (&self.engine()?.core.cache, Place::of(&buffers));
            cache.latest_blocks((collective, uneven.data_type), parts, place).cloned()
        };
        let (call, blocks) = match latest {
            Some(blocks) => (self.scheduled(uneven, collective, &blocks), blocks),
            None => self.known(uneven, parts, &mut buffers)?,
        };
        let request = Request { blocks: Some(&blocks), ..Request::ordinary(&call, &buffers) };
        self.perform_request(request, User::Private(&mut buffers))
    }

    /// The call and the blocks of its schedule.
    ///
    /// # Errors
    /// The parts do not fit the buffers.
    pub(super) fn known(
        &self,
        uneven: &UnevenCall,
        parts: Parts<'_>,
        buffers: &mut Buffers<'_>,
    ) -> Result<(Call, Blocks), Error> {
        let Some(collective) = uneven.collective.scheduled_as() else {
            unreachable!("all ranks know the counts")
        };
        let blocks = self.blocks_of(uneven, collective, parts, buffers);
        let blocks = blocks.map_err(self.refusal(uneven))?;
        Ok((self.scheduled(uneven, collective, &blocks), blocks))
    }

    fn scheduled(&self, uneven: &UnevenCall, collective: Collective, blocks: &Blocks) -> Call {
        let UnevenCall { data_type, op, root, .. } = *uneven;
        Call { collective, count: blocks.longest(), data_type, op, root, wire: self.wire() }
    }

    /// The blocks that the parts of a call are.
    ///
    /// # Errors
    /// A text that says why the parts do not fit the buffers.
    fn blocks_of(
        &self,
        uneven: &UnevenCall,
        collective: Collective,
        parts: Parts<'_>,
        buffers: &mut Buffers<'_>,
    ) -> Result<Blocks, String> {
        let (own, size, element) = (self.rank().index(), self.size(), uneven.data_type.bytes());
        let is_gathered = collective == Collective::AllGather;
        let whole = match buffers {
            Buffers::Apart { output, .. } if is_gathered => output.len(),
            Buffers::Apart { input, .. } => input.len(),
            Buffers::InPlace(both) => both.len(),
        };
        let ranges = parts.ranges(element, whole, size)?;
        match buffers {
            Buffers::Apart { input, output } if is_gathered => {
                split(output, &ranges, |_, _| ())?;
                check_len("input", input.len(), ranges[own].len())?;
            }
            Buffers::Apart { output, .. } => check_len("output", output.len(), ranges[own].len())?,
            Buffers::InPlace(both) if is_gathered => split(both, &ranges, |_, _| ())?,
            Buffers::InPlace(_) if is_overlapped(&ranges[own], &ranges) => {
                return Err("the own part of the buffer overlaps others".to_owned());
            }
            Buffers::InPlace(_) => {}
        }
        let elements = |range: &Bytes| range.start / element..range.end / element;
        let blocks = Blocks::new(ranges.iter().map(elements));
        check_count(blocks.longest(), size)?;
        Ok(blocks)
    }
}

/// Whether a part other than `own` shares bytes with it.
fn is_overlapped(own: &Bytes, ranges: &[Bytes]) -> bool {
    let shares = |it: &&Bytes| !it.is_empty() && it.start < own.end && own.start < it.end;
    !own.is_empty() && ranges.iter().filter(shares).count() > 1
}
