//! Handles: numbers that stand for values of Rust in C.
//!
//! A handle has the index of a slot and the slot's generation, which grows when the value leaves.
//! So a freed handle is recognised, and no handle is ever an address.

use std::ops::Deref;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use ringfold_foreign::lock;

/// Slots of the first segment. Each further segment has twice as many as the one before.
const FIRST: usize = 64;

/// The most segments.
const SEGMENTS: usize = 16;

/// The most slots.
const SLOTS_MAX: u32 = 64 * ((1 << SEGMENTS) - 1);

/// Bits of an index in a handle. The kind of the table is above them, the generation above that.
const INDEX_BITS: u32 = 28;

/// The bits of a kind, shifted by those of an index.
const KIND_MASK: u64 = (1 << (u32::BITS - INDEX_BITS)) - 1;

const _: () = assert!(FIRST == 64 && SLOTS_MAX < 1 << INDEX_BITS);

/// The kind of the table of a handle.
#[inline]
pub(crate) const fn kind_of(handle: u64) -> u64 {
    handle >> INDEX_BITS & KIND_MASK
}

/// The handle of another kind with the same index and generation.
pub(crate) const fn of_kind(handle: u64, kind: u64) -> u64 {
    handle & !(KIND_MASK << INDEX_BITS) | kind << INDEX_BITS
}

/// The values of one kind that C has handles of. Slots stay where they are, so a look-up takes only
/// the lock of its slot.
pub(crate) struct Table<T> {
    kind: u32,
    segments: [OnceLock<Box<[Slot<T>]>>; SEGMENTS],
    free: Mutex<Free>,
}

struct Slot<T>(RwLock<Entry<T>>);

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// The slots without a value.
struct Free {
    used_before: Vec<u32>,
    /// The first slot that never had a value.
    next: u32,
}

/// A value that stays in the table while this exists.
pub(crate) struct Held<'a, T>(RwLockReadGuard<'a, Entry<T>>);

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let Some(value) = &self.0.value else { unreachable!("it was there when it was found") };
        value
    }
}

/// Room for a value, which a drop gives back.
pub(crate) struct Room<'t, T> {
    table: &'t Table<T>,
    index: u32,
    is_filled: bool,
}

impl<T> Room<'_, T> {
    /// Returns a handle of `value`.
    pub(crate) fn fill(mut self, value: T) -> u64 {
        self.is_filled = true;
        let (segment, at) = place(self.index);
        let slots = self.table.segments[segment].get_or_init(|| {
            let slot = |_| Slot(RwLock::new(Entry { generation: 1, value: None }));
            (0..FIRST << segment).map(slot).collect()
        });
        let mut entry = slots[at].0.write().unwrap_or_else(PoisonError::into_inner);
        entry.value = Some(value);
        self.table.handle(self.index, entry.generation)
    }
}

impl<T> Drop for Room<'_, T> {
    fn drop(&mut self) {
        if !self.is_filled {
            lock(&self.table.free).used_before.push(self.index);
        }
    }
}

impl<T> Table<T> {
    /// Makes a table. Tables of different kinds refuse each other's handles.
    pub(crate) const fn new(kind: u32) -> Self {
        let free = Mutex::new(Free { used_before: Vec::new(), next: 0 });
        Self { kind, segments: [const { OnceLock::new() }; SEGMENTS], free }
    }

    /// Returns a handle of `value`, or `None` if the table is full.
    pub(crate) fn insert(&self, value: T) -> Option<u64> {
        Some(self.reserve()?.fill(value))
    }

    /// Room for a value, or `None` if the table is full.
    pub(crate) fn reserve(&self) -> Option<Room<'_, T>> {
        let mut free = lock(&self.free);
        let index = match free.used_before.pop() {
            Some(index) => index,
            None if free.next < SLOTS_MAX => {
                free.next += 1;
                free.next - 1
            }
            None => return None,
        };
        Some(Room { table: self, index, is_filled: false })
    }

    /// The value of a handle, or `None` if it has none any more, or never had one.
    #[inline]
    pub(crate) fn get(&self, handle: u64) -> Option<Held<'_, T>> {
        let (index, generation) = self.parts(handle)?;
        let entry = self.slot(index)?.0.read().unwrap_or_else(PoisonError::into_inner);
        (entry.generation == generation && entry.value.is_some()).then_some(Held(entry))
    }

    /// Whether a number can be a handle of this table: it may have no value any more.
    #[inline]
    pub(crate) const fn is_kind(&self, handle: u64) -> bool {
        kind_of(handle) == self.kind as u64
    }

    /// Takes the value of a handle away. Waits while it is held.
    pub(crate) fn remove(&self, handle: u64) -> Option<T> {
        let (index, generation) = self.parts(handle)?;
        let slot = self.slot(index)?;
        let value = {
            let mut entry = slot.0.write().unwrap_or_else(PoisonError::into_inner);
            if entry.generation != generation {
                return None;
            }
            let value = entry.value.take()?;
            // A slot whose generations are used up stays empty.
            entry.generation = entry.generation.wrapping_add(1);
            if entry.generation == 0 {
                return Some(value);
            }
            value
        };
        lock(&self.free).used_before.push(index);
        Some(value)
    }

    /// Takes away all values for which `is_wanted` holds. Waits while they are held.
    pub(crate) fn remove_all(&self, is_wanted: impl Fn(&T) -> bool) {
        let used = lock(&self.free).next;
        for index in 0..used {
            let Some(slot) = self.slot(index) else { continue };
            let handle = {
                let entry = slot.0.read().unwrap_or_else(PoisonError::into_inner);
                let is_wanted = entry.value.as_ref().is_some_and(&is_wanted);
                is_wanted.then(|| self.handle(index, entry.generation))
            };
            drop(handle.and_then(|handle| self.remove(handle)));
        }
    }

    fn handle(&self, index: u32, generation: u32) -> u64 {
        u64::from(generation) << 32 | u64::from(self.kind << INDEX_BITS | index)
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (segment, at) = place(index);
        self.segments.get(segment)?.get()?.get(at)
    }

    /// The index and the generation in a handle of this kind of table.
    #[inline]
    fn parts(&self, handle: u64) -> Option<(u32, u32)> {
        let [a, b, c, d, e, f, g, h] = handle.to_le_bytes();
        let (low, generation) =
            (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let is_mine = self.is_kind(handle) && generation != 0;
        is_mine.then_some((low & ((1 << INDEX_BITS) - 1), generation))
    }
}

