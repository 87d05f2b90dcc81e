//! Speed of the kernels and of the loops that users would otherwise write, in one run.
//!
//! `cargo bench -p ringfold-reduce --bench kernels [-- FILTER]`. Throughput counts the bytes of one
//! operand. Sizes are those of one buffer, and two buffers fit the named cache.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use ringfold_reduce::{Form, Kernel, Level, Operand};
use ringfold_types::{DataType, ReduceOp};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Caches, and the size of one of two buffers that fit.
const SIZES: [(&str, usize); 4] =
    [("L1", 8 * KIB), ("L2", 128 * KIB), ("L3", 4 * MIB), ("DRAM", 128 * MIB)];

const L2: usize = SIZES[1].1;

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

/// `dst = dst + src` at every level of the machine.
fn sum_in_place(group: &mut BenchmarkGroup<'_, WallTime>, data_type: DataType, bytes: usize) {
    let src = vec![0; bytes];
    let mut dst = vec![0; bytes];
    for level in levels() {
        let Some(kernel) = Kernel::with(level, data_type, ReduceOp::Sum, 2) else { continue };
        group.bench_function(BenchmarkId::new(level.name(), bytes), |bencher| {
            bencher.iter(|| {
                let operands = [Operand::Destination, Operand::elements(black_box(&src))];
                kernel.combine(black_box(&mut dst), Form::Element, &operands);
            });
        });
    }
}

/// f32 against the loop that a compiler vectorises by itself.
fn f32_sum(criterion: &mut Criterion) {
    for (cache, bytes) in SIZES {
        let mut group = criterion.benchmark_group(format!("f32_sum/{cache}"));
        group.throughput(Throughput::Bytes(bytes as u64));
        let src = vec![0f32; bytes / 4];
        let mut dst = src.clone();
        group.bench_function(BenchmarkId::new("plain", bytes), |bencher| {
            bencher.iter(|| {
                for (a, b) in black_box(&mut dst).iter_mut().zip(black_box(&src)) {
                    *a += *b;
                }
            });
        });
        drop((src, dst));
        sum_in_place(&mut group, DataType::F32, bytes);
        group.finish();
    }
}

/// Short floats against the slice operations of the `half` crate: convert both, add, convert back.
fn short_sum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("f16_sum/L2");
    half_slices::<f16>(&mut group);
    sum_in_place(&mut group, DataType::F16, L2);
    group.finish();

    let mut group = criterion.benchmark_group("bf16_sum/L2");
    half_slices::<bf16>(&mut group);
    sum_in_place(&mut group, DataType::Bf16, L2);
    group.finish();

    for data_type in [DataType::F8E4M3, DataType::F8E5M2] {
        let mut group = criterion.benchmark_group(format!("{data_type}_sum/L2"));
        group.throughput(Throughput::Bytes(L2 as u64));
        sum_in_place(&mut group, data_type, L2);
        group.finish();
    }
}

fn half_slices<T: bytemuck::Zeroable + Copy>(group: &mut BenchmarkGroup<'_, WallTime>)
where
    [T]: HalfFloatSliceExt,
{
    group.throughput(Throughput::Bytes(L2 as u64));
    let count = L2 / size_of::<T>();
    let src = vec![T::zeroed(); count];
    let mut dst = src.clone();
    let (mut left, mut right) = (vec![0f32; count], vec![0f32; count]);
    group.bench_function(BenchmarkId::new("half_crate", L2), |bencher| {
        bencher.iter(|| {
            black_box(&dst).convert_to_f32_slice(&mut left);
            black_box(&src).convert_to_f32_slice(&mut right);
            for (a, b) in left.iter_mut().zip(&right) {
                *a += *b;
            }
            black_box(&mut dst).convert_from_f32_slice(&left);
        });
    });
}

/// `dst` from many sources in one pass, against one pass for each further source.
fn many_sources(criterion: &mut Criterion) {
    for data_type in [DataType::F32, DataType::Bf16] {
        for sources in [4, 16] {
            let bytes = MIB;
            let mut group = criterion.benchmark_group(format!("{data_type}_sum_of_{sources}/L3"));
            group.throughput(Throughput::Bytes((sources * bytes) as u64));
            let src = vec![vec![0u8; bytes]; sources];
            let operands: Vec<_> = src.iter().map(|bytes| Operand::elements(bytes)).collect();
            let mut dst = vec![0; bytes];
            let kernel = Kernel::new(data_type, ReduceOp::Sum, sources);
            group.bench_function("one_pass", |bencher| {
                bencher.iter(|| {
                    kernel.combine(black_box(&mut dst), Form::Element, black_box(&operands));
                });
            });
            group.bench_function("pass_per_source", |bencher| {
                bencher.iter(|| {
                    let (first, others) = operands.split_at(2);
                    kernel.combine(black_box(&mut dst), Form::Element, first);
                    for operand in others {
                        let operands = [Operand::Destination, *operand];
                        kernel.combine(black_box(&mut dst), Form::Element, &operands);
                    }
                });
            });
            group.finish();
        }
    }
}

/// The cost of a call with almost no work.
fn small(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("f32_sum/small");
    for bytes in [4, 8, 64, 252, 256, 1024] {
        sum_in_place(&mut group, DataType::F32, bytes);
    }
    group.bench_function("new", |bencher| {
        bencher.iter(|| Kernel::new(black_box(DataType::F32), black_box(ReduceOp::Sum), 2));
    });
    group.finish();
}

criterion_group! {
    name = kernels;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20);
    targets = f32_sum, short_sum, many_sources, small
}
criterion_main!(kernels);
