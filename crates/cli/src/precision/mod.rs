//! `ringfold precision`: the rounding errors of each algorithm's sums.

mod error;
mod execute;
#[cfg(test)]
mod tests;

use std::fmt::{self, Write};
use std::sync::Mutex;

use anyhow::{Context, ensure};
use rayon::prelude::*;
use ringfold_collectives::select::{Constraints, Measurements, chunk_len, select};
use ringfold_collectives::{Algorithm, Program, ScheduleParams, Target, lower};
use ringfold_launcher::Progress;
use ringfold_reduce::Kernel;
use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Amount, Call, Collective, DataType, Rank, ReduceOp, Wire};

use error::{Errors, Exact, Signs, bound, inputs, unit_roundoff};
use execute::{Numbers, Way, execute};

use crate::plan::elements;

/// The most ranks of a call. Sums of so many inputs do not overflow any type.
const RANKS_MOST: usize = 512;

/// The most elements of all ranks' inputs together.
const INPUTS_MOST: usize = 1 << 24;

/// The most elements that all ranks together may send. Algorithms that send more are left out.
const SENT_MOST: usize = 1 << 25;

/// The least results of a call whose size the user leaves open.
const RESULTS_WANTED: usize = 1024;

/// The command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// allreduce, reduce_scatter or reduce
    collective: Collective,
    /// Numbers of ranks, as in 2,8,64
    #[arg(short = 'n', long, required = true, value_delimiter = ',')]
    ranks: Vec<usize>,
    /// Ranks on each host, which are numbered host by host [default: all on one]
    #[arg(long, value_name = "RANKS")]
    per_host: Option<usize>,
    /// Elements of the whole buffer, or of one rank's block for reduce_scatter [default: 1024
    /// results or more]
    #[arg(short, long, value_parser = elements)]
    count: Option<Amount>,
    /// Types of the elements: f16, bf16, f8e4m3, f8e5m2 or f32
    #[arg(short, long, value_name = "TYPE", value_delimiter = ',', default_value = "bf16")]
    data_type: Vec<DataType>,
    /// Form of partial results of short floats between hosts, as RINGFOLD_WIRE: element or
    /// accumulator
    #[arg(long, value_name = "FORM", default_value_t)]
    wire: Wire,
}

/// A call on a layout.
struct Question {
    call: Call,
    layout: Layout,
}

