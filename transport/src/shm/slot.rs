//! The slot of a rank in the segment. The rank and its peers exchange small words there, without a
//! link.
//!
//! ```text
//! 0     wake           1 while the rank is or will be parked; the peer that wakes it clears it
//! 64    introductions  number of introductions of peers that began to use a link with the rank
//! 128   flags          the flag line: the rank's last signals
//! 192   info           whether the rank has left or died, process, token, last window report
//! 256   introduced     two bytes per peer: the lanes that this peer has begun to use
//! ```
//!
//! Peers also write `wake`, `introductions` and `introduced`, and a peer that sees the rank's
//! process end writes that it has died. Only the rank writes the rest.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use ringfold_types::limits::{LANES_MAX, SIGNALS_MAX};

use crate::sys::{Mapping, random};

/// Bytes of a slot, without the two bytes for each peer.
pub(super) const SLOT_BYTES_MIN: usize = INTRODUCED_AT;

const WAKE_AT: usize = 0;
const INTRODUCTIONS_AT: usize = 64;
const FLAGS_AT: usize = 128;
const LEFT_AT: usize = 192;
const PROCESS_AT: usize = 196;
const NAMESPACE_AT: usize = 200;
const TOKEN_AT: usize = 208;
const VALUE_AT: usize = 216;
const WINDOW_AT: usize = 232;
const WINDOW_BYTES_AT: usize = 240;
const INTRODUCED_AT: usize = 256;
/// Bytes of a peer's lanes.
pub(super) const INTRODUCED_BYTES: usize = size_of::<AtomicU16>();

/// In `Slot::left`: the rank has left.
pub(super) const LEFT: u32 = 1;
/// In `Slot::left`: the rank's process has ended, and the rank had not left.
pub(super) const DIED: u32 = 2;

/// One rank's slot.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    memory: Arc<Mapping>,
    at: usize,
    bytes: usize,
}

/// A PID namespace, in which process numbers have one meaning; 0 if it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Namespace(u64);

impl Namespace {
    /// The namespace of this process.
    pub(super) fn own() -> Self {
        Self(std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino()))
    }
}

/// A number that a rank draws at random, and its address in the rank's own memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) value: [u8; 16],
}

/// A process's signature in its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature {
    /// The process number, in its namespace.
    pub(super) process: u32,
    namespace: Namespace,
    pub(super) token: Token,
}

impl Signature {
    /// Whether the process number has the same meaning in namespace `own`.
    pub(super) fn is_of(&self, own: Namespace) -> bool {
        self.namespace == own && own.0 != 0
    }
}

/// A rank's report on its last window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowReport {
    /// The window's number, counted from 1; 0 if there is none.
    pub(super) number: u64,
    /// Bytes of each part.
    pub(super) bytes: u64,
    /// Whether the rank has its part of this window, and of the window before.
    pub(super) is_made: [bool; 2],
}

impl Slot {
    /// The slot of `bytes` bytes at offset `at` of `memory`.
    pub(super) fn new(memory: Arc<Mapping>, at: usize, bytes: usize) -> Self {
        assert!(at.is_multiple_of(64) && bytes >= SLOT_BYTES_MIN && at + bytes <= memory.bytes());
        Self { memory, at, bytes }
    }

    /// The wake word: 1 if the rank wants to be woken. The peer that clears it wakes the rank.
    #[inline]
    pub(super) fn wake(&self) -> &AtomicU32 {
        self.word::<WAKE_AT>()
    }

    /// A counter that grows whenever a word of `introduced` changes.
    #[inline]
    pub(super) fn introductions(&self) -> &AtomicU32 {
        self.word::<INTRODUCTIONS_AT>()
    }

    /// The lanes, one per bit, that the peer in slot `peer` has begun to use with this rank.
    pub(super) fn introduced(&self, peer: usize) -> &AtomicU16 {
        let at = INTRODUCED_AT + peer * INTRODUCED_BYTES;
        assert!(at + INTRODUCED_BYTES <= self.bytes);
        // SAFETY: within the slot by the assertion, so within the mapping by that of `new`; even,
        // as slots begin at lines; it is only ever accessed as an atomic, and the mapping lives as
        // long as `self`.
        unsafe { self.memory.base().add(self.at + at).cast().as_ref() }
    }

