//! The server: a control port, where jobs ask for groups, and one task for each group.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rayon::{ThreadPool, ThreadPoolBuilder};
use ringfold_bootstrap::Secret;
use ringfold_bootstrap::aggregators::{
    self, Above, Ask, FromAggregator, Granted, Stats, ToAggregator,
};
use ringfold_transport::offload::Carrier;
use ringfold_types::limits;
use tokio::net::TcpListener;

use crate::core::{Group, Shape};
use crate::pool::{Lease, Pool};
use crate::record::Records;
use crate::session;
use crate::uplink::Endpoint;

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
    /// Carries the chunks of groups whose members have a carrier too, and for which the pool has
    /// room.
    pub carrier: Option<Arc<dyn Carrier>>,
}

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
    carrier: Option<Arc<dyn Carrier>>,
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
        let Config { listen, site, memory, threads, mbps, parent, carrier } = config;
        let threads = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|at| format!("combine-{at}"))
            .build()
            .map_err(io::Error::other)?;
        let shared = Shared {
            listen: listen.ip(),
            mbps,
            parent,
            carrier,
            memory: Pool::new(memory),
            threads: Arc::new(threads),
            records: Records::default(),
            next: AtomicU32::new(0),
        };
        Ok(Self { control: aggregators::listen(listen)?, site, shared: Arc::new(shared) })
    }

    /// The address of the control port.
    ///
    /// # Errors
    /// The system refuses.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.control.local_addr()
    }

    /// Serves jobs until the task is dropped.
    pub async fn run(self) {
        let Self { control, site, shared } = self;
        aggregators::serve(control, site, |request, at| {
            let answer = match request {
                ToAggregator::Ask(ask) => match Shared::grant(&shared, ask, at) {
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
            };
            std::future::ready(answer)
        })
        .await;
    }
}

impl Shared {
    /// Takes memory for a group and starts its task, or says why not. The request came to the
    /// address `at` of this host.
    fn grant(shared: &Arc<Self>, ask: Ask, at: IpAddr) -> Result<Granted, String> {
        let Ask { job, key, ranks, first, members, window, chunk_bytes, above } = ask;
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
        let above = above.map(|above| shared.endpoint(above, at)).transpose()?;
        if shared.records.count() >= limits::AGGREGATOR_GROUPS_MAX {
            return Err(format!("{} groups exist", limits::AGGREGATOR_GROUPS_MAX));
        }
        let (lease, carrier) = shared.lease(&shape)?;
        let listener = aggregators::listen(SocketAddr::new(shared.listen, 0));
        let listener = listener.map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let group = shared.next.fetch_add(1, Ordering::Relaxed);
        tracing::info!(job, group, ?shape, ?above, "granted a group");
        let record = shared.records.insert(group, job, (shape.clone(), lease.bytes()), above);
        let core = Group::new(shape, Some(Arc::clone(&shared.threads)));
        let (records, at) = (shared.records.clone(), shared.listen);
        tokio::spawn(async move {
            let _removed = Removed { records, group };
            session::serve(core, (group, key), (listener, at), record, (lease, carrier)).await;
        });
        Ok(Granted { group, port, mbps: shared.mbps })
    }

    /// Takes memory for a group, and for the links of its children and to its parent. Without room
    /// for the links, the connections carry the chunks.
    fn lease(&self, shape: &Shape) -> Result<(Lease, Option<Arc<dyn Carrier>>), String> {
        let links = shape.children() + usize::from(!shape.is_top);
        if let Some(carrier) = &self.carrier {
            match self.memory.take(shape.bytes() + links * carrier.link_bytes()) {
                Ok(lease) => return Ok((lease, Some(Arc::clone(carrier)))),
                Err(lack) => tracing::info!("chunks do not go by {}: {lack}", carrier.name()),
            }
        }
        Ok((self.memory.take(shape.bytes()).map_err(|e| e.to_string())?, None))
    }

    /// The endpoint of the group above one for which a request came to the address `at`.
    fn endpoint(&self, above: Above, at: IpAddr) -> Result<Endpoint, String> {
        let Above { group, port, child, is_here } = above;
        let ip = match (&self.parent, is_here) {
            (_, true) => at,
            (Some((_, parent)), false) => parent.ip(),
            (None, false) => {
                return Err("it has no parent; start it with --parent or --tree".into());
            }
        };
        Ok(Endpoint { at: SocketAddr::new(ip, port), group, child })
    }

    fn stats(&self) -> Stats {
        let memory = (self.memory.bytes() as u64, self.memory.used() as u64);
        Stats { memory, groups: self.records.stats() }
    }
}

/// Removes a group's record when its task ends, also by a panic.
struct Removed {
    records: Records,
    group: u32,
}

impl Drop for Removed {
    fn drop(&mut self) {
        self.records.remove(self.group);
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
