//! The arguments of `ringfold plan`, as typed and as a call on a layout.

use anyhow::{Context, bail, ensure};
use ringfold::config::profile;
use ringfold::{Config, tcp_rates};
use ringfold_collectives::select::{
    Constraints, Measurements, buffer_bytes, chunk_len, select, select_uneven, sum_bytes,
};
use ringfold_collectives::uneven::{even_call, measured_call};
use ringfold_collectives::{Algorithm, Blocks, Schedule, ScheduleParams, Uneven};
use ringfold_topology::discover::Cpus;
use ringfold_topology::prices::{LinkClass, Locality, Prices};
use ringfold_topology::{Aggregation, AggregationTree, Layout, Occupancy, PeerMemory, discover};
use ringfold_types::limits::{AGGREGATOR_CHILDREN_MAX, CHANNELS_MAX, RANKS_MAX};
use ringfold_types::{
    Amount, Call, Collective, DataType, Hint, InvalidAmount, Rank, ReduceOp, UnevenCollective,
    Wire, same_name,
};

use super::layout;
use super::link::Link;

/// The command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The collective, as in allreduce or alltoall; allgatherv and reduce_scatterv need --counts
    #[arg(value_parser = Subject::named)]
    collective: Subject,
    /// The algorithm to print [default: list all]
    #[arg(short, long, value_name = "NAME")]
    algorithm: Option<String>,
    /// Number of ranks
    #[arg(short = 'n', long, required_unless_present = "layout")]
    ranks: Option<usize>,
    /// Ranks on each host, which are numbered host by host [default: all on one]
    #[arg(long, value_name = "RANKS")]
    per_host: Option<usize>,
    /// A file with the place of each rank; also prints the traffic across leaf groups, spines and
    /// rails
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ranks", "per_host"])]
    #[arg(long_help = layout::HELP)]
    layout: Option<String>,
    /// Size of the whole buffer, or of one rank's block for allgather and reduce_scatter; with K, M
    /// or G
    #[arg(short, long, conflicts_with = "count")]
    bytes: Option<Amount>,
    /// The same size in elements [default: 4 for each rank]
    #[arg(short, long, value_parser = elements)]
    count: Option<Amount>,
    /// Elements of each rank's block, as in 3,0,5, for allgather and reduce_scatter: the call is
    /// all_gather_v or reduce_scatter_v
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["bytes", "count"])]
    counts: Option<Vec<usize>>,
    /// Type of the elements [default: f32]
    #[arg(short, long, value_name = "TYPE")]
    data_type: Option<DataType>,
    /// sum, prod, min, max or avg [default: sum]
    #[arg(short, long)]
    op: Option<ReduceOp>,
    /// Form of partial results of short floats between hosts, as RINGFOLD_WIRE: element or
    /// accumulator
    #[arg(long, value_name = "FORM", default_value_t)]
    wire: Wire,
    /// The rank that broadcasts, or reduces to itself [default: 0]
    #[arg(short, long)]
    root: Option<usize>,
    /// Print the steps of this rank only
    #[arg(long)]
    rank: Option<usize>,
    /// CPUs for the ranks of each host [default: as on this machine]
    #[arg(long)]
    cpus: Option<usize>,
    /// Links that the job might have, as in rdma-400, 'RDMA 400G', tcp-25, cache or socket. Several
    /// are separated by commas [default: TCP at the rate of this machine's NICs between hosts, and
    /// this machine's caches and sockets within them]
    #[arg(long, value_name = "CLASS", value_delimiter = ',', value_parser = Link::named)]
    link: Vec<Link>,
    /// Bytes of a chunk, the unit of forwarding [default: ringfold's choice]
    #[arg(long, value_name = "BYTES")]
    chunk: Option<Amount>,
    /// A file that `ringfold tune --machine` wrote, as for RINGFOLD_PRICES [default: NICs of this
    /// machine, and defaults]
    #[arg(long, value_name = "FILE")]
    prices: Option<String>,
    /// Aggregators that combine data between hosts, each with one NIC of a host's rate [default:
    /// none]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=8))]
    aggregators: Option<u8>,
    /// Rate of all links of an aggregator together in Gbit/s, as for `ringfold aggregate`
    #[arg(long, value_name = "RATE", requires = "aggregators")]
    #[arg(value_parser = crate::aggregate::mbps)]
    aggregator_gbps: Option<u32>,
    /// Concurrent parts of a long call with ring and chain, as RINGFOLD_CHANNELS
    #[arg(long, default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(CHANNELS_MAX)))]
    channels: u8,
}

/// A collective, as the user named it.
#[derive(Clone, Copy)]
struct Subject {
    collective: Collective,
    /// Whether the name is that of the form with uneven parts.
    is_uneven: bool,
}

