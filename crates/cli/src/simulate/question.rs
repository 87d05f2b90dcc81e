//! The arguments of `ringfold simulate`, as typed and as calls on a job.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use ringfold::config::profile;
use ringfold_collectives::Algorithm;
use ringfold_sim::{Job, Routing, Shape};
use ringfold_topology::fabric::Fabric;
use ringfold_topology::prices::Prices;
use ringfold_types::limits::RANKS_MAX;
use ringfold_types::{Amount, Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::topo;

/// The command line.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The collective, as in allreduce or alltoall
    collective: Collective,
    /// The fabric: kind, hosts x ports of each, and rate, as in rail:1024x8:400G; or several
    #[arg(long, value_name = "SHAPE", required_unless_present = "from", conflicts_with = "from")]
    #[arg(long_help = SHAPES)]
    fabric: Vec<Shape>,
    /// Files of a site's fabric, as for `ringfold topo --from`
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
    /// Number of ranks, which fill the hosts one after the other [default: all hosts]
    #[arg(short = 'n', long)]
    ranks: Option<usize>,
    /// Ranks on each host [default: one for each port, or 1 with --from]
    #[arg(long, value_name = "RANKS")]
    per_host: Option<usize>,
    /// Bytes of the larger buffer of a rank, as in nccl-tests; with K, M or G
    #[arg(short, long, value_name = "BYTES", default_value_t = Amount(64 << 20))]
    bytes: Amount,
    /// Bytes up to which sizes go [default: those of --bytes]
    #[arg(short, long, value_name = "BYTES")]
    end: Option<Amount>,
    /// Each size over the one before
    #[arg(short = 'f', long, value_name = "FACTOR", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    factor: u32,
    /// Type of the elements
    #[arg(short, long, value_name = "TYPE", default_value_t = DataType::F32)]
    data_type: DataType,
    /// sum, prod, min, max or avg
    #[arg(short, long, default_value_t = ReduceOp::Sum)]
    op: ReduceOp,
    /// The rank that broadcasts, or reduces to itself
    #[arg(short, long, default_value_t = 0)]
    root: usize,
    /// Only this algorithm [default: all that go over links]
    #[arg(short, long, value_name = "NAME")]
    algorithm: Option<String>,
    /// The choice between ways of equal length: `destination` by the receiver's port, as a subnet
    /// manager does, `ecmp` by a hash, or `adaptive` by load
    #[arg(long, value_name = "RULE", default_value = "destination")]
    routing: String,
    /// The seed of the hash of --routing ecmp, and of random --traffic
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// A cable that has failed, as in leaf3.0 (the first cable of leaf3 to other switches) or
    /// host5.2 (the third port of host5)
    #[arg(long, value_name = "CABLE")]
    fail: Vec<String>,
    /// A cable with a part of its rate, as in leaf3.0=0.25
    #[arg(long, value_name = "CABLE=PART")]
    slow: Vec<String>,
    /// Streams of other jobs: one from a port to another, as in host3.0:host9.0, or this many
    /// between random ports. Each takes its fair share of links, but no more than this part of its
    /// port [default: all]
    #[arg(long, value_name = "PORT:PORT|NUMBER[=PART]")]
    traffic: Vec<String>,
    /// An aggregator on each switch, for `in_network`
    #[arg(long)]
    aggregators: bool,
    /// TCP between hosts in place of RDMA
    #[arg(long)]
    tcp: bool,
    /// A file that `ringfold tune --machine` wrote [default: the rates of the ports, and defaults]
    #[arg(long, value_name = "FILE")]
    prices: Option<String>,
    /// A new file for plots: bus bandwidth by size if there are several, and by hosts if --fabric
    /// is given again; otherwise the part of the time for which each link is full
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

const SHAPES: &str = "\
The fabric: kind, hosts x ports of each, and rate. Given again, the calls run on each of them.

  switch:8x1:100G           all ports on one switch
  fat:512x2:400G            the ports of a host on one leaf switch, 2 or 3 levels of switches
  rail:1024x8:400G          port i of each host of a group on leaf switch i of the group
  rail-only:1024x8:400G     the same, with a network of its own for each rail
  dragonfly:1024x1:200G     groups of leaf and spine switches, each with cables to all others
  torus:8x8x8:100G          a host on each switch of a grid that closes on itself

:radix=K after that sets the ports of a switch (64, or 16 in a dragonfly), and :over=K has K times \
as many ports down as up on each leaf switch.";

/// Sizes of a table; more are no table.
const SIZES_MAX: usize = 64;
/// Streams of other jobs.
const STREAMS_MAX: usize = RANKS_MAX;
/// Fabrics of a command. The largest take some hundred MB each.
const FABRICS_MAX: usize = 16;

/// The job, and the sizes and algorithms to run on it.
pub(super) struct Question {
    pub(super) job: Job,
    /// The fabric, in the user's words.
    pub(super) place: String,
    pub(super) routing: Routing,
    pub(super) collective: Collective,
    pub(super) calls: Vec<Call>,
    pub(super) algorithms: Vec<&'static Algorithm>,
}

impl Args {
    /// The same question for each fabric.
    pub(super) fn questions(&self) -> anyhow::Result<Vec<Question>> {
        let count = self.fabric.len();
        ensure!(count <= FABRICS_MAX, "--fabric: {count} of them; give at most {FABRICS_MAX}");
        if self.fabric.is_empty() {
            let files: Vec<String> = self.from.iter().map(|it| it.display().to_string()).collect();
            let (fabric, place) = (topo::fabric(&self.from)?, files.join(" "));
            return Ok(vec![self.question(&fabric, place, self.per_host.unwrap_or(1))?]);
        }
        let of_shape = |shape: &Shape| {
            let per_host = self.per_host.unwrap_or_else(|| shape.ports_per_host());
            self.question(&shape.fabric(), shape.to_string(), per_host)
        };
        self.fabric.iter().map(of_shape).collect()
    }

    fn question(
        &self,
        fabric: &Fabric,
        place: String,
        per_host: usize,
    ) -> anyhow::Result<Question> {
        let collective = self.collective;
        let routing = match self.routing.as_str() {
            "destination" => Routing::ByDestination,
            "ecmp" => Routing::Ecmp(self.seed),
            "adaptive" => Routing::Adaptive,
            other => bail!("--routing {other}: give destination, ecmp or adaptive"),
        };
        let named = |name: &String| {
            Algorithm::of(collective).iter().find(|it| it.name == *name).with_context(|| {
                let known = Algorithm::of(collective).iter().filter(|it| it.works_anywhere());
                let known: Vec<&str> = known.map(|it| it.name).collect();
                format!("--algorithm {name}: {collective} has {}", known.join(" "))
            })
        };
        let is_there =
            |it: &Algorithm| it.works_anywhere() || it.needs_provider() && self.aggregators;
        let algorithms = match self.algorithm.as_ref().map(named).transpose()? {
            Some(one) => {
                let (name, asks) = (one.name, one.needs_provider());
                ensure!(is_there(one) || !asks, "--algorithm {name}: give --aggregators too");
                ensure!(is_there(one), "--algorithm {name}: only links are simulated");
                vec![one]
            }
            None => Algorithm::of(collective).iter().filter(|it| is_there(it)).collect(),
        };
        ensure!((1..=RANKS_MAX).contains(&per_host), "--per-host: 1 to {RANKS_MAX}");
        let profile = self.prices.as_deref().map(profile).transpose()?.unwrap_or_default();
        let adjust = |prices: Prices| prices.with_profile(&profile);
        let mut job = Job::of(fabric, self.ranks, per_host, !self.tcp, adjust)?;
        let size = job.layout.size();
        ensure!(self.root < size, "--root {}: there are only {size} ranks", self.root);
        for cable in &self.fail {
            job.network.slow(cable, 0.0).with_context(|| format!("--fail {cable}"))?;
        }
        for words in &self.slow {
            let parts =
                words.split_once('=').and_then(|(cable, part)| Some((cable, part.parse().ok()?)));
            let (cable, part) = parts
                .filter(|(_, part)| (0.0..=1.0).contains(part))
                .with_context(|| format!("--slow {words}: give CABLE=PART, as in leaf3.0=0.25"))?;
            job.network.slow(cable, part).with_context(|| format!("--slow {words}"))?;
        }
        for words in &self.traffic {
            self.add_traffic(&mut job, words).with_context(|| format!("--traffic {words}"))?;
        }
        if self.aggregators {
            job = job.with_aggregators().context("--aggregators")?;
        }
        let calls = self.sizes()?.into_iter().map(|bytes| self.call(bytes, size));
        let calls = calls.collect::<anyhow::Result<Vec<Call>>>()?;
        Ok(Question { job, place, routing, collective, calls, algorithms })
    }

    fn add_traffic(&self, job: &mut Job, words: &str) -> anyhow::Result<()> {
        let (ends, part) = words.split_once('=').unwrap_or((words, "1"));
        let form = "give PORT:PORT or a number, and =PART above 0 up to 1, as in 20=0.5";
        let part = part.parse().ok().filter(|part| *part > 0.0 && *part <= 1.0).context(form)?;
        if let Some((from, to)) = ends.split_once(':') {
            return Ok(job.add_traffic([from, to], part)?);
        }
        let count: usize = ends.parse().context(form)?;
        let all = count.saturating_add(job.streams());
        ensure!(all <= STREAMS_MAX, "more than {STREAMS_MAX} streams");
        Ok(job.add_random_traffic(count, self.seed, part)?)
    }

    fn sizes(&self) -> anyhow::Result<Vec<usize>> {
        let (Amount(first), Amount(last)) = (self.bytes, self.end.unwrap_or(self.bytes));
        if self.collective == Collective::Barrier {
            return Ok(vec![0]);
        }
        ensure!(first > 0 && first <= last, "--bytes {first} to {last}: give at least 1, in order");
        let next = |bytes: &usize| bytes.checked_mul(self.factor as usize);
        let sizes: Vec<usize> = std::iter::successors(Some(first), next)
            .take_while(|bytes| *bytes <= last)
            .take(SIZES_MAX + 1)
            .collect();
        ensure!(sizes.len() <= SIZES_MAX, "more than {SIZES_MAX} sizes; give a larger --factor");
        Ok(sizes)
    }

    /// The call whose larger buffer has about as many bytes.
    fn call(&self, bytes: usize, size: usize) -> anyhow::Result<Call> {
        let collective = self.collective;
        let is_empty = collective == Collective::Barrier;
        let data_type = if is_empty { DataType::U8 } else { self.data_type };
        let parts = if collective.has_blocks() { size } else { 1 };
        let count = if is_empty { 0 } else { (bytes / data_type.bytes() / parts).max(1) };
        let room = usize::MAX >> 20;
        let fits = count.checked_mul(size).is_some_and(|all| all <= room);
        ensure!(fits, "--bytes {}: too many to count on {size} ranks", Amount(bytes));
        let (op, root) = (self.op, Rank::at(self.root));
        Ok(Call { collective, count, data_type, op, root, wire: Wire::default() })
    }
}
