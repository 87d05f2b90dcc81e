//! The model beside published bus bandwidths of NCCL's all-reduce. The tables are in
//! docs/simulator.md. Rates are those of data sheets. One price of each curve is fitted, on its
//! smallest size: the latency between hosts. That of NVLink is a quarter of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the rows of larger fabrics take minutes each")]

use std::path::Path;

use ringfold_collectives::Algorithm;
use ringfold_collectives::select::chunk_len;
use ringfold_sim::{Job, Limits, Programs, Routing, Shape, simulate};
use ringfold_topology::prices::{LinkClass, LinkPrice, Prices, Profile};
use ringfold_types::{Amount, Call, Collective, DataType, Rank, ReduceOp, Wire};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// The ranks of a measurement, and the program that stands for NCCL's.
struct Nccl {
    /// The network between hosts. The GPUs that NVLink joins are the ranks of one host.
    fabric: &'static str,
    per_host: usize,
    algorithm: &'static str,
    /// NCCL has so many rings side by side. Each has its part of the bytes and of NVLink, and ports
    /// of its own. One is simulated, since all do the same.
    rings: usize,
    /// Picoseconds of a byte over NVLink, for one of them.
    nvlink_ps: u64,
}

/// Bytes, and published GB/s.
type Point = (usize, f64);

/// p6-B200: NVLink of 900 GB/s, and 400 Gbit/s for each GPU.
const B200: Nccl =
    Nccl { fabric: "rail:4x8:400G", per_host: 8, algorithm: "ring", rings: 8, nvlink_ps: 9 };

const AWS: [Point; 6] = [
    (32 << 10, 0.01),
    (MIB, 5.37),
    (16 * MIB, 64.43),
    (256 * MIB, 229.09),
    (GIB, 361.99),
    (16 * GIB, 381.80),
];

/// GB200 NVL72: NVLink of 900 GB/s among 72 GPUs, and 400 Gbit/s for each of them.
const fn nvl72(fabric: &'static str) -> Nccl {
    Nccl { fabric, per_host: 72, algorithm: "ring", rings: 72, nvlink_ps: 80 }
}

const CORE_WEAVE_SIZES: [usize; 6] = [512 * MIB, GIB, 2 * GIB, 4 * GIB, 8 * GIB, 16 * GIB];

const CORE_WEAVE: [(&str, &[f64]); 3] = [
    ("switch:1x1:400G", &[586.06, 681.17, 757.78, 839.16, 834.57]),
    ("switch:2x1:400G", &[493.94, 596.10, 680.30, 743.09, 793.06, 810.41]),
    ("switch:20x1:400G", &[150.95, 218.85, 286.52, 346.38, 381.48, 405.74]),
];

/// H100: NVLink of 450 GB/s, of which 2 ps a byte are 500 GB/s.
const fn h100(fabric: &'static str) -> Nccl {
    Nccl { fabric, per_host: 8, algorithm: "hierarchical", rings: 1, nvlink_ps: 2 }
}

const TREE_SIZES: [usize; 5] = [16 * MIB, 64 * MIB, 256 * MIB, GIB, 16 * GIB];

const GTC24: [(&str, [f64; 5]); 9] = [
    ("rail:4x8:400G", [126.0, 230.0, 314.0, 352.0, 376.0]),
    ("rail:8x8:400G", [82.0, 190.0, 310.0, 348.0, 378.0]),
    ("rail:16x8:400G", [72.0, 176.0, 297.0, 349.0, 380.0]),
    ("rail:32x8:400G", [65.0, 166.0, 276.0, 344.0, 378.0]),
    ("rail:64x8:400G", [57.0, 150.0, 265.0, 340.0, 375.0]),
    ("rail:128x8:400G", [47.0, 125.0, 256.0, 332.0, 370.0]),
    ("rail:256x8:400G", [43.0, 125.0, 232.0, 311.0, 369.0]),
    ("rail:512x8:400G", [36.0, 108.0, 225.0, 296.0, 374.0]),
    ("rail:1024x8:400G", [32.0, 107.0, 218.0, 308.0, 366.0]),
];

const ARXIV: [(&str, [f64; 5]); 2] = [
    ("rail:4x8:400G", [114.0, 217.0, 273.0, 338.0, 358.0]),
    ("rail:512x8:400G", [41.0, 112.0, 219.0, 286.0, 345.0]),
];

