//! The prices of the ways to spread a call, and the cheapest way.

use ringfold_topology::Layout;
use ringfold_types::Call;

use super::levels::{Groups, Levels, RAILS};
use crate::cost::bill::{Bill, Site};
use crate::cost::rates::{CONGESTED_QUARTERS, LinkCost, Rates, TURN_PS, WOKEN_PS, longer_ps};
use crate::schedule::Form;
use crate::wire;

/// The cheapest way to spread `call`. The ways differ only between the hosts.
pub(super) fn cheapest(call: &Call, layout: &Layout) -> Levels {
    // Ways with equally many units share their layout, which takes time in proportion to them.
    let mut units = Layout::apart(0);
    let price = |levels: &Levels| {
        if units.size() != levels.units() {
            units = Layout::apart(levels.units());
        }
        between(levels, &units, call, layout, usize::MAX).total(layout)
    };
    let cheapest = Levels::all(call, layout).min_by_key(price);
    cheapest.unwrap_or_else(|| Levels::new(call, layout, None, RAILS[0]))
}

/// The bill of `levels.rail` between leaf groups, or between hosts, and of the two shots within
/// groups. Only the carriers of shards take part, whose units are apart in `units`.
fn between(levels: &Levels, units: &Layout, call: &Call, layout: &Layout, chunk: usize) -> Bill {
    let Levels { shards, rail, rail_call, .. } = levels;
    let size = units.size();
    let site = Site::between(layout, units, *shards);
    let bill = Bill::of(rail.algorithm, rail_call, &site, chunk);
    let work = bill.work * (size * levels.parts() * shards) as u128 / layout.size() as u128;
    let bill = Bill { work, ..bill };
    match levels.groups {
        Some(groups) => bill.and(&in_group(levels, groups, call, layout)),
        None => bill,
    }
}

/// The bill of two shots within each leaf group.
///
/// They take longer for each byte than a ring does, since many ranks send to one. A level of groups
/// saves steps, and so it wins for shorter messages. For longer ones the ring between all hosts
/// wins. In fabric order a rank of it sends as many bytes, and each group sends hardly more across
/// spines: twice the buffer, of which a level of groups saves one group's part.
fn in_group(levels: &Levels, groups: Groups, call: &Call, layout: &Layout) -> Bill {
    let bytes = |form: Form| form.data_type(call).bytes() as u128;
    // Carriers send sums of their hosts, if these have several ranks.
    let form = if levels.most > 1 { wire::between_hosts(call) } else { Form::Element };
    let [handed_on, results] = [groups.parts - 1, groups.most - 1].map(|others| others as u128);
    let part = levels.rail_call.count as u128;
    let rates = Rates::of(layout);
    let combined = results * part * bytes(Form::Accumulator) * rates.combined_byte_ps;
    let moved = part * (handed_on * bytes(form) + results * bytes(Form::Element));
    let LinkCost { latency_ps, message_ps, work_ps, .. } = rates.far;
    let byte_ps = rates.congested_byte_ps(levels.shards as u128, CONGESTED_QUARTERS);
    let messages = handed_on + results;
    let work = messages * work_ps[0] + moved * work_ps[1] + combined;
    Bill {
        steps: 2,
        waiting: 2 * latency_ps,
        switch_ps: TURN_PS,
        woken: 0,
        busy: messages * message_ps + moved * byte_ps + combined,
        network: moved * rates.network_byte_ps(byte_ps),
        work: work * (levels.hosts * levels.shards) as u128 / layout.size() as u128,
    }
}

/// The price of a call in picoseconds, if pipelines pass on `chunk` elements at a time.
pub(super) fn price(call: &Call, layout: &Layout, chunk: usize) -> u128 {
    let levels = cheapest(call, layout);
    let between = between(&levels, &Layout::apart(levels.units()), call, layout, chunk);
    let bill = match levels.most {
        0..=1 => between,
        _ => between.and(&within(&levels, call, layout, between.switch_ps, chunk)),
    };
    bill.total(layout)
}

/// The bill of two shots within each host. Ranks that share a CPU take turns as they do between
/// hosts.
fn within(levels: &Levels, call: &Call, layout: &Layout, switch_ps: u128, chunk: usize) -> Bill {
    let Levels { most, shards, .. } = *levels;
    let bytes = |form: Form| form.data_type(call).bytes() as u128;
    let (shard, others) = ((call.count / shards) as u128, (shards - 1 + most - 1) as u128);
    let Rates { near, combined_byte_ps, .. } = Rates::of(layout);
    let combined = (most - 1) as u128 * shard * bytes(Form::Accumulator) * combined_byte_ps;
    let moved = others * shard * bytes(Form::Element);
    let within = others * near.message_ps + moved * near.byte_ps + combined;
    let woken = if layout.occupancy().is_oversubscribed() { 2 * WOKEN_PS } else { 0 };
    // Each rank sends its input and receives the result, except for its own shard.
    let [message_ps, byte_ps] = near.work_ps;
    let message_ps = message_ps + longer_ps(others, moved);
    let average = 2 * (most - 1) as u128 * shards as u128 * shard / most as u128;
    let messages = others.max(others * shard / chunk as u128);
    let work = messages * message_ps + average * bytes(Form::Element) * byte_ps + combined;
    let busy = within + woken;
    let waiting = 2 * near.latency_ps;
    Bill { steps: 2, waiting, switch_ps, woken: 2, busy, network: 0, work }
}