impl Subject {
    fn named(name: &str) -> anyhow::Result<Self> {
        let Ok(uneven) = name.parse::<UnevenCollective>() else {
            return Ok(Self { collective: name.parse()?, is_uneven: false });
        };
        let collective = uneven.scheduled_as();
        let collective = collective.context("it has no schedule: its parts are messages")?;
        Ok(Self { collective, is_uneven: true })
    }
}

/// A call on a layout, and the parts of its plan to print.
pub(crate) struct Question {
    /// The call. Its count is that of the longest block if there are several.
    pub(crate) call: Call,
    /// The blocks, if the user gave their lengths.
    pub(crate) blocks: Option<Blocks>,
    pub(crate) layout: Layout,
    /// Elements of a chunk, if the user chose it.
    chunk: Option<usize>,
    pub(crate) algorithm: Option<&'static Algorithm>,
    pub(super) rank: Option<Rank>,
    /// Whether the user gave the number of CPUs.
    are_cpus_given: bool,
    /// The classes of links that the user supposes.
    links: Vec<LinkClass>,
}

impl Args {
    pub(crate) fn question(&self) -> anyhow::Result<Question> {
        let layout = self.layout()?;
        let size = layout.size();
        self.refuse_unused_options()?;
        let rank = |option, rank: Option<usize>| match rank {
            Some(rank) if rank >= size => bail!("{option} {rank}: there are only {size} ranks"),
            rank => Ok(rank.map(Rank::at)),
        };
        let Subject { collective, .. } = self.collective;
        let blocks = self.blocks(size)?;
        let call = Call {
            collective,
            count: blocks.as_ref().map_or_else(|| self.count(size), |it| Ok(it.longest()))?,
            data_type: match collective {
                Collective::Barrier => DataType::U8,
                _ => self.data_type.unwrap_or(DataType::F32),
            },
            op: self.op.unwrap_or(ReduceOp::Sum),
            root: rank("--root", self.root)?.unwrap_or_default(),
            wire: Wire::default(),
        };
        let call = Call { wire: if call.has_wire() { self.wire } else { call.wire }, ..call };
        let least = sum_bytes(&call, &layout);
        let chunk = self.chunk.map(|Amount(bytes)| bytes / least);
        ensure!(chunk != Some(0), "--chunk: at least one partial result of {least} B");
        let known = Question::known(collective, blocks.is_some());
        let named = |name: &str| named(collective, name, &known);
        let algorithm = self.algorithm.as_deref().map(named).transpose()?;
        let rank = rank("--rank", self.rank)?;
        ensure!(rank.is_none() || algorithm.is_some(), "--rank: name the --algorithm to print");
        let are_cpus_given = self.cpus.is_some();
        let links = self.link.iter().map(|link| link.class).collect();
        Ok(Question { call, blocks, layout, chunk, algorithm, rank, are_cpus_given, links })
    }

    /// Returns the layout of the ranks.
    fn layout(&self) -> anyhow::Result<Layout> {
        let layout = match (&self.layout, self.ranks) {
            (Some(file), _) => layout::read(file)?,
            (None, Some(size)) => {
                ensure!((1..=RANKS_MAX).contains(&size), "-n: 1 to {RANKS_MAX} ranks, not {size}");
                let per_host = self.per_host.unwrap_or(size);
                ensure!(per_host > 0, "--per-host: at least 1");
                Layout::hosts_of(per_host, size)
            }
            (None, None) => bail!("-n: give the number of ranks"),
        };
        let cpus = self.cpus.unwrap_or_else(discover::cores);
        ensure!(cpus > 0, "--cpus: at least 1");
        let between = self.link.iter().rfind(|link| link.class.is_between_hosts());
        if let (Some(Link { class, .. }), 1) = (between, layout.hosts()) {
            bail!("--link {class}: one host has no network; give --per-host or --layout");
        }
        let are_containers = between.is_some_and(|link| link.class == LinkClass::Container);
        // Containers of one machine share its CPUs.
        let sharing = if are_containers { layout.size() } else { layout.ranks_per_host().1 };
        let occupancy = Occupancy { ranks: sharing, cpus };
        let has_rdma = between.is_some_and(|link| matches!(link.class, LinkClass::Rdma(_)));
        let layout = layout.with_rdma(has_rdma);
        let shares_memory = layout.hosts() == 1;
        let layout = layout.with_occupancy(occupancy).sharing_memory(shares_memory);
        let layout = if shares_memory { layout.with_peer_memory(PeerMemory::Fast) } else { layout };
        let prices = self.prices(layout.hosts())?;
        let layout = layout.with_channels(usize::from(self.channels)).with_prices(prices);
        let of_host = layout.prices().link(layout.links_between()).byte_ps;
        let hosts = layout.hosts();
        let byte_ps = match self.aggregator_gbps {
            Some(mbps) => Aggregation::byte_ps_of(mbps, hosts),
            None => of_host * hosts as u64,
        };
        let aggregation = |groups: u8| Aggregation {
            tree: AggregationTree::levels(hosts, AGGREGATOR_CHILDREN_MAX).into(),
            groups: usize::from(groups),
            byte_ps: byte_ps / u64::from(groups),
            ..Aggregation::star(hosts)
        };
        let aggregation = self.aggregators.map(aggregation);
        Ok(layout.with_aggregation(aggregation))
    }