/// The findings about one algorithm.
enum Finding {
    Sums(Sums),
    /// The algorithm was not executed, for this reason.
    LeftOut(&'static str),
}

/// The sums of one algorithm.
struct Sums {
    /// The longest ways of inputs to results.
    way: Way,
    /// The errors of sums of inputs of both signs.
    mixed: Errors,
    /// The errors of sums of positive inputs.
    positive: Errors,
}

/// Returns a table for each data type.
pub(crate) fn answer(args: &Args) -> anyhow::Result<String> {
    let collective = args.collective;
    ensure!(collective.reduces(), "{collective} does not add: there is no rounding error");
    let mut text = String::new();
    let travel = match args.wire {
        Wire::Element => "rounded to the type between hosts",
        Wire::Accumulator => "f32 between hosts",
    };
    writeln!(text, "{collective}: errors of sums, whose partial results are {travel}")?;
    let progress = Mutex::new(Progress::on_terminal());
    for &data_type in &args.data_type {
        let u = unit_roundoff(data_type).with_context(|| {
            format!("--data-type {data_type}: give f16, bf16, f8e4m3, f8e5m2 or f32")
        })?;
        writeln!(text, "\n{:<43}inputs in [-1,1]  inputs in [0,1]", unit(data_type, u))?;
        write!(text, "{:>5}   {:<18} {:>6} {:>7}", "ranks", "algorithm", "rounds", "bound")?;
        writeln!(text, "{0:>9} {1:>7}{0:>9} {1:>7}", "typical", "worst")?;
        for &ranks in &args.ranks {
            rows(&mut text, &args.question(ranks, data_type)?, u, &progress)?;
        }
    }
    writeln!(
        text,
        "\nrounds: the most roundings on the way of an input to a result. Bound and errors are in\n\
         u times the sum of the inputs' magnitudes; typical is the root mean square. A bound of -\n\
         exceeds that sum. * is the algorithm that ringfold chooses for a call of this size."
    )?;
    Ok(text)
}

fn unit(data_type: DataType, u: f64) -> String {
    format!("{data_type}, u = 2^{}", u.log2())
}

impl Args {
    fn question(&self, ranks: usize, data_type: DataType) -> anyhow::Result<Question> {
        let is_few = (1..=RANKS_MOST).contains(&ranks);
        ensure!(is_few, "-n {ranks}: all ranks are executed here, so 1 to {RANKS_MOST}");
        let per_host = self.per_host.unwrap_or(ranks);
        ensure!(per_host > 0, "--per-host: at least 1");
        let collective = self.collective;
        let scattered = if collective == Collective::ReduceScatter { ranks } else { 1 };
        // Each rank finishes two results or more in algorithms that divide them.
        let least = RESULTS_WANTED.max(2 * ranks) / scattered;
        let count = self.count.map_or(least, |Amount(count)| count);
        ensure!(count > 0, "--count: at least 1");
        let inputs = count.saturating_mul(scattered).saturating_mul(ranks);
        ensure!(
            inputs <= INPUTS_MOST,
            "--count {count}: more than {INPUTS_MOST} inputs on {ranks} ranks"
        );
        let (op, root) = (ReduceOp::Sum, Rank(0));
        let call = Call { collective, count, data_type, op, root, wire: Wire::default() };
        let call = Call { wire: if call.has_wire() { self.wire } else { call.wire }, ..call };
        let layout = Layout::hosts_of(per_host, ranks);
        let shares_memory = layout.hosts() == 1;
        Ok(Question { call, layout: layout.sharing_memory(shares_memory) })
    }
}

/// Prints the rows of all algorithms for one call.
fn rows(
    text: &mut String,
    question: &Question,
    u: f64,
    progress: &Mutex<Progress>,
) -> anyhow::Result<()> {
    let Question { call, layout } = question;
    let chosen = select(call, layout, &Constraints::default(), &Measurements::default());
    let is_shown =
        |algorithm: &&Algorithm| algorithm.works_anywhere() || algorithm.name == chosen.name;
    let algorithms: Vec<_> = Algorithm::of(call.collective).iter().filter(is_shown).collect();
    let find = |algorithm: &&Algorithm| {
        if let Ok(mut progress) = progress.lock() {
            let (data_type, ranks) = (call.data_type, layout.size());
            progress.show(|| format!("{data_type} on {ranks} ranks: {}", algorithm.name));
        }
        question.find(algorithm)
    };
    let findings: Vec<anyhow::Result<Finding>> = algorithms.par_iter().map(find).collect();
    let mut ranks = layout.size().to_string();
    for (algorithm, finding) in algorithms.iter().zip(findings) {
        let mark = if algorithm.name == chosen.name { '*' } else { ' ' };
        write!(text, "{:>5} {mark} {:<18}", std::mem::take(&mut ranks), algorithm.name)?;
        match finding? {
            Finding::Sums(sums) => sums.print(text, call.data_type, u)?,
            Finding::LeftOut(reason) => writeln!(text, " left out: {reason}")?,
        }
    }
    Ok(())
}

impl Sums {
    fn print(&self, text: &mut String, data_type: DataType, u: f64) -> fmt::Result {
        let Self { way, mixed, positive } = self;
        let bound = bound(data_type, *way).filter(|bound| *bound < 1.0);
        let bound = bound.map_or_else(|| "-".to_owned(), |bound| format!("{:.2}", bound / u));
        write!(text, " {:>6} {bound:>7}", roundings(data_type, *way))?;
        for errors in [mixed, positive] {
            write!(text, "  {:>7.2} {:>7.2}", errors.typical() / u, errors.worst() / u)?;
        }
        writeln!(text)
    }
}

/// The roundings on a way. A type that is its own accumulator rounds each sum.
const fn roundings(data_type: DataType, way: Way) -> u32 {
    if data_type.is_short_float() { way.roundings } else { way.additions }
}

impl Question {
    /// Executes an algorithm.
    fn find(&self, algorithm: &Algorithm) -> anyhow::Result<Finding> {
        let Self { call, layout } = self;
        let size = layout.size();
        if !algorithm.works_anywhere() {
            return Ok(Finding::LeftOut("within a host it rounds results only"));
        }
        if (algorithm.stated)(call, layout).sent.saturating_mul(size) > SENT_MOST {
            return Ok(Finding::LeftOut("its ranks send too many elements to execute it here"));
        }
        let kernel = Kernel::new(call.data_type, call.op, size);
        let len = call.input_len(size);
        let given: Vec<Numbers<'_>> =
            (0..size).map(|rank| Numbers::rounded(&kernel, &inputs(rank, len))).collect();
        let mut exact = vec![Exact::default(); len];
        let summed = match call.collective.is_scan() {
            true => call.summands(Rank::at(size - 1), size),
            false => 0..size,
        };
        for given in &given[summed] {
            exact.iter_mut().zip(given.values()).for_each(|(exact, input)| exact.add(input));
        }
        let outputs = execute(&self.programs(algorithm), &kernel, given)?;
        let (way, [mixed, positive]) = (Way::default(), [Errors::default(); 2]);
        let mut sums = Sums { way, mixed, positive };
        for (rank, output) in outputs.iter().enumerate() {
            let first = match call.collective {
                Collective::ReduceScatter => rank * call.count,
                // The last rank has the longest sums.
                collective if collective.is_scan() && rank + 1 < size => continue,
                collective if collective.is_scan() => 0,
                // The other ranks have the same results, or none.
                _ if rank > 0 => break,
                _ => 0,
            };
            for (at, result) in (first..).zip(output.values()) {
                let errors = match Signs::at(at) {
                    Signs::Both => &mut sums.mixed,
                    Signs::Positive => &mut sums.positive,
                };
                errors.add(exact[at].error_of(result));
            }
            sums.way = output.ways().iter().fold(sums.way, |all, way| all.longest(*way));
        }
        Ok(Finding::Sums(sums))
    }

    /// The programs of all ranks.
    fn programs(&self, algorithm: &Algorithm) -> Vec<Program> {
        let (call, layout) = (self.call, &self.layout);
        let chunk = chunk_len(&call, layout);
        let program = |rank| {
            let window_bytes = LINK_BYTES_MIN;
            let params = ScheduleParams { call, layout, rank, chunk, window_bytes };
            lower(&(algorithm.schedule)(&params), Target::default())
        };
        (0..layout.size()).map(Rank::at).map(program).collect()
    }
}
