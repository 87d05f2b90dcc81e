//! The table of a process's open devices, which all its endpoints share.
//!
//! All communicators and peers of a process share an open device: one context, one
//! protection domain, and one registration of a caller's memory for each purpose (`registry`). The
//! last user closes it. The limits of queue pairs and bytes count all endpoints together
//! (`budget`).
//!
//! Completion queues, queue pairs and rings belong to one endpoint. Endpoints live on different
//! threads, and a shared queue would cost a lock at every poll. Nothing here is used at a poll.
//!
//! A context has one stream of events, and any endpoint may read it. The reader hands each event to
//! all listeners, and wakes those that are parked.
//!
//! A child process made by `fork` begins with an empty table. The devices of its parent answer to
//! the parent only.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::budget::Usage;
use super::diagnostics;
use super::lock::lock;
use super::registry::Cache;
use super::sys::{About, Context, Event, Limits, Pd};
use crate::sys::{Process, Waker};

/// The devices that all endpoints of a process share.
#[derive(Debug)]
pub(super) struct Table {
    process: Process,
    devices: Mutex<Vec<Weak<Device>>>,
    pub(super) usage: Arc<Usage>,
    pub(super) cache: Arc<Cache>,
}

/// The table of this process, while it has a user.
static TABLE: Mutex<Weak<Table>> = Mutex::new(Weak::new());

/// An open device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) context: Context,
    pub(super) limits: Limits,
    /// The protection domain of all queue pairs and memory, except those of endpoints apart.
    pub(super) domain: Arc<Domain>,
    is_gone: AtomicBool,
    listeners: Mutex<Vec<Weak<Listener>>>,
}

/// A protection domain. When its last user has gone, callers' memory is no longer registered there.
#[derive(Debug)]
pub(super) struct Domain {
    pd: Arc<Pd>,
    table: Arc<Table>,
}

/// The events of a device that one user has not seen yet: the last of each kind.
#[derive(Debug)]
pub(super) struct Listener {
    events: Mutex<Vec<Event>>,
    has_some: AtomicBool,
    bell: Waker,
}

impl Table {
    /// Returns the table of this process.
    pub(super) fn of_process() -> Arc<Self> {
        let mut table = lock(&TABLE);
        if let Some(known) = table.upgrade().filter(|known| known.process.is_this()) {
            return known;
        }
        let made = Arc::new(Self {
            process: Process::this(),
            devices: Mutex::default(),
            usage: Arc::default(),
            cache: Arc::default(),
        });
        *table = Arc::downgrade(&made);
        made
    }
}

impl Device {
    /// Returns the device of that name, which is opened if nobody uses it yet. A device that is
    /// gone may have come back, so it is opened anew.
    ///
    /// # Errors
    /// The device cannot be used, for this reason. The text follows its name.
    pub(super) fn open(name: &str) -> Result<Arc<Self>, String> {
        let table = Table::of_process();
        let mut devices = lock(&table.devices);
        devices.retain(|device| device.strong_count() > 0);
        let known = devices.iter().filter_map(Weak::upgrade);
        let is_it = |device: &Arc<Self>| {
            let has_name = device.context.name() == name;
            if has_name {
                // Registered buffers may have kept it open while nobody read its events.
                device.read_events();
            }
            has_name && !device.is_gone()
        };
        if let Some(known) = known.into_iter().find(is_it) {
            return Ok(known);
        }
        let context = Context::open(name).map_err(|error| diagnostics::opening(&error))?;
        let limits = context.limits().map_err(|error| format!("does not answer: {error}"))?;
        let domain =
            Domain::new(&context, &table).map_err(|error| diagnostics::connection(&error))?;
        let made = Arc::new(Self {
            context,
            limits,
            domain,
            is_gone: AtomicBool::new(false),
            listeners: Mutex::default(),
        });
        devices.push(Arc::downgrade(&made));
        Ok(made)
    }

    /// Makes a protection domain for an endpoint apart.
    pub(super) fn domain_apart(&self) -> io::Result<Arc<Domain>> {
        Domain::new(&self.context, &self.domain.table)
    }

    /// Returns whether the device has reported that it cannot be used any more.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Returns a listener to all events from now on, and to the end of the device if that has come.
    pub(super) fn listen(&self) -> io::Result<Arc<Listener>> {
        let made = Arc::new(Listener {
            events: Mutex::default(),
            has_some: AtomicBool::new(false),
            bell: Waker::new()?,
        });
        let mut listeners = lock(&self.listeners);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&made));
        if self.is_gone() {
            made.tell(Event { about: About::Device, what: "the device is gone".to_owned() });
        }
        Ok(made)
    }

    /// Hands the events that have come to all listeners.
    pub(super) fn read_events(&self) {
        // Another reader does the same.
        let Ok(listeners) = self.listeners.try_lock() else { return };
        while !self.is_gone() {
            let event = match self.context.event() {
                Ok(None) => return,
                Ok(Some(event)) => event,
                Err(error) => Event { about: About::Device, what: error.to_string() },
            };
            self.is_gone.store(event.about == About::Device, Ordering::Relaxed);
            listeners.iter().filter_map(Weak::upgrade).for_each(|it| it.tell(event.clone()));
        }
    }
}

impl Domain {
    fn new(context: &Context, table: &Arc<Table>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { pd: Pd::new(context)?, table: Arc::clone(table) }))
    }
}

impl Deref for Domain {
    type Target = Arc<Pd>;

    fn deref(&self) -> &Arc<Pd> {
        &self.pd
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.table.cache.leave(&self.pd);
    }
}

impl Listener {
    /// The descriptor, which is readable when another user has read an event.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn tell(&self, event: Event) {
        let mut events = lock(&self.events);
        events.retain(|it| it.about != event.about);
        events.push(event);
        drop(events);
        // In this order, a bell that rings is silenced by the next look.
        self.bell.wake();
        self.has_some.store(true, Ordering::Release);
    }

    /// Takes the events that have come.
    pub(super) fn take(&self) -> Vec<Event> {
        if !self.has_some.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        self.bell.clear();
        std::mem::take(&mut *lock(&self.events))
    }
}
