//! The results as JSON, in the shape of nccl-tests' `-J` (version 3).

use serde_json::{Value, json};

use crate::args::Args;
use crate::cases::{op_name, root_text, type_name};
use crate::device::Device;
use crate::run::{Half, Iterations, Row};
use crate::stats::Spread;

/// The results of one run.
pub(crate) struct Outcome<'a> {
    pub(crate) start: String,
    pub(crate) end: String,
    pub(crate) command: Vec<String>,
    pub(crate) devices: &'a [Device],
    pub(crate) rows: &'a [Row],
    pub(crate) wrong: u64,
    pub(crate) average: f64,
}

/// Returns the document.
pub(crate) fn document(args: &Args, outcome: &Outcome<'_>) -> Value {
    let Outcome { start, end, command, devices, rows, wrong, average } = outcome;
    let device = |(rank, device): (usize, &Device)| {
        json!({
            "rank": rank, "group": 0, "pid": device.pid, "hostname": device.host,
            "device": device.local, "device_hex": "0000:00:00", "device_info": "CPU",
        })
    };
    let mut config = json!({
        "nthreads": 1, "ngpus": 1,
        "minimum_bytes": args.minbytes, "maximum_bytes": args.maxbytes,
        "warmup_iters": args.warmup_iters, "iterations": args.iters,
        "aggregated_iterations": args.agg_iters, "validation": args.check, "graph": 0,
        "blocking_collectives": args.blocking, "per_iter_timing": args.per_iter_timing == 1,
        "per_iter_skip": args.per_iter_skip, "parallel_init": false, "unalign": args.unalign,
        "devices": devices.iter().enumerate().map(device).collect::<Vec<_>>(),
    });
    if args.stepfactor > 1 {
        config["step_factor"] = json!(args.stepfactor);
    } else {
        config["step_bytes"] = json!(args.stepbytes);
    }
    json!({
        "version": 3,
        "start_time": start,
        "args": command,
        "env": {},
        "ringfold_version": env!("CARGO_PKG_VERSION"),
        "config": config,
        "results": rows.iter().map(|row| result(args, row)).collect::<Vec<_>>(),
        "out_of_bounds": { "count": wrong, "okay": *wrong == 0 },
        "average_bus_bandwidth": { "bandwidth": average, "okay": true },
        "errors": [],
        "end_time": end,
    })
}

fn result(args: &Args, row: &Row) -> Value {
    let mut result = json!({
        "size": row.bytes,
        "count": row.call.count,
        "type": type_name(row.call.data_type),
        "redop": op_name(&row.call),
        "root": root_text(row.test, &row.call),
        "algorithm": row.algorithm,
        "out_of_place": half(args, &row.out_of_place),
        "in_place": half(args, &row.in_place),
        "actual_iterations": args.iters,
    });
    if let Some(overlap) = row.overlap {
        result["overlap"] = json!({
            "alone_us": overlap.alone_us,
            "computing_us": overlap.computing_us,
            "hidden_pct": overlap.percent(),
        });
    }
    if let Some(parts) = &row.parts {
        let [waiting, moving, combining] = parts.means();
        let (least, rank) = parts.least_waiting();
        result["profile"] = json!({
            "waiting_us": waiting,
            "moving_us": moving,
            "combining_us": combining,
            "least_waiting_us": least,
            "least_waiting_rank": rank,
            "expected_us": parts.expected,
            "of_ranks_us": parts.of_ranks,
        });
    }
    let halves =
        [("out_of_place_per_iter", &row.out_of_place), ("in_place_per_iter", &row.in_place)];
    for (name, half) in halves {
        if let Some(iterations) = &half.iterations {
            result[name] = times(args, iterations);
        }
    }
    result
}

fn times(args: &Args, Iterations { slowest, of_ranks, spread }: &Iterations) -> Value {
    let Spread { min, max, mean, p50, p95, p99, deviation } = *spread;
    let mut value = json!({
        "skipped_iterations": args.per_iter_skip,
        "min_us": min, "max_us": max, "avg_us": mean,
        "p50_us": p50, "p95_us": p95, "p99_us": p99,
        "stdev_us": deviation, "cv_pct": spread.variation(), "times_us": slowest,
    });
    if of_ranks.len() > slowest.len() {
        let of_ranks: Vec<&[f64]> = of_ranks.chunks(slowest.len()).collect();
        value["per_process_max_times_us"] = json!(of_ranks);
    }
    value
}

fn half(args: &Args, half: &Half) -> Value {
    let time = if args.report_cputime == 1 { "cpu_time" } else { "time" };
    let mut value = json!({
        time: half.time_us,
        "alg_bw": half.algbw,
        "bus_bw": half.busbw,
        "nwrong": half.wrong.map_or_else(|| json!("N/A"), |wrong| json!(wrong)),
    });
    if let Some((p50, p99)) = half.latency_us {
        value["latency"] = json!({ "p50_us": p50, "p99_us": p99 });
    }
    value
}
