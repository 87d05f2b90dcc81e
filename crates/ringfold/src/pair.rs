//! The shortest call: two ranks hand each other all they have, a cache line at most, and combine
//! it. What its schedule says is known before, so that nothing is looked up on the way.

use ringfold_collectives::{Form, Schedule, Source, Step};
use ringfold_reduce::{Kernel, Line};
use ringfold_transport::{EXCHANGE_BYTES, Exchanged, Link, copy};
use ringfold_types::{Buffer, Slice};

use crate::calls::Buffers;
use crate::engine::link;
use crate::plans::Mark;
use crate::router::Router;

/// A schedule of two ranks: each sends its input to the other and combines both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) mark: Mark,
    link: Link,
    kernel: Kernel,
}

/// A call that has begun as a pair's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// The tag of its bytes.
    pub(crate) tag: u32,
    /// How many of its schedule's steps are done.
    pub(crate) steps: usize,
}

impl Pair {
    /// Steps of such a schedule: the send and the reduction.
    pub(crate) const STEPS: usize = 2;

    /// What `schedule` says, if it is one.
    pub(crate) fn of(schedule: &Schedule, kernel: Kernel, mark: Mark) -> Option<Self> {
        let call = schedule.call();
        let whole = |buffer| Slice { buffer, offset: 0, len: call.count };
        let bytes = call.count * call.data_type.bytes();
        let [steps] = schedule.lanes() else { return None };
        let [Step::Send { to, src }, Step::Reduce { dst, sources }] = steps.as_slice() else {
            return None;
        };
        let (own, theirs) = (Source::Local(*src), Source::Wire(*to, Form::Element));
        let sources = schedule.sources(sources);
        let are_both = sources == [own, theirs] || sources == [theirs, own];
        let fits = (1..=EXCHANGE_BYTES).contains(&bytes);
        let is_pair =
            are_both && fits && *src == whole(Buffer::Input) && *dst == whole(Buffer::Output);
        is_pair.then_some(Self { mark, link: link(*to, 0), kernel })
    }

    /// Does all of it, at once or after `tries` more, on buffers of the call; how many steps are
    /// done. `line` is room for what comes. Why it got no further, the next step will say.
    #[inline]
    pub(crate) fn exchange(
        &self,
        router: &mut Router,
        line: &mut Line,
        tag: u32,
        tries: u32,
        buffers: &mut Buffers<'_>,
    ) -> usize {
        let &Self { link, ref kernel, .. } = self;
        let theirs = &mut line.0;
        let via = router.to(link);
        let (done, output) = match buffers {
            Buffers::Apart { input, output } => {
                let done = via.exchange(link, tag, input, theirs, tries);
                copy(output, input);
                (done, output)
            }
            Buffers::InPlace(both) => (via.exchange(link, tag, both, theirs, tries), both),
        };
        match done {
            Exchanged::Nothing => 0,
            Exchanged::Sent => 1,
            Exchanged::Both => {
                kernel.combine_line(output, line);
                Self::STEPS
            }
        }
    }
}
