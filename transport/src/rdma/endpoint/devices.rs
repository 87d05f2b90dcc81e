//! This rank's devices, and the shares of peers and callers in them.

use std::io;
use std::sync::Arc;

use ringfold_types::limits::RDMA_IDLE_BYTES;

use super::config::Config;
use crate::contract::Registration;
use crate::rdma::budget::Budget;
use crate::rdma::peer::Own;
use crate::rdma::rail::{Rail, Rails};
use crate::rdma::registry::{Kept, Registry};
use crate::rdma::sys::{Completion, Pages, UserBuffer, forks_copy_pinned_pages};
use crate::rdma::table::{Device, Table};
use crate::sys::Process;

/// Room for more completions than usually come together, so repeated calls allocate nothing.
const COMPLETIONS: usize = 1024;

/// The rails, and the shares of peers and callers in them.
#[derive(Debug)]
pub(super) struct Devices {
    rails: Rails,
    budget: Budget,
    registry: Registry,
    /// Callers' own buffers can be registered.
    may_lease: bool,
    /// Some rail is iWARP: it makes connections, and its paths watch for silence.
    has_iwarp: bool,
    /// Room for completions while they are handled.
    completions: Vec<Completion>,
}

/// A caller's registered buffer, and the devices that have it.
#[derive(Debug)]
struct Held {
    process: Process,
    kept: Option<(Arc<Kept>, Vec<Arc<Device>>)>,
}

impl Drop for Held {
    /// The devices answer only to the process that has opened them, and not to its children.
    fn drop(&mut self) {
        if !self.process.is_this() {
            std::mem::forget(self.kept.take());
        }
    }
}

impl Devices {
    pub(super) fn new(rails: Rails, config: &Config) -> Self {
        let table = Table::of_process();
        Self {
            has_iwarp: rails.0.iter().any(Rail::is_iwarp),
            may_lease: !rails.0.is_empty() && forks_copy_pinned_pages(),
            rails,
            budget: Budget::new(Arc::clone(&table.usage), &config.settings, config.lanes),
            registry: Registry::new(Arc::clone(&table.cache), config.placement),
            completions: Vec::with_capacity(COMPLETIONS),
        }
    }

    /// Borrows the resources of this rank that all peers share.
    pub(super) const fn own<'a>(&'a mut self, config: &'a Config) -> Own<'a> {
        let Self { rails, budget, registry, .. } = self;
        let Config { rank, lanes, settings, .. } = config;
        Own { rank: *rank, lanes: *lanes, settings, rails, budget, registry }
    }

    pub(super) const fn rails(&self) -> &Rails {
        &self.rails
    }

    pub(super) fn count(&self) -> usize {
        self.rails.0.len()
    }

    pub(super) fn rail(&self, rail: usize) -> &Rail {
        &self.rails.0[rail]
    }

    pub(super) fn rail_mut(&mut self, rail: usize) -> &mut Rail {
        &mut self.rails.0[rail]
    }

    /// Returns whether some rail uses the device.
    pub(super) fn is_used(&self, device: &Arc<Device>) -> bool {
        self.rails.0.iter().any(|rail| !rail.is_gone && Arc::ptr_eq(&rail.device, device))
    }

    /// The rails whose devices are present.
    fn living(&mut self) -> impl Iterator<Item = &mut Rail> {
        self.rails.0.iter_mut().filter(|rail| !rail.is_gone)
    }

    pub(super) const fn has_iwarp(&self) -> bool {
        self.has_iwarp
    }

    /// Takes the room for completions; `put_back` returns it.
    pub(super) fn take_room(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.completions)
    }

    pub(super) fn put_back(&mut self, room: Vec<Completion>) {
        self.completions = room;
    }

    /// Asks all devices to wake the caller at the next completion.
    pub(super) fn notify(&mut self) -> io::Result<()> {
        self.living().try_for_each(Rail::notify)
    }

    /// Takes the notifications that have come. Returns whether there was one.
    pub(super) fn silence(&mut self) -> bool {
        self.living().fold(false, |rang, rail| rang | rail.silence())
    }

    /// Returns whether some device can access callers' memory.
    pub(super) fn can_share(&mut self) -> bool {
        self.living().any(|rail| !rail.is_iwarp())
    }

    /// Makes pages for a caller that devices can access.
    pub(super) fn pages(&mut self, bytes: usize, may_reuse: bool) -> io::Result<Pages> {
        self.registry.make(bytes, may_reuse)
    }

    /// Takes a caller's buffer. Without pages that survive a `fork` its messages are copied.
    pub(super) fn lease(&mut self, buffer: UserBuffer, in_any_order: bool) {
        if self.may_lease {
            self.registry.lease(buffer, in_any_order);
        }
    }

    /// Registers a caller's buffer with all devices that can access it. The devices stay open for
    /// later endpoints as long as the buffer stays registered.
    pub(super) fn register(
        &mut self,
        buffer: UserBuffer,
        in_any_order: bool,
    ) -> Option<Registration> {
        let can_share = |rail: &&mut Rail| !rail.is_iwarp();
        let rails = self.living().filter(can_share);
        let (devices, domains): (Vec<_>, Vec<_>) =
            rails.map(|rail| (Arc::clone(&rail.device), Arc::clone(&**rail.pd))).unzip();
        let kept = if self.may_lease {
            self.registry.register(buffer, &domains, in_any_order, &self.budget)
        } else {
            Err("a `fork` would take its pages away; Linux 5.12 with rdma-core 35 prevents that"
                .to_owned())
        };
        match kept {
            Ok(kept) => {
                let process = Process::this();
                Some(Registration::new(Held { process, kept: Some((kept, devices)) }))
            }
            Err(why) => {
                let bytes = buffer.bytes();
                tracing::warn!(
                    "rdma: a buffer of {bytes} bytes is not registered in advance: {why}; calls \
                     register or copy it each time"
                );
                None
            }
        }
    }

    /// Returns whether callers have lent buffers.
    pub(super) const fn is_leasing(&self) -> bool {
        self.registry.is_leasing()
    }

    /// Gives callers' buffers back.
    pub(super) fn release(&mut self) {
        self.registry.release();
    }

    /// Returns idle pages beyond `RDMA_IDLE_BYTES` to the system.
    pub(super) fn trim(&mut self) {
        self.registry.trim(RDMA_IDLE_BYTES);
    }

    /// Deregisters callers' memory from a rail's device, if that is gone for all its users.
    pub(super) fn forget(&mut self, rail: usize) {
        let Rail { device, pd, .. } = &self.rails.0[rail];
        if device.is_gone()
            && let Err(error) = self.registry.forget(pd)
        {
            let name = device.context.name();
            tracing::warn!("rdma: {name} does not let go of memory: {error}; see `dmesg`");
        }
    }

    pub(super) const fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(super) const fn registry(&self) -> &Registry {
        &self.registry
    }
}