    /// Returns the prices of links, if all hosts are like this machine.
    fn prices(&self, hosts: usize) -> anyhow::Result<Prices> {
        let locality = discover::locality(std::path::Path::new("/"), &Cpus::allowed());
        let mut prices = Prices::default().with_links_within(Locality::class(&[locality]));
        if hosts > 1 {
            // Without an interface that suits, the rate is unknown.
            let rates = Config::from_env().ok().and_then(|config| tcp_rates(&config).ok());
            prices = prices.with_rates(rates.unwrap_or_default());
        }
        let profile = self.prices.as_deref().map(profile).transpose()?;
        let prices = self.link.iter().fold(prices, |prices, link| link.suppose(prices));
        Ok(prices.with_profile(&profile.unwrap_or_default()))
    }

    fn refuse_unused_options(&self) -> anyhow::Result<()> {
        let Subject { collective, .. } = self.collective;
        let moves_nothing = collective == Collective::Barrier;
        for (option, is_given) in [
            ("--bytes", self.bytes.is_some()),
            ("--count", self.count.is_some()),
            ("--data-type", self.data_type.is_some()),
            ("--chunk", self.chunk.is_some()),
        ] {
            ensure!(!(is_given && moves_nothing), "{option}: a barrier moves no elements");
        }
        let has_no_op = self.op.is_some() && !collective.reduces();
        ensure!(!has_no_op, "--op: {collective} does not combine elements");
        let has_no_wire = self.wire != Wire::default() && !collective.reduces();
        ensure!(!has_no_wire, "--wire: {collective} has no partial results");
        let has_no_root = self.root.is_some() && !collective.has_root();
        ensure!(!has_no_root, "--root: no rank is special in {collective}");
        Ok(())
    }

    /// Returns the blocks, if their lengths are given.
    fn blocks(&self, size: usize) -> anyhow::Result<Option<Blocks>> {
        let Some(counts) = &self.counts else {
            ensure!(!self.collective.is_uneven, "--counts: give one for each of {size} ranks");
            return Ok(None);
        };
        let Subject { collective, .. } = self.collective;
        let has_any = !Uneven::of(collective).is_empty();
        ensure!(has_any, "--counts: only allgather and reduce_scatter take them, not {collective}");
        let given = counts.len();
        ensure!(given == size, "--counts: give one for each of {size} ranks, not {given}");
        let longest = counts.iter().copied().max().unwrap_or(0);
        check_countable(longest, size)?;
        Ok(Some(Blocks::in_order(counts.iter().copied())))
    }

    /// Returns the elements of the call.
    fn count(&self, size: usize) -> anyhow::Result<usize> {
        let element = self.data_type.unwrap_or(DataType::F32);
        let count = match (self.bytes, self.count) {
            (Some(Amount(bytes)), _) => {
                let whole = bytes.is_multiple_of(element.bytes());
                ensure!(whole, "--bytes {bytes}: not a whole number of {element} elements");
                bytes / element.bytes()
            }
            (_, Some(Amount(count))) => count,
            // Few enough to print, and enough for every rank in most algorithms.
            _ => match self.collective.collective {
                Collective::Barrier => 0,
                collective if collective.has_blocks() => 4,
                _ => 4 * size,
            },
        };
        check_countable(count, size)?;
        Ok(count)
    }
}

/// Checks that sums over all ranks and all steps cannot overflow.
fn check_countable(count: usize, size: usize) -> anyhow::Result<()> {
    let room = usize::MAX >> 16;
    let is_countable = count.checked_mul(size).is_some_and(|total| total <= room);
    ensure!(is_countable, "{count} elements on {size} ranks: too many to count");
    Ok(())
}

impl Question {
    /// Describes the layout, as in `8 ranks of one host with 2 CPUs` or `16 ranks on 2 hosts of 8
    /// with 2 CPUs each`.
    pub(crate) fn place(&self) -> String {
        let (ranks, hosts) = (self.ranks(), self.layout.hosts());
        let cpus = many(self.layout.occupancy().cpus, "CPU");
        match (hosts, self.layout.ranks_per_host().1) {
            (1, _) => format!("{ranks} of one host with {cpus}"),
            (_, most) => {
                let fewer = if self.layout.ranks_per_host().0 < most { "up to " } else { "" };
                format!("{ranks} on {hosts} hosts of {fewer}{most} with {cpus} each")
            }
        }
    }

