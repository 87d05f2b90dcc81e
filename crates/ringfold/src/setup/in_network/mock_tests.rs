//! A provider within one process. Its members are values that threads of one process, or one
//! thread, use. A function of the test combines the members' chunks in their order.
//!
//! Its abilities are the test's choice. So it can pose as hardware that sums only some types, in no
//! fixed order.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use ringfold_innetwork::{
    Awaited, Chunk, Device, Group, OffloadError, Properties, Provider, Reduction, Slots,
};
use ringfold_transport::Waker;

/// Combines the members' bytes of a chunk into its result, of `Reduction::output_bytes` at the
/// root.
type Combine = dyn Fn(&Reduction, &[&[u8]], &mut [u8]) + Send + Sync;

/// The network that the members of a mock share.
#[derive(Clone)]
pub(super) struct Network {
    shared: Arc<Mutex<Shared>>,
    combine: Arc<Combine>,
    supports: fn(&Reduction) -> bool,
    leave: Arc<dyn Fn() + Send + Sync>,
}

struct Shared {
    /// For each member, its chunks that have no result.
    posted: Vec<Vec<(Chunk, Vec<u8>)>>,
    /// For each member, the results that it has not received.
    results: Vec<Vec<Vec<u8>>>,
    wakers: Vec<Arc<Waker>>,
    is_dead: bool,
}

impl Network {
    /// Makes a network of `members` that performs the reductions for which `supports` returns true.
    pub(super) fn new(
        members: usize,
        supports: fn(&Reduction) -> bool,
        combine: impl Fn(&Reduction, &[&[u8]], &mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Mutex::new(Shared {
            posted: vec![Vec::new(); members],
            results: vec![Vec::new(); members],
            wakers: (0..members).map(|_| Arc::new(Waker::new().unwrap())).collect(),
            is_dead: false,
        }));
        Self { shared, combine: Arc::new(combine), supports, leave: Arc::new(|| ()) }
    }

    /// The same network, whose members call `leave` when their groups are dropped.
    pub(super) fn with_leave(mut self, leave: impl Fn() + Send + Sync + 'static) -> Self {
        self.leave = Arc::new(leave);
        self
    }

    /// The provider of one member.
    pub(super) fn provider(&self, properties: Properties) -> Mock {
        let devices = vec![Device { name: "mock".into(), properties }];
        Mock { network: self.clone(), devices }
    }

    /// Ends the network, as an aggregator that dies: unfinished chunks get no result.
    pub(super) fn kill(&self) {
        let mut shared = self.lock();
        shared.is_dead = true;
        shared.wake_all();
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
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
            for (other, _) in &parts {
                assert_eq!(likeness(other), likeness(&chunk), "members differ");
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
pub(super) struct Mock {
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
        let properties = self.devices[device].properties;
        let waker = Arc::clone(&self.network.lock().wakers[usize::from(member)]);
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
        assert_eq!(bytes.len(), chunk.reduction.input_bytes(chunk.count));
        assert!(bytes.len() <= self.properties.chunk_bytes_max, "the chunk is too long");
        let mut shared = self.network.lock();
        if shared.is_dead {
            return Err(OffloadError::Closed);
        }
        if !self.slots.has_room() {
            return Ok(false);
        }
        self.slots.post(
            chunk.number,
            chunk.tag,
            chunk.reduction.output_bytes(chunk.count, self.member),
        );
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
        if shared.is_dead && !moved { Err(OffloadError::Closed) } else { Ok(moved) }
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn slots_mut(&mut self) -> &mut Slots {
        &mut self.slots
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

mod tests {
    use ringfold_innetwork::Outcome;
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
        let network = Network::new(3, |_| true, sum);
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
    }
}
