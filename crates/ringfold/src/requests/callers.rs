//! The slots whose calls no helper thread advances. A thread that waits for one advances all.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::slot::Slot;
use crate::engine::Engine;

static SLOTS: Mutex<Vec<Weak<Slot<Engine>>>> = Mutex::new(Vec::new());

/// Has threads that wait for other calls advance those of this slot.
pub(super) fn add(slot: &Arc<Slot<Engine>>) {
    let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    slots.retain(|other| other.strong_count() > 0);
    if !slots.iter().any(|other| other.as_ptr() == Arc::as_ptr(slot)) {
        slots.push(Arc::downgrade(slot));
    }
}

/// Advances the calls of the other slots.
pub(super) fn advance_others(own: &Slot<Engine>) {
    let slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    let others: Vec<_> = slots.iter().filter_map(Weak::upgrade).collect();
    drop(slots);
    let is_other = |slot: &&Arc<Slot<Engine>>| !std::ptr::eq(&***slot, own) && !slot.is_forked();
    others.iter().filter(is_other).for_each(Slot::advance);
}