    /// Counts the ranks, as in `8 ranks`.
    pub(crate) fn ranks(&self) -> String {
        many(self.layout.size(), "rank")
    }

    /// Returns the origin of the number of CPUs.
    pub(crate) const fn cpus_from(&self) -> &'static str {
        if self.are_cpus_given { "--cpus" } else { "this machine" }
    }

    /// Whether the user supposes links of this class.
    pub(crate) fn is_supposed(&self, class: LinkClass) -> bool {
        self.links.contains(&class)
    }

    /// The call as text, with the lengths of its blocks if they are given.
    pub(crate) fn text(&self) -> String {
        match &self.blocks {
            None => self.call.to_string(),
            Some(blocks) => format!("{} in {blocks}", self.call),
        }
    }

    /// The algorithms for the call, possible or not.
    pub(crate) fn algorithms(&self) -> Vec<&'static Algorithm> {
        Self::known(self.call.collective, self.blocks.is_some())
    }

    fn known(collective: Collective, is_uneven: bool) -> Vec<&'static Algorithm> {
        match is_uneven {
            true => Uneven::of(collective).iter().map(|it| it.algorithm).collect(),
            false => Algorithm::of(collective).iter().collect(),
        }
    }

    /// The call on equal blocks for which the facts of `algorithm` hold.
    pub(crate) fn even_call(&self, algorithm: &Algorithm) -> Call {
        self.blocks.as_ref().map_or(self.call, |it| even_call(algorithm, &self.call, it))
    }

    /// The call on equal blocks whose measurements apply.
    pub(crate) fn measured_call(&self) -> Option<Call> {
        self.blocks.as_ref().map_or(Some(self.call), |it| measured_call(&self.call, it))
    }

    /// The algorithm that ringfold chooses.
    pub(crate) fn chosen(&self, measured: &Measurements) -> &'static Algorithm {
        let (call, layout, any) = (&self.call, &self.layout, Constraints::default());
        match &self.blocks {
            None => select(call, layout, &any, measured),
            Some(blocks) => select_uneven(call, blocks, layout, &any, measured).algorithm,
        }
    }

    /// One rank's schedule.
    pub(super) fn schedule(&self, algorithm: &Algorithm, plan: &ScheduleParams<'_>) -> Schedule {
        let uneven = || Uneven::named(algorithm.collective, algorithm.name);
        match self.blocks.as_ref().and_then(|blocks| Some((uneven()?, blocks))) {
            Some((uneven, blocks)) => uneven.schedule(plan, blocks),
            None => (algorithm.schedule)(plan),
        }
    }

    /// Bytes of the larger of a rank's two buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        match &self.blocks {
            None => buffer_bytes(&self.call, self.layout.size()),
            Some(blocks) => blocks.end() * self.call.data_type.bytes(),
        }
    }

    /// Returns the elements of a chunk.
    pub(crate) fn chunk(&self) -> usize {
        self.chunk.unwrap_or_else(|| chunk_len(&self.call, &self.layout))
    }

    pub(super) fn plan(&self, rank: usize, window_bytes: usize) -> ScheduleParams<'_> {
        let (layout, chunk) = (&self.layout, self.chunk());
        ScheduleParams { call: self.call, layout, rank: Rank::at(rank), chunk, window_bytes }
    }

    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk() * sum_bytes(&self.call, &self.layout)
    }

    /// Describes the chunks of the message.
    pub(super) fn chunks(&self) -> String {
        let chunk = self.chunk();
        match self.call.collective {
            Collective::Barrier => "none: tokens of one byte".to_string(),
            _ if self.call.count <= chunk => "all in one".to_string(),
            _ => format!("of up to {}", self.elements(chunk)),
        }
    }

    /// Formats a number of elements.
    pub(super) fn elements(&self, elements: usize) -> String {
        let thing = if self.call.collective == Collective::Barrier { "token" } else { "element" };
        format!("{elements} {thing}{}", if elements == 1 { "" } else { "s" })
    }
}

/// Parses a number of elements, which has no unit.
pub(crate) fn elements(text: &str) -> Result<Amount, String> {
    match text.ends_with(['b', 'B']) {
        true => {
            Err("elements have no unit: give a number, with K, M or G, or give --bytes".to_owned())
        }
        false => text.parse().map_err(|error: InvalidAmount| error.to_string()),
    }
}

fn many(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn named(
    collective: Collective,
    name: &str,
    known: &[&'static Algorithm],
) -> anyhow::Result<&'static Algorithm> {
    known.iter().copied().find(|it| same_name(it.name, name)).with_context(|| {
        let known: Vec<&str> = known.iter().map(|known| known.name).collect();
        let hint = Hint::new(name, known.iter().copied());
        format!("--algorithm {name}: unknown{hint}; {collective} has {}", known.join(", "))
    })
}