    /// The word of signal `number`, and of all signals whose numbers differ from it by a multiple
    /// of `SIGNALS_MAX`.
    #[inline]
    pub(super) fn flag(&self, number: u32) -> &AtomicU64 {
        let at = FLAGS_AT + number as usize % SIGNALS_MAX * size_of::<AtomicU64>();
        // SAFETY: within the slot, as the flags are a line of it, and aligned; otherwise as in
        // `introduced`.
        unsafe { self.memory.base().add(self.at + at).cast().as_ref() }
    }

    /// `LEFT` or `DIED` once the rank has ended, and 0 before.
    #[inline]
    pub(super) fn left(&self) -> &AtomicU32 {
        self.word::<LEFT_AT>()
    }

    /// Signs the slot: publishes this process's number, its namespace and a new random token.
    pub(super) fn sign(&self, namespace: Namespace) -> io::Result<()> {
        let value: [u8; 16] = random()?;
        let places = self.value();
        places.iter().zip(value).for_each(|(byte, value)| byte.store(value, Ordering::Relaxed));
        let at = places.as_ptr().expose_provenance() as u64;
        self.long::<TOKEN_AT>().store(at, Ordering::Relaxed);
        self.long::<NAMESPACE_AT>().store(namespace.0, Ordering::Relaxed);
        // Last: a peer that sees the number sees the rest.
        self.word::<PROCESS_AT>().store(std::process::id(), Ordering::Release);
        Ok(())
    }

    /// The signature of the process; `None` if no process has signed.
    pub(super) fn signed(&self) -> Option<Signature> {
        let process = self.word::<PROCESS_AT>().load(Ordering::Acquire);
        let namespace = Namespace(self.long::<NAMESPACE_AT>().load(Ordering::Relaxed));
        let at = usize::try_from(self.long::<TOKEN_AT>().load(Ordering::Relaxed)).unwrap_or(0);
        let value = self.value();
        let value = std::array::from_fn(|byte| value[byte].load(Ordering::Relaxed));
        (process != 0).then_some(Signature { process, namespace, token: Token { at, value } })
    }

    /// Reports whether this rank has its part of the next window.
    pub(super) fn report_window(&self, number: u64, bytes: u64, is_made: bool) {
        let before = self.long::<WINDOW_AT>().load(Ordering::Relaxed) & 1;
        self.window_bytes(number).store(bytes, Ordering::Relaxed);
        let word = number << 2 | before << 1 | u64::from(is_made);
        // Release: a peer that sees the report finds the pages.
        self.long::<WINDOW_AT>().store(word, Ordering::Release);
    }

    /// The rank's last report on a window.
    pub(super) fn window_report(&self) -> WindowReport {
        let word = self.long::<WINDOW_AT>().load(Ordering::Acquire);
        let bytes = self.window_bytes(word >> 2).load(Ordering::Relaxed);
        WindowReport { number: word >> 2, bytes, is_made: [word & 1 == 1, word & 2 == 2] }
    }

    /// The word with the length of a window's parts. Successive windows alternate between two
    /// words: a rank may have reported the next window when a peer reads the report of this one. It
    /// cannot be two windows ahead.
    fn window_bytes(&self, number: u64) -> &AtomicU64 {
        if number.is_multiple_of(2) {
            self.long::<WINDOW_BYTES_AT>()
        } else {
            self.long::<{ WINDOW_BYTES_AT + 8 }>()
        }
    }

    fn value(&self) -> &[AtomicU8; 16] {
        // SAFETY: as in `word`.
        unsafe { self.memory.base().add(self.at + VALUE_AT).cast().as_ref() }
    }

    #[inline]
    fn word<const AT: usize>(&self) -> &AtomicU32 {
        const { assert!(AT + 4 <= SLOT_BYTES_MIN && AT.is_multiple_of(4)) };
        // SAFETY: within the slot and so within the mapping (`new`); aligned, since slots begin at
        // lines; only ever accessed as this atomic; the mapping lives as long as `self`.
        unsafe { self.memory.base().add(self.at + AT).cast().as_ref() }
    }

    #[inline]
    fn long<const AT: usize>(&self) -> &AtomicU64 {
        const { assert!(AT + 8 <= SLOT_BYTES_MIN && AT.is_multiple_of(8)) };
        // SAFETY: as in `word`.
        unsafe { self.memory.base().add(self.at + AT).cast().as_ref() }
    }
}

const _: () = assert!(SIGNALS_MAX * size_of::<AtomicU64>() <= LEFT_AT - FLAGS_AT);
const _: () = assert!(WINDOW_BYTES_AT + 16 <= INTRODUCED_AT && LANES_MAX <= 16);
