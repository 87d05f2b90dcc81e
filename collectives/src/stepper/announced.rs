//! The announcements of a lane's receives.

use ringfold_types::{Rank, Slice};

use super::ports::Ports;
use crate::program::{Expected, Op, Program};
use crate::schedule::{Form, Source};

/// The stretches that a lane has announced.
#[derive(Debug)]
pub(super) struct Announced {
    /// The operation from which on the next stretch may be announced.
    pub(super) due: usize,
    /// The number of stretches that were announced.
    count: usize,
    /// The operations up to here are counted.
    counted_to: usize,
    /// The bytes that these operations have received from the sender of the next stretch, since it
    /// was due.
    counted: usize,
}

impl Default for Announced {
    fn default() -> Self {
        Self::begin(&[])
    }
}

impl Announced {
    #[inline]
    pub(super) fn begin(all: &[Expected]) -> Self {
        let due = all.first().map_or(usize::MAX, |first| first.after);
        Self { due, count: 0, counted_to: due, counted: 0 }
    }

    fn next(&mut self, all: &[Expected]) {
        self.count += 1;
        let due = all.get(self.count).map_or(usize::MAX, |next| next.after);
        *self = Self { due, counted_to: due, counted: 0, ..*self };
    }

    /// Announces the stretches that are due for a lane that has come to an operation, of which some
    /// elements are done. It waits while elements that have not left are in their place.
    #[cold]
    pub(super) fn announce<P: Ports>(
        &mut self,
        program: &Program,
        lane: usize,
        (at, done): (usize, usize),
        is_free: impl Fn(Slice) -> bool,
        ports: &mut P,
    ) {
        let (all, ops) = (program.expected(lane), &program.lanes()[lane]);
        while self.due <= at
            && let Some(&Expected { from, dst, skip, .. }) = all.get(self.count)
        {
            for op in ops.get(self.counted_to..at).unwrap_or_default() {
                self.counted += received(program, op, from, None);
            }
            self.counted_to = at;
            let of_now = ops.get(at).map_or(0, |op| received(program, op, from, Some(done)));
            let received = self.counted + of_now;
            let late = received.saturating_sub(skip) >> program.shift(Form::of(dst.buffer));
            let dst = dst.skip(late.min(dst.len));
            let skip = skip.saturating_sub(received);
            if !is_free(dst) || dst.len > 0 && !ports.expect(lane, from, skip, dst) {
                return;
            }
            self.next(all);
        }
    }
}

/// The bytes that an operation receives from a rank, or the bytes of its first `done` elements.
fn received(program: &Program, op: &Op, from: Rank, done: Option<usize>) -> usize {
    match op {
        Op::Receive { from: of, dst, .. } if *of == from => {
            done.unwrap_or(dst.len) << program.shift(Form::of(dst.buffer))
        }
        Op::Reduce { dst, sources, .. } => {
            let bytes = |source: &Source| match source {
                Source::Wire(of, form) if *of == from => {
                    done.unwrap_or(dst.len) << program.shift(*form)
                }
                _ => 0,
            };
            program.sources(sources).iter().map(bytes).sum()
        }
        _ => 0,
    }
}
