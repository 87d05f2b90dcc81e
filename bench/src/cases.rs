//! The calls to time, from the command line.

use ringfold::limits::RANKS_MAX;
use ringfold::{Call, DataType, Rank, ReduceOp, UnknownName, Wire};
use ringfold_types::same_name;

use crate::args::Args;
use crate::buffers::buffer_bytes;
use crate::test::Test;

/// The checked calls of a run.
#[derive(Clone, Debug)]
pub(crate) struct Cases {
    test: Test,
    sizes: Vec<usize>,
    series: Vec<Series>,
    ranks: usize,
    /// The form of partial results of short floats between hosts.
    wire: Wire,
}

/// Calls that differ in size only.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Series {
    data_type: DataType,
    op: ReduceOp,
    root: Rank,
}

impl Cases {
    /// Returns the cases that `args` ask for among `ranks` ranks, or an error about the arguments.
    pub(crate) fn new(args: &Args, test: Test, ranks: usize, wire: Wire) -> Result<Self, String> {
        let (op, collective) = (ReduceOp::Sum, test.collective());
        let ops = if collective.reduces() { ops(&args.op)? } else { vec![op] };
        let roots = if test.has_root() { roots(&args.root, ranks)? } else { vec![Rank(0)] };
        let mut series = Vec::new();
        for data_type in data_types(&args.datatype)? {
            for &op in &ops {
                if !op.fits(data_type) {
                    let of = type_name(data_type);
                    return Err(format!("-o {op}: it combines integers only, not {of} of -d"));
                }
                series.extend(roots.iter().map(|&root| Series { data_type, op, root }));
            }
        }
        Ok(Self { test, sizes: sizes(args)?, series, ranks, wire })
    }

    /// Checks the arguments before the number of ranks is known, unless `--ranks` gives it. Returns
    /// the number of rows of the table, for one root.
    pub(crate) fn check(args: &Args, test: Test) -> Result<usize, String> {
        let ranks = if is_every_root(&args.root) { 1 } else { args.ranks.unwrap_or(RANKS_MAX) };
        let cases = Self::new(args, test, ranks, Wire::default())?;
        Ok(cases.series.len().saturating_mul(cases.sizes.len()))
    }

    /// Returns every call, in the order of the table.
    pub(crate) fn calls(&self) -> impl Iterator<Item = Call> + '_ {
        self.series
            .iter()
            .flat_map(move |series| self.sizes.iter().map(move |size| self.call(*series, *size)))
    }

    /// Returns the bytes of the largest buffer of any case.
    pub(crate) fn max_bytes(&self) -> usize {
        self.calls().map(|call| buffer_bytes(&call, self.ranks)).max().unwrap_or(0)
    }

    fn call(&self, Series { data_type, op, root }: Series, size: usize) -> Call {
        let elements = size / data_type.bytes();
        let collective = self.test.collective();
        let count = match collective {
            // All parts together are the whole buffer.
            _ if self.test.is_uneven() => {
                let shares = self.test.shares(self.ranks);
                elements / shares * shares
            }
            _ if collective.has_blocks() => {
                // As in nccl-tests, blocks begin at multiples of 16 bytes.
                (elements / self.ranks) & !(16 / data_type.bytes() - 1)
            }
            _ => elements,
        };
        Call { collective, count, data_type, op, root, wire: self.wire }
    }
}

fn sizes(args: &Args) -> Result<Vec<usize>, String> {
    let (first, last) = (args.minbytes, args.maxbytes);
    if first > last {
        return Err(format!("-b {first} is more than -e {last}"));
    }
    if first < last && args.stepfactor <= 1 && args.stepbytes == 0 {
        return Err("-i 0 never reaches -e; give -i or -f".to_owned());
    }
    let steps = match args.stepfactor {
        ..=1 => (last - first) / args.stepbytes.max(1),
        _ => 0,
    };
    if steps >= SIZES_MAX {
        let step = args.stepbytes;
        return Err(format!(
            "-i {step}: there are more than {SIZES_MAX} sizes from -b to -e; give a larger step, \
             or -f"
        ));
    }
    let next = |size: &usize| {
        let next = if args.stepfactor > 1 {
            // A size of 0 stays 0 under any factor, so 1 follows it.
            size.saturating_mul(args.stepfactor).max(1)
        } else {
            size.saturating_add(args.stepbytes.max(1))
        };
        (next <= last).then_some(next)
    };
    Ok(std::iter::successors(Some(first), next).collect())
}

/// The most sizes of a run.
const SIZES_MAX: usize = 1 << 20;

/// The operations of nccl-tests. The last one is `MULSUM`; every rank gets a scale of its own.
const OPS: [ReduceOp; 6] = [
    ReduceOp::Sum,
    ReduceOp::Prod,
    ReduceOp::Min,
    ReduceOp::Max,
    ReduceOp::Avg,
    ReduceOp::pre_mul_sum(1.0),
];

/// nccl-tests' name of the sum of scaled elements.
const MULSUM: &str = "mulsum";

