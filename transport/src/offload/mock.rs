//! A provider within one process, for tests: members are values that threads of one process, or one
//! thread, use. A function of the test combines the members' chunks in their order.
//!
//! Its abilities are the test's choice. So it can pose as hardware that sums only some types, in no
//! fixed order, or that refuses groups. `End` plays an aggregator or a child, one link at a time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io, thread};

use ringfold_types::Rank;

use super::contract::{Awaited, Chunk, Device, Group, Outcome, Properties, Provider, Reduction};
use super::error::OffloadError;
use super::header::Header;
use super::links::{AGGREGATOR, Endpoints, Links, child_rank};
use super::messages::Messages;
use super::slots::Slots;
use crate::contract::LinkFault;
use crate::sys::Waker;

/// Combines the members' bytes of a chunk into its result, of `Reduction::output_bytes` at the
/// root.
pub type Combine = dyn Fn(&Reduction, &[&[u8]], &mut [u8]) + Send + Sync;

/// The network that the members of a mock share.
#[derive(Clone)]
pub struct Network {
    shared: Arc<Mutex<Shared>>,
    combine: Arc<Combine>,
    supports: Arc<dyn Fn(&Reduction) -> bool + Send + Sync>,
    leave: Arc<dyn Fn() + Send + Sync>,
}

struct Shared {
    /// For each member, its chunks that have no result.
    posted: Vec<Vec<(Chunk, Vec<u8>)>>,
    /// For each member, the results that it has not received.
    results: Vec<Vec<Vec<u8>>>,
    wakers: Vec<Arc<Waker>>,
    fault: Option<OffloadError>,
    refusal: Option<String>,
}

impl Network {
    /// Makes a network of `members` that performs all reductions.
    ///
    /// # Errors
    /// The system refuses a descriptor.
    pub fn new(
        members: usize,
        combine: impl Fn(&Reduction, &[&[u8]], &mut [u8]) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let wakers: io::Result<_> = (0..members).map(|_| Waker::new().map(Arc::new)).collect();
        let shared = Shared {
            posted: vec![Vec::new(); members],
            results: vec![Vec::new(); members],
            wakers: wakers?,
            fault: None,
            refusal: None,
        };
        let shared = Arc::new(Mutex::new(shared));
        let (combine, supports, leave) =
            (Arc::new(combine), Arc::new(|_: &_| true), Arc::new(|| ()));
        Ok(Self { shared, combine, supports, leave })
    }

    /// The same network, which performs only the reductions for which `supports` returns true.
    #[must_use]
    pub fn with_support(
        mut self,
        supports: impl Fn(&Reduction) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.supports = Arc::new(supports);
        self
    }

    /// The same network, whose members call `leave` when their groups are dropped.
    #[must_use]
    pub fn with_leave(mut self, leave: impl Fn() + Send + Sync + 'static) -> Self {
        self.leave = Arc::new(leave);
        self
    }

    /// The provider of one member.
    #[must_use]
    pub fn provider(&self, properties: Properties) -> Mock {
        let devices = vec![Device { name: "mock".into(), properties }];
        Mock { network: self.clone(), devices }
    }

    /// Ends the network, as an aggregator that dies: unfinished chunks get no result.
    pub fn kill(&self) {
        let mut shared = self.lock();
        shared.fault = Some(OffloadError::Closed);
        shared.wake_all();
    }

    /// Refuses all later groups, as hardware does whose trees are in use.
    pub fn refuse(&self, reason: &str) {
        self.lock().refusal = Some(reason.into());
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn wake_all(&self) {
        self.wakers.iter().for_each(|waker| waker.wake());
    }

    /// Combines the oldest chunk if all members have handed it over.
    fn advance(&mut self, combine: &Combine) {
        while self.posted.iter().all(|chunks| !chunks.is_empty()) {
            let parts: Vec<_> = self.posted.iter_mut().map(|chunks| chunks.remove(0)).collect();
            let (chunk, _) = parts[0];
            let likeness = |chunk: &Chunk| (chunk.number, chunk.tag, chunk.reduction, chunk.count);
            if parts.iter().any(|(other, _)| likeness(other) != likeness(&chunk)) {
                self.fault = Some(OffloadError::Refused { reason: "members differ".into() });
                break;
            }
            let reduction = &chunk.reduction;
            let inputs: Vec<_> = parts.iter().map(|(_, bytes)| &bytes[..]).collect();
            let mut result = vec![0; reduction.output_bytes(chunk.count, reduction.root)];
            if !result.is_empty() {
                combine(reduction, &inputs, &mut result);
            }
            for (member, results) in (0..).zip(&mut self.results) {
                let bytes = reduction.output_bytes(chunk.count, member);
                results.push(result[..bytes].to_vec());
            }
        }
        self.wake_all();
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network(..)")
    }
}

/// The provider of one member.
#[derive(Debug)]
pub struct Mock {
    network: Network,
    devices: Vec<Device>,
}

impl Provider for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn supports(&self, device: usize, reduction: &Reduction) -> bool {
        device < self.devices.len() && (self.network.supports)(reduction)
    }

