//! In-network reduction by software: an aggregator, which combines the chunks of its children. A
//! control port takes the requests of jobs, and each group has a task of its own.
//!
//! * `core`: a group without I/O: chunks and results;
//! * `combine`: sums of a chunk's parts, by the kernels of `ringfold-reduce`;
//! * `pool`: the memory that all groups share;
//! * `links`: the endpoints of a group, over TCP and over RDMA;
//! * `uplink`: the link of a group to the one above it;
//! * `session`: the task of a group;
//! * `record`: the numbers of groups.

pub mod combine;
pub mod core;
mod links;
pub mod pool;
mod record;
mod session;
mod uplink;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::RdmaDevices;
use crate::trees::{
    self, Above, Ask, FromAggregator, Granted, GroupStats, Stats, Terms, ToAggregator,
};
use crate::wire::links::{Endpoints, tcp_bytes};
use rayon::{ThreadPool, ThreadPoolBuilder};
use ringfold_bootstrap::{Secret, service};
use ringfold_types::limits;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use self::core::{Group, Shape};
use self::links::Endpoint;
use self::pool::Pool;
use self::record::Records;
use self::uplink::Parent;

/// Bytes of a job's name.
const JOB_BYTES_MAX: usize = 64;

/// The settings of an aggregator.
#[derive(Debug)]
pub struct Config {
    /// The address of the control port. Groups get ports of their own at the same address.
    pub listen: SocketAddr,
    /// The site's secret, which opens the control port.
    pub site: Secret,
    /// Bytes that all groups may use together.
    pub memory: usize,
    /// Threads that share the combination of long chunks.
    pub threads: usize,
    /// The rate of all its links together in Mbit/s, by which jobs judge whether the aggregator is
    /// faster than their own steps; 0 if it is not known.
    pub mbps: u32,
    /// The control port of the parent, as it was named and as an address.
    pub parent: Option<(String, SocketAddr)>,
    /// The RDMA devices, for children that have some too, as far as the pool has room.
    pub devices: Option<Arc<RdmaDevices>>,
}

/// The endpoints of a group, the first of them for TCP, and the devices of the other one.
type Opened = (Vec<Endpoint>, Option<Arc<RdmaDevices>>);

/// An aggregator that listens.
#[derive(Debug)]
pub struct Server {
    control: TcpListener,
    site: Secret,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The address at which all ports listen.
    listen: IpAddr,
    mbps: u32,
    parent: Option<(String, SocketAddr)>,
    devices: Option<Arc<RdmaDevices>>,
    memory: Arc<Pool>,
    threads: Arc<ThreadPool>,
    records: Records,
    next: AtomicU32,
}

impl Server {
    /// Listens at the control port. Must be called within a tokio runtime of several threads.
    ///
    /// # Errors
    /// The port is taken, or the system refuses threads.
    pub fn bind(config: Config) -> io::Result<Self> {
        let Config { listen, site, memory, threads, mbps, parent, devices } = config;
        let threads = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|at| format!("combine-{at}"))
            .build()
            .map_err(io::Error::other)?;
        let shared = Shared {
            listen: listen.ip(),
            mbps,
            parent,
            devices,
            memory: Pool::new(memory),
            threads: Arc::new(threads),
            records: Records::default(),
            next: AtomicU32::new(0),
        };
        Ok(Self { control: service::listen(listen)?, site, shared: Arc::new(shared) })
    }

    /// The address of the control port.
    ///
    /// # Errors
    /// The system refuses.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.control.local_addr()
    }

    /// Returns a function that returns the numbers of all groups.
    pub fn stats(&self) -> impl Fn() -> Stats + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.stats()
    }

    /// Serves jobs until the task is dropped.
    pub async fn run(self) {
        let Self { control, site, shared } = self;
        let site = service::Shared { secret: site, sources: trees::SOURCES };
        service::serve(control, site, |request, at| {
            let shared = Arc::clone(&shared);
            async move {
                let Some(request) = request else {
                    return FromAggregator::Refused("an unknown request".into());
                };
                if !matches!(request, ToAggregator::Ask(_)) {
                    return Shared::answer(&shared, request, at);
                }
                // To open devices takes some tenths of a second.
                let answering = spawn_blocking(move || Shared::answer(&shared, request, at));
                let failed = |error| FromAggregator::Refused(format!("the server fails: {error}"));
                answering.await.unwrap_or_else(failed)
            }
        })
        .await;
    }
}

impl Shared {
    fn answer(shared: &Arc<Self>, request: ToAggregator, at: IpAddr) -> FromAggregator {
        match request {
            ToAggregator::Ask(ask) => match Self::grant(shared, ask, at) {
                Ok(granted) => FromAggregator::Granted(granted),
                Err(reason) => {
                    tracing::warn!("refused a group: {reason}");
                    FromAggregator::Refused(reason)
                }
            },
            ToAggregator::Stats => FromAggregator::Stats(shared.stats()),
            ToAggregator::Parent => {
                FromAggregator::Parent(shared.parent.as_ref().map(|(name, _)| name.clone()))
            }
        }
    }

