//! Aggregators that follow a script instead of combining chunks, each at the end of a link.

use std::os::fd::BorrowedFd;

use ringfold_innetwork::provider::{AggregatorGroup, Child};
use ringfold_innetwork::wire::header::{Header, Kind};
use ringfold_innetwork::wire::links::Endpoints;
use ringfold_innetwork::{Awaited, Chunk, End, Slots};

use super::*;

const KEY: [u8; 32] = [7; 32];

const BEAT: Duration = Duration::from_millis(limits::OFFLOAD_BEAT_MS);

/// The abilities of the software server.
const EXACT: Properties = Properties { chunk_bytes_max: 1 << 16, window: 8, exact: true };

/// The actions of an aggregator for one member, after the first chunk of that has arrived.
type Script = fn(&mut End, Header);

fn serve(mut end: End, script: Script) {
    assert_eq!(end.receive().unwrap().0.kind, Kind::Hello);
    end.send_message(&Header::plain(Kind::Welcome, 0), &[]).unwrap();
    // A member that knows of another one's trouble hands nothing over.
    if let Ok((header, _)) = end.receive() {
        script(&mut end, header);
    }
}

/// Sends a heartbeat that names member 1 as late. Returns whether the member reads on.
fn beat(end: &mut End) -> bool {
    let masks = [0b10_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    end.send_message(&Header::plain(Kind::Beat, 16), &masks).is_ok()
}

/// Connects members to scripted aggregators.
#[derive(Debug)]
struct Scripted {
    /// The aggregator of each member.
    at: Vec<Endpoints>,
    parks: Arc<AtomicUsize>,
}

impl Provider for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn devices(&self) -> &[Device] {
        &[]
    }

    fn connect(&mut self, _device: usize, member: u16) -> Result<Box<dyn Group>, OffloadError> {
        let number = u8::try_from(member).unwrap();
        let child = Child { number, key: KEY, members: member..=member };
        let at = self.at[usize::from(member)];
        let group = AggregatorGroup::connect(at, child, EXACT, None)?;
        Ok(Box::new(Counted { group, parks: Arc::clone(&self.parks) }))
    }

    fn supports(&self, _device: usize, _reduction: &Reduction) -> bool {
        true
    }
}

/// A group that counts how often its member has parked, or was about to.
#[derive(Debug)]
struct Counted {
    group: AggregatorGroup,
    parks: Arc<AtomicUsize>,
}

impl Group for Counted {
    fn is_ready(&self) -> bool {
        self.group.is_ready()
    }

    fn post(&mut self, chunk: &Chunk, bytes: &[u8]) -> Result<bool, OffloadError> {
        self.group.post(chunk, bytes)
    }

    fn poll(&mut self) -> Result<bool, OffloadError> {
        self.group.poll()
    }

    fn slots(&self) -> &Slots {
        self.group.slots()
    }

    fn slots_mut(&mut self) -> &mut Slots {
        self.group.slots_mut()
    }

    fn awaited(&self) -> Awaited {
        self.group.awaited()
    }

    fn give_up(&mut self) {
        self.group.give_up();
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.group.wake_fd()
    }

    fn arm(&mut self) {
        self.group.arm();
    }

    fn disarm(&mut self) {
        self.parks.fetch_add(1, Ordering::Relaxed);
        self.group.disarm();
    }
}

/// Runs `rank_main` on ranks whose aggregators follow `script`. Returns how often ranks parked.
fn with_script(script: Script, rank_main: impl Fn(&mut Communicator) + Sync) -> usize {
    let children = 0..u8::try_from(HOSTS).unwrap();
    let listen = |child| End::listen(KEY, child).unwrap();
    let (ends, at): (Vec<End>, Vec<Endpoints>) = children.map(listen).unzip();
    let parks = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for end in ends {
            scope.spawn(move || serve(end, script));
        }
        let provider = || {
            Box::new(Scripted { at: at.clone(), parks: Arc::clone(&parks) }) as Box<dyn Provider>
        };
        with_provider(FORCED, true, provider, rank_main);
    });
    parks.load(Ordering::Relaxed)
}

fn assert_sums(comm: &mut Communicator, count: usize) {
    let mut values = vec![1.0_f32; count];
    comm.all_reduce(&mut values, ReduceOp::Sum).unwrap();
    assert!(values.iter().all(|it| *it == 3.0));
}

/// Wake-ups of a rank for each chunk, at most. A rank that cannot sleep has thousands.
const WAKE_UPS_MAX: usize = 20;

#[test]
fn ranks_sleep_while_they_combine_chunks_themselves() {
    let (calls, chunks) = (4, 5);
    let parks = with_script(
        |_, _| {},
        |comm| {
            for _ in 0..calls {
                if comm.rank() == Rank(1) {
                    thread::sleep(Duration::from_millis(300));
                }
                assert_sums(comm, chunks * EXACT.chunk_bytes_max / 4);
            }
        },
    );
    let most = HOSTS * calls * chunks * WAKE_UPS_MAX;
    assert!(parks <= most, "{parks} wake-ups, more than {most}");
}

#[test]
fn an_aggregator_that_sends_heartbeats_alone_is_given_up() {
    with_script(
        |end, _| {
            while beat(end) {
                thread::sleep(BEAT);
            }
        },
        |comm| (0..3).for_each(|_| assert_sums(comm, 10)),
    );
}

#[test]
fn an_aggregator_that_floods_its_members_is_given_up() {
    with_script(|end, _| while beat(end) {}, |comm| (0..3).for_each(|_| assert_sums(comm, 10)));
}

#[test]
fn an_aggregator_that_sends_a_result_byte_by_byte_is_given_up() {
    with_script(
        |end, chunk| {
            let result = Header { kind: Kind::Result, ..chunk }.encode();
            let values = vec![0; chunk.bytes as usize];
            end.send(&result).unwrap();
            for byte in values.chunks(1) {
                if end.send(byte).is_err() {
                    return;
                }
                thread::sleep(BEAT);
            }
        },
        |comm| (0..3).for_each(|_| assert_sums(comm, 1000)),
    );
}