    fn connect(&mut self, device: usize, member: u16) -> Result<Box<dyn Group>, OffloadError> {
        let none = OffloadError::Protocol("no such device");
        let properties = self.devices.get(device).ok_or(none)?.properties;
        let shared = self.network.lock();
        if let Some(reason) = shared.refusal.clone() {
            return Err(OffloadError::Refused { reason });
        }
        let none = OffloadError::Protocol("no such member");
        let waker = Arc::clone(shared.wakers.get(usize::from(member)).ok_or(none)?);
        drop(shared);
        let slots = Slots::new(properties.window);
        let network = self.network.clone();
        Ok(Box::new(MockGroup { network, properties, member, slots, waker }))
    }
}

/// A member's end of the group.
#[derive(Debug)]
struct MockGroup {
    network: Network,
    properties: Properties,
    member: u16,
    slots: Slots,
    waker: Arc<Waker>,
}

impl Group for MockGroup {
    fn is_ready(&self) -> bool {
        true
    }

    fn post(&mut self, chunk: &Chunk, bytes: &[u8]) -> Result<bool, OffloadError> {
        assert!(bytes.len() == chunk.reduction.input_bytes(chunk.count), "another length");
        assert!(bytes.len() <= self.properties.chunk_bytes_max, "the chunk is too long");
        let mut shared = self.network.lock();
        if let Some(fault) = &shared.fault {
            return Err(fault.again());
        }
        if !self.slots.has_room() {
            return Ok(false);
        }
        self.slots.post(chunk, chunk.reduction.output_bytes(chunk.count, self.member));
        shared.posted[usize::from(self.member)].push((*chunk, bytes.to_vec()));
        shared.advance(&*self.network.combine);
        Ok(true)
    }

    fn poll(&mut self) -> Result<bool, OffloadError> {
        let mut shared = self.network.lock();
        let results = std::mem::take(&mut shared.results[usize::from(self.member)]);
        let moved = !results.is_empty();
        for result in results {
            self.slots.arriving().1.copy_from_slice(&result);
            self.slots.arrive();
        }
        match &shared.fault {
            Some(fault) if !moved => Err(fault.again()),
            _ => Ok(moved),
        }
    }

    fn result(&self) -> Option<Outcome<'_>> {
        self.slots.oldest()
    }

    fn take(&mut self) {
        self.slots.take();
    }

    fn retained(&self, number: u64) -> Option<Outcome<'_>> {
        self.slots.retained(number)
    }

    fn posted(&self) -> u64 {
        self.slots.posted()
    }

    fn arrived(&self) -> u64 {
        self.slots.arrived()
    }

    fn awaited(&self) -> Awaited {
        let shared = self.network.lock();
        let least = shared.posted.iter().map(Vec::len).min().unwrap_or(0);
        let late = shared.posted.iter().take(64).map(|chunks| chunks.len() == least);
        let is_waiting = self.slots.is_waiting();
        let bit = |(at, late): (usize, bool)| u64::from(late && is_waiting) << at;
        Awaited { children: late.enumerate().map(bit).sum(), above: 0 }
    }

    fn give_up(&mut self) {
        self.network.kill();
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    fn arm(&mut self) {
        self.waker.clear();
    }

    fn disarm(&mut self) {
        self.waker.clear();
    }
}

impl Drop for MockGroup {
    fn drop(&mut self) {
        (self.network.leave)();
    }
}

/// One end of a link with calls that block, for tests that play an aggregator or a child.
#[derive(Debug)]
pub struct End {
    links: Links,
    peer: Rank,
    messages: Messages,
}

impl End {
    /// The end of an aggregator with one child, and the endpoints that the child dials.
    ///
    /// # Errors
    /// The system lacks ports or descriptors.
    pub fn listen(key: [u8; 32], child: u8) -> io::Result<(Self, Endpoints)> {
        let at = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (links, port) = Links::listen(None, at, key, 1)?;
        let tcp = SocketAddr::new(at, port);
        Ok((Self::of(links, child_rank(child)), Endpoints { tcp, rdma_port: 0 }))
    }

    /// The end of a child.
    ///
    /// # Errors
    /// The system lacks descriptors, or there is no route.
    pub fn dial(at: Endpoints, child: u8, key: [u8; 32]) -> io::Result<Self> {
        Ok(Self::of(Links::dial(None, child, at.tcp, key)?, AGGREGATOR))
    }