/// nccl-tests' name of a data type.
pub(crate) const fn type_name(data_type: DataType) -> &'static str {
    match data_type {
        DataType::I8 => "int8",
        DataType::U8 => "uint8",
        DataType::I32 => "int32",
        DataType::U32 => "uint32",
        DataType::I64 => "int64",
        DataType::U64 => "uint64",
        DataType::F16 => "half",
        DataType::F32 => "float",
        DataType::F64 => "double",
        DataType::Bf16 => "bfloat16",
        DataType::F8E4M3 => "f8e4m3",
        DataType::F8E5M2 => "f8e5m2",
    }
}

/// nccl-tests' name of a call's operation.
pub(crate) const fn op_name(call: &Call) -> &'static str {
    match call.op {
        _ if !call.collective.reduces() => "none",
        ReduceOp::PreMulSum(_) => MULSUM,
        op => op.name(),
    }
}

/// The root in the table: -1 for an operation without a root.
pub(crate) fn root_text(test: Test, call: &Call) -> String {
    if test.has_root() { call.root.to_string() } else { "-1".to_owned() }
}

fn data_types(name: &str) -> Result<Vec<DataType>, String> {
    if same_name(name, "all") {
        return Ok(DataType::ALL.to_vec());
    }
    let found = name.parse().map(|data_type| vec![data_type]);
    found.map_err(|error: UnknownName| format!("-d {name}: {error}, or all"))
}

fn ops(name: &str) -> Result<Vec<ReduceOp>, String> {
    if same_name(name, "all") {
        return Ok(OPS.to_vec());
    }
    if ["premulsum", MULSUM].iter().any(|known| same_name(name, known)) {
        return Ok(vec![ReduceOp::pre_mul_sum(1.0)]);
    }
    let found = name.parse().map(|op| vec![op]);
    found.map_err(|error: UnknownName| format!("-o {name}: {error}, {MULSUM}, or all"))
}

/// Whether `-r` asks for every rank in turn.
fn is_every_root(text: &str) -> bool {
    text == "-1" || same_name(text, "all")
}

fn roots(text: &str, ranks: usize) -> Result<Vec<Rank>, String> {
    if is_every_root(text) {
        return Ok((0..ranks).map(Rank::at).collect());
    }
    match text.parse() {
        Ok(root) if root < ranks => Ok(vec![Rank::at(root)]),
        _ => Err(format!("-r {text}: give a root from 0 to {}, or -1 for all", ranks - 1)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use ringfold::Collective;

    use super::*;

    fn cases(line: &str, collective: Collective, ranks: usize) -> Result<Cases, String> {
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        Cases::new(&args, Test::Collective(collective), ranks, Wire::default())
    }

    #[test]
    fn sizes_step_as_asked() {
        let by_factor = cases("perf -b 0 -e 64 -f 4", Collective::AllReduce, 2).unwrap();
        assert_eq!(by_factor.sizes, [0, 1, 4, 16, 64]);
        let by_bytes = cases("perf -b 8 -e 30 -i 10", Collective::AllReduce, 2).unwrap();
        assert_eq!(by_bytes.sizes, [8, 18, 28]);
        assert!(cases("perf -b 9 -e 8", Collective::AllReduce, 2).is_err());
        assert!(cases("perf -b 0 -e 8 -i 0", Collective::AllReduce, 2).is_err());
        let many = cases("perf -b 0 -e 1G -i 1", Collective::AllReduce, 2).unwrap_err();
        assert!(many.starts_with("-i 1: there are more than 1048576 sizes"), "{many}");
        let floats = cases("perf -o band", Collective::AllReduce, 2).unwrap_err();
        assert!(floats.starts_with("-o band: it combines integers only, not float"), "{floats}");
    }

    #[test]
    fn blocks_are_cut_as_nccl_tests_cuts_them() {
        let cases = cases("perf -b 1000 -e 1000 -d float", Collective::AllGather, 3).unwrap();
        let call = cases.calls().next().unwrap();
        assert_eq!(call.count, 80);
        assert_eq!(buffer_bytes(&call, 3), 960);
    }

    #[test]
    fn short_floats_have_two_names() {
        let data_types = |name| data_types(name).unwrap();
        for (name, short) in
            [("half", "f16"), ("bfloat16", "bf16"), ("f8e4m3", "f8e4m3"), ("f8e5m2", "f8e5m2")]
        {
            assert_eq!(data_types(name), data_types(short));
        }
        assert_eq!(data_types("bfloat16"), [DataType::Bf16]);
    }

    #[test]
    fn all_means_all() {
        let cases = cases("perf -b 8 -e 8 -d all -o all", Collective::AllReduce, 2).unwrap();
        assert_eq!(cases.calls().count(), 12 * 6);
        let roots = self::cases("perf -b 8 -e 8 -r -1", Collective::Broadcast, 5).unwrap();
        assert_eq!(roots.calls().count(), 5);
        assert!(self::cases("perf -r 5", Collective::Broadcast, 5).is_err());
        let unknown = self::cases("perf -d flota", Collective::Broadcast, 5).unwrap_err();
        assert!(unknown.starts_with("-d flota: unknown data type (did you mean float?); one of"));
    }
}
