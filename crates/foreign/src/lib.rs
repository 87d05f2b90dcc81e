//! The common ground of the interfaces for C and Python: memory of another language, and calls on
//! it.
//!
//! Each interface converts its arguments to these types, and words their errors for its users.
//!
//! * `region`: bytes at an address; `places`: the regions of one call;
//! * `calls`: calls that are collected first and then performed together;
//! * `registrations`: regions that stay registered with devices; `ids`: the unique ids of the
//!   process.

mod calls;
mod ids;
mod places;
mod region;
mod registrations;

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use calls::{Entry, add_to, are_apart};
pub use ids::{find_id, made_ids};
pub use places::Places;
pub use region::{Region, Unfit};
pub use registrations::register;

/// Locks a mutex, also after a panic of its holder. The caller copes with the values of that time.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The text of a panic, if it has one.
pub fn text_of(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
}
