//! `ringfold tune`: times every algorithm between the ranks of a job and writes a file for
//! `RINGFOLD_PLAN`. It is a rank program: start it in the same way as the jobs that use the file.
//! `prices` has `--machine`.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use ringfold::config::measurements;
use ringfold::{Buffers, Communicator};
use ringfold_collectives::Algorithm;
use ringfold_collectives::cost::price;
use ringfold_collectives::select::{Measurements, Row, buffer_bytes, chunk_len, is_possible};
use ringfold_launcher::Progress;
use ringfold_types::limits::TUNE_BYTES_MAX;
use ringfold_types::{Amount, Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::new_file::NewFile;
use crate::prices;

/// The command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to write; measurements in it for other numbers of ranks are kept, as are prices of
    /// other links [default: ringfold.plan, or ringfold.prices with --machine]
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Measure the prices of links and of combining, for RINGFOLD_PRICES, instead of algorithms
    #[arg(long, conflicts_with_all = ["begin", "end", "factor"])]
    machine: bool,
    /// The smallest buffer
    #[arg(short = 'b', long, value_name = "BYTES", default_value = "8")]
    begin: Amount,
    /// The largest buffer
    #[arg(short = 'e', long, value_name = "BYTES", default_value = "64M")]
    end: Amount,
    /// Factor from one size to the next
    #[arg(short = 'f', long, default_value = "4")]
    factor: usize,
}

/// Algorithms whose estimate exceeds this multiple of the lowest estimate are not measured.
const ESTIMATE_RATIO_MAX: u32 = 16;

/// Number of batches; the median counts.
const BATCHES: usize = 5;

/// Bytes that a batch moves. They give its number of calls, within the bounds of `CALLS`.
const BATCH_BYTES: usize = 16 << 20;
/// Calls of a batch: the fewest and the most.
const CALLS: std::ops::RangeInclusive<usize> = 2..=200;

/// Measures, and writes the file on rank 0. Returns the text to print. Every rank calls this.
pub(crate) fn answer(args: &Args) -> anyhow::Result<String> {
    let default = if args.machine { "ringfold.prices" } else { "ringfold.plan" };
    let path = args.output.as_deref().unwrap_or(default);
    if args.machine {
        return prices::measure(path);
    }
    let (Amount(begin), Amount(end)) = (args.begin, args.end);
    let factor = args.factor;
    ensure!(factor > 1, "--factor {factor}: give at least 2");
    ensure!(
        0 < begin && begin <= end,
        "--begin {begin}: give at least 1 byte and at most --end ({end})"
    );
    ensure!(end <= TUNE_BYTES_MAX, "--end {end}: give at most {TUNE_BYTES_MAX} bytes");
    let mut comm = Communicator::init()?;
    ensure!(comm.size() > 1, "tune needs several ranks, as in: ringrun -n 4 ringfold tune");
    let mut measured = match comm.rank() {
        Rank(0) if Path::new(path).exists() => measurements(path)?,
        _ => Measurements::default(),
    };
    let is_first = comm.rank() == Rank(0);
    let file = is_first.then(|| NewFile::create("--output", path)).transpose()?;
    measured.drop_shape(comm.size(), comm.layout().hosts());
    let mut memory = vec![0_u8; end.next_multiple_of(4 * comm.size())];
    let sizes = || {
        let sizes = std::iter::successors(Some(begin), |bytes| bytes.checked_mul(args.factor));
        sizes.take_while(|bytes| *bytes <= end)
    };
    let mut progress = Progress::new(is_first);
    for (number, collective) in (1..).zip(Collective::ALL) {
        for bytes in sizes() {
            progress.show(|| {
                let (count, size) = (Collective::ALL.len(), Amount(bytes));
                format!("collective {number} of {count}: {collective} of {size}")
            });
            measure(&mut comm, collective, bytes, &mut memory, &mut measured)?;
            if collective == Collective::Barrier {
                break;
            }
        }
    }
    drop(progress);
    let rows = measured.rows().len();
    comm.leave()?;
    let Some(file) = file else { return Ok(String::new()) };
    file.finish(&measured.to_string())?;
    Ok(format!("{rows} measurements in {path}; RINGFOLD_PLAN={path} on every rank uses them\n"))
}

/// Times every promising algorithm for calls with a buffer of about `bytes`.
fn measure(
    comm: &mut Communicator,
    collective: Collective,
    bytes: usize,
    memory: &mut [u8],
    measured: &mut Measurements,
) -> anyhow::Result<()> {
    let ranks = comm.size();
    let has_blocks = collective.has_blocks();
    let count = match collective {
        Collective::Barrier => 0,
        _ if has_blocks => (bytes / 4 / ranks).max(1),
        _ => (bytes / 4).max(1),
    };
    let (data_type, op) = match collective {
        Collective::Barrier => (DataType::U8, ReduceOp::Sum),
        _ => (DataType::F32, ReduceOp::Sum),
    };
    let call = Call { collective, count, data_type, op, root: Rank(0), wire: Wire::default() };
    let used = count * data_type.bytes() * if has_blocks { ranks } else { 1 };
    let in_place = call.in_place_of(comm.rank(), ranks) * data_type.bytes();
    let layout = comm.layout();
    let estimate =
        |algorithm: &Algorithm| price(algorithm, &call, layout, chunk_len(&call, layout));
    let possible = |algorithm: &&Algorithm| is_possible(algorithm, &call, layout);
    let known = || Algorithm::of(collective).iter().filter(possible);
    let estimated = known().filter(|algorithm| algorithm.has_estimate(layout));
    let least = estimated.map(estimate).min().unwrap_or_default();
    let promising: Vec<_> = known()
        .filter(|it| !it.has_estimate(layout) || estimate(it) <= least * ESTIMATE_RATIO_MAX)
        .collect();
    for algorithm in promising {
        let only = format!("{collective}:{}", algorithm.name);
        comm.set_algorithms(only.parse().context(only)?);
        let nanos = time(comm, &call, &mut memory[..in_place])?;
        if comm.rank() == Rank(0) {
            let (hosts, algorithm) = (comm.layout().hosts(), algorithm.name);
            measured.add(Row { collective, ranks, hosts, bytes: used, algorithm, nanos });
        }
    }
    Ok(())
}

/// Returns the nanoseconds of one call: of the median batch, on the slowest rank.
fn time(comm: &mut Communicator, call: &Call, memory: &mut [u8]) -> anyhow::Result<u64> {
    let calls =
        (BATCH_BYTES / buffer_bytes(call, comm.size()).max(1)).clamp(*CALLS.start(), *CALLS.end());
    let mut batches = [0_u64; BATCHES];
    comm.perform(call, Buffers::InPlace(memory))?;
    for batch in &mut batches {
        comm.barrier()?;
        let start = Instant::now();
        for _ in 0..calls {
            comm.perform(call, Buffers::InPlace(memory))?;
        }
        *batch = u64::try_from(start.elapsed().as_nanos())? / calls as u64;
    }
    comm.all_reduce(&mut batches, ReduceOp::Max)?;
    batches.sort_unstable();
    Ok(batches[BATCHES / 2])
}
