//! The memory of one call.
#![allow(unsafe_code)]

use ringfold::{Buffers, Call, Rank};

use crate::region::Region;

/// The memory of a call out of place, or in place.
#[derive(Clone, Copy, Debug)]
pub enum Places {
    /// One region is the input and the output.
    InPlace(Region),
    /// Two regions, which lie apart.
    Apart {
        /// The call reads it.
        input: Region,
        /// The call writes it.
        output: Region,
    },
}

impl Places {
    /// The places of a call from its input and its output, which `both` places if there are both.
    /// One alone is in place, unless it is the input of a rank without an output. `None` if both
    /// overlap.
    #[inline]
    pub fn new(
        regions: [Option<Region>; 2],
        has_output: bool,
        both: impl FnOnce(Region, Region) -> Option<Self>,
    ) -> Option<Self> {
        Some(match regions {
            [Some(input), Some(output)] => return both(input, output),
            [Some(input), None] if !has_output => Self::Apart { input, output: Region::EMPTY },
            [Some(one), None] | [None, Some(one)] => Self::InPlace(one),
            [None, None] => Self::Apart { input: Region::EMPTY, output: Region::EMPTY },
        })
    }

    /// The places of `call` on a rank of a group of a size: in place if the shorter region is the
    /// very part of the longer one that a call in place uses. `None` if they overlap otherwise.
    #[inline]
    pub fn of_both(
        call: &Call,
        (rank, size): (Rank, usize),
        input: Region,
        output: Region,
    ) -> Option<Self> {
        let apart = Self::apart(input, output);
        if apart.is_some() {
            return apart;
        }
        let element = call.data_type.bytes();
        let [from, into] = call.in_place_at(rank).map(|at| at * element);
        let is_one = input.start().wrapping_add(into) == output.start().wrapping_add(from)
            && input.bytes() == call.input_of(rank, size) * element
            && output.bytes() == call.output_of(rank, size) * element;
        let is_longer = input.bytes() > output.bytes();
        is_one.then_some(Self::InPlace(if is_longer { input } else { output }))
    }

    /// Two regions, or `None` if they overlap.
    #[inline]
    pub fn apart(input: Region, output: Region) -> Option<Self> {
        (!input.overlaps(output)).then_some(Self::Apart { input, output })
    }

    /// The buffers of the call.
    ///
    /// # Safety
    /// The memory belongs to the caller. Nobody else accesses it during `'a`. The regions of a call
    /// out of place do not overlap.
    #[inline]
    pub const unsafe fn buffers<'a>(self) -> Buffers<'a> {
        // SAFETY: the contract.
        match unsafe { self.bytes() } {
            (None, both) => Buffers::InPlace(both),
            (Some(input), output) => Buffers::Apart { input, output },
        }
    }

    /// The bytes of a call that is started: its input, unless it is in place, and its output.
    ///
    /// # Safety
    /// As for [`buffers`](Self::buffers), until the call has ended.
    #[inline]
    pub const unsafe fn bytes<'a>(self) -> (Option<&'a [u8]>, &'a mut [u8]) {
        // SAFETY: the contract; the memory of a call out of place lies apart.
        unsafe {
            match self {
                Self::InPlace(both) => (None, both.slice_mut()),
                Self::Apart { input, output } => (Some(input.slice()), output.slice_mut()),
            }
        }
    }

    /// The output of a call in place, to which the input is copied if there is one.
    ///
    /// # Safety
    /// As for [`bytes`](Self::bytes). Both have the same length.
    pub unsafe fn copied<'a>(self) -> &'a mut [u8] {
        // SAFETY: the contract.
        let (input, output) = unsafe { self.bytes() };
        if let Some(input) = input {
            output.copy_from_slice(input);
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use ringfold::{Collective, DataType, ReduceOp, Wire};

    use super::*;

    fn shown(collective: Collective, regions: [Option<(usize, usize)>; 2]) -> String {
        let (data_type, op, root, wire) = (DataType::F32, ReduceOp::Sum, Rank(0), Wire::Element);
        let call = Call { collective, count: 2, data_type, op, root, wire };
        let region = |(start, bytes)| Region::new(without_provenance_mut(start), bytes).unwrap();
        let both = |input, output| Places::of_both(&call, (Rank(1), 3), input, output);
        let places = Places::new(regions.map(|it| it.map(region)), call.has_output(Rank(1)), both);
        let shown = |region: Region| format!("{}+{}", region.start().addr(), region.bytes());
        match places {
            None => "overlap".to_owned(),
            Some(Places::InPlace(both)) => shown(both),
            Some(Places::Apart { input, output }) => format!("{} {}", shown(input), shown(output)),
        }
    }

    #[test]
    fn a_call_is_in_place_in_the_very_part() {
        use Collective::{AllGather, AllReduce, Reduce, ReduceScatter};
        for (collective, input, output, expected) in [
            (AllReduce, Some((64, 8)), None, "64+8"),
            (AllReduce, None, Some((64, 8)), "64+8"),
            (AllReduce, Some((64, 8)), Some((64, 8)), "64+8"),
            (AllReduce, Some((64, 8)), Some((72, 8)), "64+8 72+8"),
            (AllReduce, Some((64, 8)), Some((68, 8)), "overlap"),
            (AllGather, Some((72, 8)), Some((64, 24)), "64+24"),
            (AllGather, Some((64, 8)), Some((64, 24)), "overlap"),
            (ReduceScatter, Some((64, 24)), Some((72, 8)), "64+24"),
            (ReduceScatter, Some((64, 24)), Some((80, 8)), "overlap"),
            (Reduce, Some((64, 8)), None, "64+8 0+0"),
            (AllReduce, None, None, "0+0 0+0"),
            (AllReduce, Some((64, 16)), Some((64, 8)), "overlap"),
            (AllReduce, Some((64, 8)), Some((64, 16)), "overlap"),
            (AllReduce, Some((64, 0)), Some((64, 0)), "64+0 64+0"),
        ] {
            assert_eq!(shown(collective, [input, output]), expected, "{collective}");
        }
    }
}
