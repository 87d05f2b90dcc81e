//! The bills of the levels of a call: between hosts and within them.

use ringfold_topology::Layout;
use ringfold_types::Call;

use crate::algorithm::Algorithm;
use crate::cost::bill::{Bill, Site};
use crate::cost::rates::{Rates, WOKEN_PS, longer_ps};
use crate::schedule::Form;

/// The bill of `call` by `algorithm` among the carriers of each shard, one on each host.
pub(crate) fn between(
    algorithm: &Algorithm,
    call: &Call,
    layout: &Layout,
    shards: usize,
    chunk: usize,
) -> Bill {
    among(algorithm, call, layout, [layout.hosts(), shards], chunk)
}

/// The same among carriers of a shard on `size` hosts only.
pub(crate) fn among(
    algorithm: &Algorithm,
    call: &Call,
    layout: &Layout,
    [size, shards]: [usize; 2],
    chunk: usize,
) -> Bill {
    let rail = Layout::apart(size);
    let site = Site::between(layout, &rail, shards);
    let bill = Bill::of(algorithm, call, &site, chunk);
    // Only the carriers work.
    let carriers = (layout.hosts() * shards) as u128;
    Bill { work: bill.work * carriers / layout.size() as u128, ..bill }
}

/// The messages within a host.
pub(crate) struct Within {
    /// Messages that wait for each other.
    pub(crate) steps: usize,
    /// Messages that the busiest rank sends or receives, whichever is more.
    pub(crate) messages: usize,
    /// The elements of those messages.
    pub(crate) moved: usize,
    /// The elements that a rank receives on average.
    pub(crate) average: usize,
    /// The elements that the busiest rank combines.
    pub(crate) combined: usize,
}

impl Within {
    /// The bill of the messages, if pipelines pass on `chunk` elements at a time. Ranks that share
    /// a CPU take turns as they do between hosts: `switch_ps`.
    pub(crate) fn bill(&self, call: &Call, layout: &Layout, switch_ps: u128, chunk: usize) -> Bill {
        let bytes =
            |elements: usize, form: Form| elements as u128 * form.data_type(call).bytes() as u128;
        let Rates { near, combined_byte_ps, .. } = Rates::of(layout);
        let [messages, steps] = [self.messages, self.steps].map(|it| it as u128);
        let moved = bytes(self.moved, Form::Element);
        let combined = bytes(self.combined, Form::Accumulator) * combined_byte_ps;
        // Ranks of one host never wait for a network.
        let may_sleep = layout.hosts() > 1 && layout.occupancy().is_oversubscribed();
        let woken = if may_sleep { steps * WOKEN_PS } else { 0 };
        let [message_ps, byte_ps] = near.work_ps;
        let message_ps = message_ps + longer_ps(messages, moved);
        let average = bytes(self.average, Form::Element);
        let pieces = messages.max((self.moved / chunk) as u128);
        Bill {
            steps,
            waiting: steps * near.latency_ps,
            switch_ps,
            woken: steps,
            busy: messages * near.message_ps + moved * near.byte_ps + combined + woken,
            network: 0,
            work: pieces * message_ps + average * byte_ps + combined,
        }
    }
}

/// The bill of messages between hosts with those within hosts beside them, in `turns` turns. The
/// messages within a host overlap the next turn's messages between hosts.
pub(crate) fn overlapped(between: &Bill, within: &Bill, turns: usize) -> Bill {
    let longer = between.busy.max(within.busy);
    let shorter = between.busy.min(within.busy);
    Bill { busy: longer + shorter / turns as u128, ..between.and(within) }
}
