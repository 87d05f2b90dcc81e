//! The form in which partial results travel: as accumulators within a host, and between hosts in
//! the form that the call asks for.

use ringfold_topology::Layout;
use ringfold_types::{Call, Rank, Wire};

use crate::pattern::ring;
use crate::plan::{Member, ScheduleParams};
use crate::schedule::Form;

/// The form between hosts. It is `Accumulator` where the data type is its own accumulator.
pub(crate) const fn between_hosts(call: &Call) -> Form {
    match call.wire {
        Wire::Element if call.has_wire() => Form::Element,
        Wire::Element | Wire::Accumulator => Form::Accumulator,
    }
}

/// The form on a link between two ranks.
fn on_link(call: &Call, layout: &Layout, [from, to]: [Rank; 2]) -> Form {
    if layout.same_host(from, to) { Form::Accumulator } else { between_hosts(call) }
}

/// The form on all links alike, for patterns in which both partners combine what both sent. They
/// get the same bits only if both round, or neither does.
pub(crate) fn among_all(call: &Call, layout: &Layout) -> Form {
    if layout.hosts() > 1 { between_hosts(call) } else { Form::Accumulator }
}

impl ScheduleParams<'_> {
    /// The form of partial results on the link from `from` to `to`.
    pub(crate) fn sums_form(&self, from: Rank, to: Rank) -> Form {
        on_link(&self.call, self.layout, [from, to])
    }

    /// The form of partial results on all links alike.
    pub(crate) fn sums_form_among_all(&self) -> Form {
        among_all(&self.call, self.layout)
    }
}

impl Member {
    /// The forms in which partial sums arrive from the previous rank of a ring and leave for the
    /// next.
    pub(crate) fn ring_forms(&self, plan: &ScheduleParams<'_>) -> [Form; 2] {
        let at = |place: Rank| self.order.at(place.index());
        let [previous, next] =
            [ring::before, ring::after].map(|of| at(of(self.place, 1, plan.size())));
        [plan.sums_form(previous, plan.rank), plan.sums_form(plan.rank, next)]
    }
}
