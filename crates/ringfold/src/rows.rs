//! How short parts of a stage lie so that another core gets them soon.
//!
//! Lines that a core has written and still has in its first cache reach another core at a third of
//! the rate of those in its second (8 and 23 GB/s between two cores of Sapphire Rapids). So what
//! would stay in the first lies in rows a page apart, all in the same sets of that cache: they are
//! more than these have room for, and the more so as the core goes on to read the other's rows. So
//! presumably most of them are in the second by the time that they are read.

use std::ops::{Range, RangeInclusive};

use ringfold_collectives::Schedule;

/// Rows of a part, more than the first caches of CPUs have ways (8 to 12). To copy more of them
/// takes longer: 24 gain less, and 32 next to nothing.
const ROWS: usize = 16;

/// From the beginning of one to that of the next: a page, by which those caches are indexed.
const APART_BYTES: usize = 4096;

/// Bytes of a part that is laid out so: shorter ones are not worth the time, of longer ones enough
/// leaves the first cache by itself.
const PART_BYTES: RangeInclusive<usize> = 4 * 1024..=TAKEN_BYTES;

/// What is to be combined is taken out of the rows first, all at once: so many bytes at most. A
/// reduction of row after row would wait for each.
pub(crate) const TAKEN_BYTES: usize = 16 * 1024;

/// A part of a stage that lies in rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    part: usize,
}

impl Rows {
    /// Of a part of so many bytes, if rows are for such.
    #[inline]
    pub(crate) fn of(part: usize) -> Option<Self> {
        PART_BYTES.contains(&part).then_some(Self { part })
    }

    /// What a part that begins at byte `start` of a stage takes of it.
    pub(crate) const fn span(start: usize) -> Range<usize> {
        start..start + ROWS * APART_BYTES
    }

    /// The bytes of each row, and where they lie in the span.
    pub(crate) fn places(self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        // No line is in two rows.
        let each = self.part.div_ceil(ROWS).next_multiple_of(64);
        let rows = (0..self.part).step_by(each).zip((0..).step_by(APART_BYTES));
        rows.map(move |(begin, at)| {
            let len = each.min(self.part - begin);
            (begin..begin + len, at..at + len)
        })
    }
}

/// Whether parts of the stages may lie in rows. Who trades stages writes and reads each part whole,
/// and each begins where the stage does: so whoever may touch a part may touch all that its rows
/// take, which the proofs of schedules know nothing of.
pub(crate) const fn are_for(schedule: &Schedule) -> bool {
    schedule.trades_stages()
}

#[cfg(test)]
mod tests {
    use ringfold_collectives::{Algorithm, Plan, Schedule, Source, Step};
    use ringfold_topology::Layout;
    use ringfold_types::limits::STAGE_HALF_BYTES;
    use ringfold_types::{Buffer, Call, Collective, DataType, Rank, ReduceOp, Slice};

    use super::{PART_BYTES, ROWS, Rows, are_for};

    #[test]
    fn rows_are_all_of_a_part_and_apart() {
        for part in PART_BYTES {
            let (mut next, mut end, mut count) = (0, 0, 0);
            for (bytes, place) in Rows::of(part).unwrap().places() {
                assert_eq!((bytes.start, bytes.len()), (next, place.len()), "{part}");
                assert!(place.start >= end && place.start.is_multiple_of(64));
                (next, end, count) = (bytes.end, place.end, count + 1);
            }
            assert!(next == part && end <= Rows::span(0).len() && count > 12, "{part}: {count}");
        }
        assert!(ROWS > 12 && Rows::span(0).end <= STAGE_HALF_BYTES);
        let [shorter, longer] = [PART_BYTES.start() - 1, PART_BYTES.end() + 1];
        assert!(Rows::of(shorter).is_none() && Rows::of(longer).is_none());
    }

    #[test]
    fn they_are_for_what_two_ranks_write_and_read_whole() {
        let mut found = 0;
        for algorithm in Collective::ALL.into_iter().flat_map(Algorithm::of) {
            for (ranks, count) in [(2, 3000), (2, 1 << 20), (3, 3000)] {
                let (data_type, op) = (DataType::F32, ReduceOp::Sum);
                let collective = algorithm.collective;
                let call = Call { collective, count, data_type, op, root: Rank(0) };
                let layout = &Layout::one_host(ranks).sharing_memory(true);
                let plan = Plan { call, layout, rank: Rank(1), chunk: 1000, window_bytes: 4096 };
                let schedule = (algorithm.schedule)(&plan);
                if !are_for(&schedule) {
                    continue;
                }
                found += 1;
                let (written, read) = stage_parts(&schedule);
                let begins = |slice: &Slice| slice.buffer == Buffer::Stage && slice.offset == 0;
                assert!(ranks == 2 && !written.is_empty(), "{algorithm} on {ranks}");
                assert!(written == read && read.iter().all(begins), "{algorithm} of {count}");
            }
        }
        // All-gather, reduce-scatter, and the short way of all-reduce, short and long.
        assert_eq!(found, 6);
    }

    /// What a rank writes to its stage, and reads of another's; it does nothing else with stages.
    fn stage_parts(schedule: &Schedule) -> (Vec<Slice>, Vec<Slice>) {
        let (mut written, mut read) = (Vec::new(), Vec::new());
        let no_stage = |slice: &Slice| assert_ne!(slice.buffer, Buffer::Stage, "{schedule}");
        for step in schedule.lanes().iter().flatten() {
            match step {
                Step::Copy { src, dst } => {
                    no_stage(src);
                    written.extend((dst.buffer == Buffer::Stage).then_some(*dst));
                }
                Step::Get { src, dst, .. } => {
                    no_stage(dst);
                    read.push(*src);
                }
                Step::Reduce { dst, sources } => {
                    // What is taken is in scratch.
                    assert_eq!(dst.buffer, Buffer::Output, "{schedule}");
                    for source in schedule.sources(sources) {
                        match source {
                            Source::Peer(_, slice) => read.push(*slice),
                            Source::Local(slice) => no_stage(slice),
                            Source::Wire(..) => {}
                        }
                    }
                }
                Step::Send { src: slice, .. } | Step::Recv { dst: slice, .. } => no_stage(slice),
                Step::Put { .. } | Step::Tell | Step::Hear { .. } | Step::Trade => {}
            }
        }
        (written, read)
    }
}