impl Nccl {
    fn job(&self, latency_ps: u64) -> Job {
        let mut profile = Profile::default();
        for class in LinkClass::ALL {
            let usual = LinkPrice { message_ps: 1, work_ps: [1, 1], ..LinkPrice::of(class) };
            let price = match class.is_between_hosts() {
                true => LinkPrice { latency_ps, ..usual },
                false => LinkPrice { latency_ps: latency_ps / 4, byte_ps: self.nvlink_ps, ..usual },
            };
            profile.set_link(class, price);
        }
        profile.set_combining(1);
        let fabric = self.fabric.parse::<Shape>().unwrap().fabric();
        let adjust = |prices: Prices| prices.with_profile(&profile);
        Job::of(&fabric, None, self.per_host, true, adjust).unwrap()
    }

    /// Bus bandwidth in GB/s.
    fn simulated(&self, bytes: usize, latency_ps: u64) -> f64 {
        let job = self.job(latency_ps);
        let (collective, data_type, op) = (Collective::AllReduce, DataType::F32, ReduceOp::Sum);
        let (count, root, wire) = (bytes / 4 / self.rings, Rank(0), Wire::default());
        let call = Call { collective, count, data_type, op, root, wire };
        let known = Algorithm::of(collective).iter().find(|it| it.name == self.algorithm).unwrap();
        let chunk = chunk_len(&call, &job.layout);
        let programs = Programs::of(&job, &call, known, chunk, Limits::default()).unwrap();
        let time_ps = simulate(&job, &programs, Routing::default()).unwrap().time_ps;
        bytes as f64 / time_ps as f64 * 1e3 * collective.bus_factor(job.layout.size())
    }

    /// The latency by which the simulated bandwidth is the published one; or the least one, if that
    /// is too long.
    fn fitted(&self, (bytes, published): Point) -> u64 {
        let (mut low, mut high) = (1_000_u64, 1_000_000_000);
        while high * 99 > low * 100 {
            let middle = low.midpoint(high);
            match self.simulated(bytes, middle) > published {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// A row of a table: the ranks, the latency, and the published bandwidth of each size with the
    /// error of the simulated one.
    fn row(&self, what: &str, points: impl IntoIterator<Item = Point>) -> String {
        let points: Vec<Point> = points.into_iter().collect();
        let latency_ps = self.fitted(points[0]);
        let cells = points.into_iter().map(|(bytes, published)| {
            let error = (self.simulated(bytes, latency_ps) / published - 1.0) * 100.0;
            format!("{}: {published}, {error:+.0} % |", Amount(bytes))
        });
        let cells: Vec<String> = cells.collect();
        let micros = latency_ps as f64 / 1e6;
        let row = format!("| {what} | `{}` | {micros:.1} us | {}", self.fabric, cells.join(" "));
        println!("{row}");
        row
    }
}

fn assert_written(rows: &[String]) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulator.md");
    let page = std::fs::read_to_string(page).unwrap();
    let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "put into docs/simulator.md:\n{}", rows.join("\n"));
}

fn of_core_weave((fabric, published): (&'static str, &[f64])) -> String {
    nvl72(fabric).row("CoreWeave", CORE_WEAVE_SIZES.into_iter().zip(published.iter().copied()))
}

fn of_tree(what: &str, (fabric, published): (&'static str, [f64; 5])) -> String {
    h100(fabric).row(what, TREE_SIZES.into_iter().zip(published))
}

#[test]
fn rings_miss_published_ones_by_what_the_page_says() {
    let [one, two, _] = CORE_WEAVE;
    let of_aws = [0, 1].map(|first| B200.row("AWS", AWS[first..].iter().copied()));
    let rows: Vec<String> = of_aws.into_iter().chain([one, two].map(of_core_weave)).collect();
    assert_written(&rows);
}

#[test]
#[ignore = "takes minutes"]
fn a_long_ring_misses_the_published_one_by_what_the_page_says() {
    assert_written(&[of_core_weave(CORE_WEAVE[2])]);
}

#[test]
#[ignore = "takes minutes"]
fn trees_miss_published_ones_by_what_the_page_says() {
    let all = GTC24.map(|it| of_tree("GTC24", it)).into_iter();
    let rows: Vec<String> = all.chain(ARXIV.map(|it| of_tree("arXiv", it))).collect();
    assert_written(&rows);
}
