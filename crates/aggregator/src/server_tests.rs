//! A server within this process, whose carrier keeps its links open.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use ringfold_transport::offload::aggregator::{AggregatorGroup, Child};
use ringfold_transport::offload::handshake::Place;
use ringfold_transport::offload::{End, Group as _, Properties};
use ringfold_transport::tcp::Tcp;
use ringfold_transport::{Fragment, Link, LinkError, Transport};
use tokio::runtime::Builder;

use super::*;

const KEY: [u8; 32] = [7; 32];
const SITE: [u8; 32] = [1; 32];
const DEADLINE: Duration = Duration::from_secs(60);
const CHUNK: u32 = 4096;

/// Carries chunks by the TCP endpoint.
#[derive(Debug)]
struct OverTcp {
    is_open_for_ever: bool,
}

impl Carrier for OverTcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn link_bytes(&self) -> usize {
        1
    }

    fn make_transport(&self, tcp: Tcp, _end: End) -> io::Result<Box<dyn Transport>> {
        Ok(if self.is_open_for_ever { Box::new(Endless(tcp)) } else { Box::new(tcp) })
    }
}

/// A transport that does not end in the time of a test.
#[derive(Debug)]
struct Endless(Tcp);

impl Drop for Endless {
    fn drop(&mut self) {
        thread::sleep(10 * DEADLINE);
    }
}

impl Transport for Endless {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.0.send(link, tag, bytes)
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        self.0.readable(link)
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        self.0.consume(link, bytes);
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        self.0.poll()
    }

    fn is_flushed(&self) -> bool {
        self.0.is_flushed()
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.0.wake_fd()
    }

    fn arm(&mut self) {
        self.0.arm();
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }
}

#[test]
fn an_epoch_begins_though_the_links_of_the_last_one_stay_open() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        site: Secret::new(SITE),
        memory: 64 << 20,
        threads: 1,
        mbps: 0,
        parent: None,
        carrier: Some(Arc::new(OverTcp { is_open_for_ever: true })),
    };
    let server = runtime.block_on(async { Server::bind(config) }).unwrap();
    let at = server.address().unwrap().to_string();
    runtime.spawn(server.run());
    let (job, window) = ("test".to_owned(), 2);
    let (ranks, first, members) = (2, 0, vec![1; 2]);
    let ask = Ask { job, key: KEY, ranks, first, members, window, chunk_bytes: CHUNK, above: None };
    let (granted, at) = aggregators::ask(&at, &Secret::new(SITE), ask, DEADLINE).unwrap();
    let join = |epoch| {
        let place = Place { group: granted.group, epoch, child: 0 };
        let child = Child { place, key: KEY, members: 0..=0 };
        let chunk_bytes_max = CHUNK as usize;
        let properties =
            Properties { chunk_bytes_max, window: window.into(), fixed_order: true, exact: true };
        let carrier: Arc<dyn Carrier> = Arc::new(OverTcp { is_open_for_ever: false });
        let began = Instant::now();
        let mut group = AggregatorGroup::connect(at, child, properties, Some(carrier)).unwrap();
        while !group.is_ready() {
            assert!(began.elapsed() < DEADLINE, "epoch {epoch} does not begin");
            group.poll().unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        group
    };
    let groups = [1, 2].map(join);
    drop(groups);
    runtime.shutdown_background();
}
