//! Collectives whose parts may differ in length.
#![allow(unsafe_code)]

use std::sync::Arc;

use pyo3::prelude::*;
use ringfold::{Collective, Parts, Rank, ReduceOp, Uneven};
use ringfold_foreign::Places;

use crate::call::{
    Arguments, Called, Common, Given, dispatch, element_of, elements, memories, shape, start,
};
use crate::element::operation;
use crate::fault::raise;
use crate::queue::{CallQueue, Fault};
use crate::region::overlap;

/// The lengths of the parts of a buffer, and where they begin, both in elements.
#[derive(Clone, Default)]
struct OwnedParts {
    counts: Vec<usize>,
    displacements: Option<Vec<usize>>,
}

impl OwnedParts {
    /// The parts that a caller means: a sequence of counts, or a tuple of counts and displacements.
    fn new(parts: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Self> {
        let Some(parts) = parts.filter(|parts| !parts.is_none()) else {
            return Ok(Self::default());
        };
        if let Ok(counts) = parts.extract() {
            return Ok(Self { counts, displacements: None });
        }
        let (counts, displacements) = parts.extract().map_err(|_| {
            let text = format!(
                "{name} are no parts; pass a sequence of counts in elements, or a tuple of counts \
                 and displacements"
            );
            raise(parts.py(), Fault::Argument(text))
        })?;
        Ok(Self { counts, displacements: Some(displacements) })
    }

    fn scale(&mut self, by: usize) {
        let all = self.counts.iter_mut().chain(self.displacements.iter_mut().flatten());
        // A product beyond the address space leaves its buffer, which the call refuses.
        all.for_each(|number| *number = number.saturating_mul(by));
    }

    fn borrow(&self) -> Parts<'_> {
        match &self.displacements {
            None => Parts::new(&self.counts),
            Some(displacements) => Parts::at(&self.counts, displacements),
        }
    }
}

/// An uneven collective, with the parts that this rank knows.
struct OwnedUneven {
    /// The collective with equal parts.
    collective: Collective,
    root: Rank,
    op: ReduceOp,
    parts: OwnedParts,
    /// The parts that an all-to-all sends; it receives the others.
    send: OwnedParts,
}

impl OwnedUneven {
    fn borrow(&self) -> Uneven<'_> {
        let (root, op, parts) = (self.root, self.op, self.parts.borrow());
        match self.collective {
            Collective::Gather => Uneven::Gather { root, parts },
            Collective::Scatter => Uneven::Scatter { root, parts },
            Collective::AllGather => Uneven::AllGather { parts },
            Collective::ReduceScatter => Uneven::ReduceScatter { parts, op },
            Collective::AllToAll => Uneven::AllToAll { send: self.send.borrow(), recv: parts },
            other => unreachable!("{other} has no parts of any lengths"),
        }
    }
}

/// Makes the uneven collective of a method.
pub(crate) fn perform_uneven(
    py: Python<'_>,
    queue: &Arc<CallQueue>,
    collective: Collective,
    given: Given<'_, '_>,
    arguments: Arguments<'_, '_>,
    common: Common<'_, '_>,
) -> Called {
    let refuse = |fault| raise(py, fault);
    let (root, op) = (Rank(arguments.root), operation(arguments.op)?);
    let name = if collective == Collective::AllToAll { "recv" } else { "parts" };
    let mut parts = OwnedParts::new(arguments.parts.or(arguments.recv), name)?;
    // In place an all-to-all sends the parts that it receives.
    let mut send = match arguments.send.filter(|_| given[1].is_some()) {
        Some(send) => OwnedParts::new(Some(send), "send")?,
        None => parts.clone(),
    };
    let memories = memories(queue, collective, given, root)?;
    let element = element_of(py, common.dtype, memories.iter().flatten())?;
    let (data_type, scale) = if collective.reduces() {
        (element.to_combine(op).map_err(refuse)?, 1)
    } else {
        element.to_move()
    };
    for memory in memories.iter().flatten() {
        elements(memory.region.bytes(), element, "a buffer").map_err(refuse)?;
    }
    let regions = memories.each_ref().map(|memory| memory.as_ref().map(|memory| memory.region));
    let has_output = shape(collective, root).has_output(queue.rank);
    let places = Places::new(regions, has_output, Places::apart);
    let places = places.ok_or_else(|| refuse(overlap()))?;
    parts.scale(scale);
    send.scale(scale);
    let uneven = OwnedUneven { collective, root, op, parts, send };
    let memories = memories.into_iter().flatten();
    if common.async_op {
        let handle = start(py, queue, memories, common, move |ranks, requests| {
            let uneven = uneven.borrow();
            // SAFETY: `start` keeps the memory until the call is done. The caller of the binding
            // must not use it meanwhile.
            let it =
                ranks.start_uneven(&uneven, data_type, (), move |()| unsafe { places.bytes() })?;
            requests.push(it);
            Ok(())
        });
        return handle.map(Some);
    }
    dispatch(py, queue, memories, common, move |ranks| {
        // SAFETY: `dispatch` keeps the memory until the call is done. The caller of the binding
        // must not use it meanwhile.
        ranks.perform_uneven(&uneven.borrow(), data_type, unsafe { places.buffers() })
    })
}
