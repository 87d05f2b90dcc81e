//! The receives whose elements land side by side. A rank knows them from the beginning, so it can
//! tell its transport early where a long stretch of a stream is wanted.
//!
//! From the announcement until an element is received, a peer may write it. So the stretch is
//! announced after all operations of the lane that touch its memory before the receives. No other
//! lane touches memory of this one, which `check` proves.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ringfold_types::{Buffer, Rank, Slice};

use super::{Expected, Op, Stores, place};
use crate::schedule::{Form, Source};

/// Finds the stretches of a lane that have at least `least` bytes. Of one rank, they are in the
/// order of its stream.
pub(super) fn expected(
    ops: &[Op],
    sources: &[Source],
    least: usize,
    overlay: Option<isize>,
    shift: impl Fn(Form) -> u32,
) -> Vec<Expected> {
    let mut touched = Touched { overlay, ranges: BTreeMap::new() };
    let mut streams: BTreeMap<Rank, Stream> = BTreeMap::new();
    let mut found = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        match op {
            Op::Receive { from, dst, stores } => {
                let stream = streams.entry(*from).or_default();
                let after = touched.last(*dst);
                match &mut stream.open {
                    Some((begin, open))
                        if open.dst.buffer == dst.buffer
                            && open.dst.end() == dst.offset
                            && after <= *begin
                            && *stores != Stores::Streaming =>
                    {
                        open.dst.len += dst.len;
                        open.after = open.after.max(after);
                    }
                    _ => {
                        found.extend(stream.close());
                        let it = Expected { from: *from, dst: *dst, after, skip: stream.bytes() };
                        stream.open = (*stores != Stores::Streaming).then_some((at, it));
                    }
                }
                stream.receive(at, dst.len << shift(Form::of(dst.buffer)));
            }
            Op::Reduce { dst, sources: of, .. } => {
                for source in &sources[of.start as usize..of.end as usize] {
                    if let Source::Wire(from, form) = source {
                        let stream = streams.entry(*from).or_default();
                        found.extend(stream.close());
                        stream.receive(at, dst.len << shift(*form));
                    }
                }
            }
            _ => {}
        }
        op.slices(sources, |slice| touched.mark(slice, at + 1));
    }
    found.extend(streams.values_mut().filter_map(Stream::close));
    found.retain(|(_, it)| it.dst.len << shift(Form::of(it.dst.buffer)) >= least.max(1));
    found.sort_by_key(|(begin, _)| *begin);
    found.into_iter().map(|(_, it)| it).collect()
}

/// The bytes that a lane receives from one rank.
#[derive(Default)]
struct Stream {
    /// All bytes up to each operation that receives some, with the index after it.
    received: Vec<(usize, usize)>,
    /// The last stretch, with the index of its first operation. Its `skip` counts from the
    /// beginning of the stream.
    open: Option<(usize, Expected)>,
}

impl Stream {
    fn bytes(&self) -> usize {
        self.received.last().map_or(0, |(_, bytes)| *bytes)
    }

    fn receive(&mut self, at: usize, bytes: usize) {
        self.received.push((at + 1, self.bytes() + bytes));
    }

    /// Ends the last stretch. Its `skip` then counts from its operation `after`.
    fn close(&mut self) -> Option<(usize, Expected)> {
        let (begin, mut it) = self.open.take()?;
        let before = self.received.partition_point(|(end, _)| *end <= it.after);
        let before = before.checked_sub(1).map_or(0, |last| self.received[last].1);
        it.skip -= before;
        Some((begin, it))
    }
}

/// The last operation that touched each element so far.
struct Touched {
    overlay: Option<isize>,
    /// By buffer and first element: the end of a range, and the index after the operation.
    ranges: BTreeMap<(Buffer, isize), (isize, usize)>,
}

impl Touched {
    /// The index after the last operation that touched an element of `slice`, or 0.
    fn last(&self, slice: Slice) -> usize {
        let (buffer, start) = place(self.overlay, slice);
        let end = start + slice.len.cast_signed();
        let before = self.ranges.range(..(buffer, end)).rev();
        let of_it = before.take_while(|((of, _), (to, _))| *of == buffer && *to > start);
        of_it.map(|(_, (_, after))| *after).max().unwrap_or(0)
    }

    fn mark(&mut self, slice: Slice, after: usize) {
        let (buffer, start) = place(self.overlay, slice);
        let end = start + slice.len.cast_signed();
        if start == end {
            return;
        }
        // The ranges are disjoint. Parts beside the new one stay.
        while let Some((&(of, from), &(to, before))) =
            self.ranges.range(..(buffer, end)).next_back()
            && of == buffer
            && to > start
        {
            self.ranges.remove(&(of, from));
            if from < start {
                self.ranges.insert((of, from), (start, before));
            }
            if to > end {
                self.ranges.insert((of, end), (to, before));
            }
        }
        self.ranges.insert((buffer, start), (end, after));
    }
}