    fn of(links: Links, peer: Rank) -> Self {
        Self { links, peer, messages: Messages::new(peer) }
    }

    /// Receives a message.
    ///
    /// # Errors
    /// The link has ended.
    ///
    /// # Panics
    /// If the header is none, or is of another version.
    pub fn receive(&mut self) -> Result<(Header, Vec<u8>), LinkFault> {
        let Self { links, messages, .. } = self;
        let head = until(links, |links| messages.header(links))?;
        let header = Header::decode(&head).expect("a header");
        let mut payload = vec![0; header.bytes as usize];
        until(links, |links| Ok(messages.payload(links, &mut payload)?.then_some(())))?;
        Ok((header, payload))
    }

    /// Sends a message, or any other bytes.
    ///
    /// # Errors
    /// The link has ended.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), LinkFault> {
        let Self { links, peer, .. } = self;
        while !bytes.is_empty() {
            let write = |links: &mut Links| links.write(*peer, bytes, false);
            let sent = until(links, |links| Ok(Some(write(links)?).filter(|sent| *sent > 0)))?;
            bytes = &bytes[sent..];
        }
        until(links, |links| Ok(links.is_flushed().then_some(())))
    }

    /// Sends a header and its payload.
    ///
    /// # Errors
    /// As `send`.
    pub fn send_message(&mut self, header: &Header, payload: &[u8]) -> Result<(), LinkFault> {
        self.send(&[&header.encode()[..], payload].concat())
    }
}

/// Repeats a step until it returns something.
fn until<T>(
    links: &mut Links,
    mut step: impl FnMut(&mut Links) -> Result<Option<T>, LinkFault>,
) -> Result<T, LinkFault> {
    loop {
        links.poll()?;
        if let Some(done) = step(links)? {
            return Ok(done);
        }
        thread::sleep(Duration::from_micros(100));
    }
}

#[cfg(test)]
mod tests {
    use ringfold_types::{Collective, DataType, ReduceOp, Wire};

    use super::*;

    const PROPERTIES: Properties = Properties { chunk_bytes_max: 8, window: 2, exact: true };
    const REDUCTION: Reduction = Reduction {
        collective: Collective::Reduce,
        data_type: DataType::U8,
        op: ReduceOp::Sum,
        root: 1,
        form: Wire::Element,
    };

    fn sum(_: &Reduction, inputs: &[&[u8]], result: &mut [u8]) {
        for (at, sum) in result.iter_mut().enumerate() {
            *sum = inputs.iter().map(|input| input[at]).sum();
        }
    }

    fn members() -> (Network, Vec<Box<dyn Group>>) {
        let network = Network::new(3, sum).unwrap();
        let connect = |member| network.provider(PROPERTIES).connect(0, member).unwrap();
        let members = (0..3).map(connect).collect();
        (network, members)
    }

    #[test]
    fn the_root_gets_the_sum_and_the_others_its_end() {
        let (_, mut members) = members();
        let chunk = |number| Chunk { number, tag: 4, reduction: REDUCTION, count: 2 };
        for (member, value) in members.iter_mut().zip([1, 2, 4]) {
            assert!(member.post(&chunk(0), &[value, 10]).unwrap());
            assert!(member.post(&chunk(1), &[0, value]).unwrap());
            assert!(!member.post(&chunk(2), &[0, 0]).unwrap(), "the window is full");
        }
        for (at, member) in members.iter_mut().enumerate() {
            assert!(member.poll().unwrap());
            let wanted: [&[u8]; 2] = if at == 1 { [&[7, 30], &[0, 7]] } else { [&[], &[]] };
            for (number, wanted) in (0..).zip(wanted) {
                let outcome = member.result().unwrap();
                assert_eq!(outcome, Outcome { number, tag: 4, bytes: wanted });
                member.take();
            }
        }
    }

    #[test]
    fn results_outlive_the_network() {
        let (network, mut members) = members();
        let chunk = Chunk { number: 0, tag: 4, reduction: REDUCTION, count: 1 };
        assert!(members[0].post(&chunk, &[1]).unwrap());
        assert_eq!(members[0].awaited().children, 0b110);
        for member in &mut members[1..] {
            member.post(&chunk, &[1]).unwrap();
        }
        network.kill();
        assert!(members[1].poll().unwrap());
        assert_eq!(members[1].result().unwrap().bytes, [3]);
        assert!(matches!(members[1].poll(), Err(OffloadError::Closed)));
        network.refuse("one active tree");
        let refused = network.provider(PROPERTIES).connect(0, 0);
        assert!(matches!(refused, Err(OffloadError::Refused { reason }) if reason.contains("one")));
    }
}
