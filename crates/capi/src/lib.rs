//! The interface of ringfold for C: `ringfold.h`, `libringfold.so` and `libringfold.a`.
//!
//! Each function converts its arguments, calls the crate `ringfold`, and converts the result. No
//! panic crosses the border, and no handle is ever dereferenced: handles are numbers of tables.
//!
//! * `types`: the types, enumerations and constants of the header;
//! * `init`: versions, unique ids, and the ways to make a communicator; `store` wraps the caller's
//!   key-value store;
//! * `comm`: the functions of communicators; `operation`: reduction operations with a factor;
//! * `collective`: the collectives, on ordinary memory; `uneven`: those with parts of any lengths;
//!   `window`: windows, and calls in them; `registration`: registered memory;
//! * `request`: started collectives, whose requests are `kept`; `point_to_point`: messages;
//!   `group`: groups of calls, which are `pending` until they end;
//! * `fault`: results, messages and panics; `callback`: functions of the caller; `table`: handles;
//!   `memory`: pointers of the caller.
//!
//! The comments of public items are those of the header. `crates/capi/header` writes it.
#![allow(clippy::missing_safety_doc, reason = "the header says what each pointer points to")]

mod callback;
pub mod collective;
pub mod comm;
pub mod fault;
pub mod group;
pub mod init;
mod kept;
mod memory;
pub mod operation;
mod pending;
pub mod point_to_point;
pub mod profile;
pub mod registration;
pub mod request;
mod store;
mod table;
pub mod types;
pub mod uneven;
pub mod window;