/// The segment of a slot, and its place there.
#[inline]
const fn place(index: u32) -> (usize, usize) {
    let at = index as usize + FIRST;
    let segment = (at.ilog2() - FIRST.ilog2()) as usize;
    (segment, at - (FIRST << segment))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn places_follow_one_another() {
        let mut expected = (0, 0);
        for index in 0..1000 {
            assert_eq!(place(index), expected);
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(place(SLOTS_MAX - 1).0, SEGMENTS - 1);
        assert_eq!(place(SLOTS_MAX).0, SEGMENTS);
    }

    #[test]
    fn a_freed_handle_stays_unknown() {
        let table = Table::new(1);
        let first = table.insert("first").unwrap();
        assert_eq!(table.get(first).as_deref(), Some(&"first"));
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second").unwrap();
        assert_ne!(first, second);
        assert!(table.get(first).is_none() && table.remove(first).is_none());
        assert_eq!(table.get(second).as_deref(), Some(&"second"));
    }

    #[test]
    fn a_full_table_has_no_room() {
        let table = Table::new(5);
        lock(&table.free).next = SLOTS_MAX - 2;
        let (one, other) = (table.reserve(), table.reserve().unwrap());
        assert!(one.is_some() && table.reserve().is_none());
        drop(one);
        let last = table.reserve().unwrap();
        let handles = [last, other].map(|room| room.fill("value"));
        assert!(table.insert("another").is_none());
        assert!(handles.iter().all(|it| table.get(*it).as_deref() == Some(&"value")));
    }

    #[test]
    fn numbers_that_are_no_handles_are_refused() {
        let (table, other) = (Table::new(1), Table::new(2));
        let handle = table.insert(7).unwrap();
        assert!(other.insert(8).is_some_and(|it| table.get(it).is_none()));
        for number in [0, 1, handle + 1, handle + (1 << 32), handle ^ (1 << 31), u64::MAX, !handle]
        {
            assert!(table.get(number).is_none() && table.remove(number).is_none(), "{number:x}");
        }
        assert_eq!(table.get(handle).as_deref(), Some(&7));
    }

    #[test]
    fn a_slot_ends_with_its_last_generation() {
        let table = Table::new(0);
        let handle = table.insert(()).unwrap();
        table.slot(0).unwrap().0.write().unwrap().generation = u32::MAX;
        assert!(table.remove(u64::from(u32::MAX) << 32 | handle & 0xffff_ffff).is_some());
        let next = table.insert(()).unwrap();
        assert_eq!(next & 0xffff_ffff, 1, "the first slot is not used again");
    }

    #[test]
    fn many_handles_stay_apart() {
        let table = Table::new(3);
        let handles: Vec<_> = (0..500).map(|value| table.insert(value).unwrap()).collect();
        for (value, handle) in (0..).zip(&handles) {
            assert_eq!(table.get(*handle).as_deref(), Some(&value));
        }
    }

    #[test]
    fn chosen_values_are_removed() {
        let table = Table::new(3);
        let handles: Vec<_> = (0..200).map(|value| table.insert(value).unwrap()).collect();
        table.remove_all(|value| value % 3 == 0);
        for (value, handle) in (0..).zip(&handles) {
            assert_eq!(table.get(*handle).is_some(), value % 3 != 0, "{value}");
        }
    }

    #[test]
    fn a_removal_waits_for_a_holder() {
        let table = Table::new(0);
        let handle = table.insert(()).unwrap();
        let is_held = AtomicBool::new(true);
        thread::scope(|scope| {
            let held = table.get(handle).unwrap();
            let remover = scope.spawn(|| {
                assert!(table.remove(handle).is_some());
                assert!(!is_held.load(Ordering::SeqCst));
            });
            thread::yield_now();
            is_held.store(false, Ordering::SeqCst);
            drop(held);
            remover.join().unwrap();
        });
    }
}