    /// Takes memory for a group and starts its task, or says why not. The request came to the
    /// address `at` of this host.
    fn grant(shared: &Arc<Self>, ask: Ask, at: IpAddr) -> Result<Granted, String> {
        let Ask { terms, first, members, above } = ask;
        let Terms { job, key, ranks, window, chunk_bytes } = terms;
        let shape = Shape {
            first,
            members,
            ranks: ranks as usize,
            window: window.into(),
            chunk_bytes_max: chunk_bytes as usize,
            is_top: above.is_none(),
        };
        if !shape.is_sound() || job.len() > JOB_BYTES_MAX {
            let children = limits::AGGREGATOR_CHILDREN_MAX;
            let bytes = limits::OFFLOAD_CHUNK_BYTES_MAX;
            return Err(format!(
                "a group has 1 to {children} children, 1 to {} chunks ahead of at most {bytes} \
                 bytes, and a job's name of at most {JOB_BYTES_MAX} bytes",
                limits::OFFLOAD_WINDOW_MAX,
            ));
        }
        let above = above.map(|above| shared.parent(above, at)).transpose()?;
        let (ends, devices) = shared.open(&shape, key)?;
        let port_of = |is_rdma| {
            ends.iter().find(|end| end.is_rdma == is_rdma).map_or(0, |end: &Endpoint| end.port)
        };
        let (port, rdma_port) = (port_of(false), port_of(true));
        let group = shared.next.fetch_add(1, Ordering::Relaxed);
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let record = shared.records.insert(GroupStats {
            job,
            group,
            children: (number(shape.children()), 0),
            parent: above.map(|above| trees::Parent {
                at: above.at.tcp.to_string(),
                group: above.group,
                is_connected: false,
            }),
            slots: number(shape.children() * shape.window),
            linked: 0,
            memory: ends[0].lease().bytes() as u64,
            chunks: 0,
            bytes: 0,
            waited: 0,
        })?;
        let job = &record.job;
        tracing::info!(job, group, ?shape, ?above, "granted a group");
        let core = Group::new(shape, Some(Arc::clone(&shared.threads)));
        tokio::spawn(session::serve(core, ends, record, (above, key, devices)));
        Ok(Granted { group, port, rdma_port, mbps: shared.mbps })
    }

    /// Opens the endpoints of a group, also those for RDMA if that is possible.
    fn open(&self, shape: &Shape, key: [u8; 32]) -> Result<Opened, String> {
        if self.devices.is_some() {
            match self.open_by(shape, key, self.devices.as_ref()) {
                Ok(opened) => return Ok(opened),
                Err(lack) => tracing::warn!("chunks do not go by rdma: {lack}"),
            }
        }
        self.open_by(shape, key, None)
    }

    /// Takes memory for a group, and for the links of its children and to its parent, and opens
    /// its endpoints.
    fn open_by(
        &self,
        shape: &Shape,
        key: [u8; 32],
        devices: Option<&Arc<RdmaDevices>>,
    ) -> Result<Opened, String> {
        let links = shape.children() + usize::from(!shape.is_top);
        // The endpoint for RDMA takes connections by TCP as well.
        let of_tcp = tcp_bytes(shape.children());
        let of_rdma = devices.map_or(0, |devices| of_tcp + links * devices.link_bytes());
        let lease = self.memory.take(shape.bytes() + of_rdma).map_err(|e| e.to_string())?;
        let lease = Arc::new(lease);
        let open = |devices: Option<&RdmaDevices>| {
            let opened = Endpoint::open(devices, self.listen, key, (shape.children(), &lease));
            opened.map_err(|e| e.to_string())
        };
        let mut ends = vec![open(None)?];
        if let Some(devices) = devices {
            ends.push(open(Some(devices))?);
        }
        Ok((ends, devices.cloned()))
    }

    /// The group above one for which a request came to the address `at`.
    fn parent(&self, above: Above, at: IpAddr) -> Result<Parent, String> {
        let Above { group, port, rdma_port, child, is_here } = above;
        let ip = match (&self.parent, is_here) {
            (_, true) => at.to_canonical(),
            (Some((_, parent)), false) => parent.ip(),
            (None, false) => {
                return Err("it has no parent; start it with --parent or --tree".into());
            }
        };
        let at = Endpoints { tcp: SocketAddr::new(ip, port), rdma_port };
        Ok(Parent { at, group, child })
    }

    fn stats(&self) -> Stats {
        let memory = (self.memory.bytes() as u64, self.memory.used() as u64);
        Stats { memory, groups: self.records.stats() }
    }
}
