//! The combination of eight children's parts, beside a pass that only reads and writes as much.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use ringfold_aggregator::combine::Combiner;
use ringfold_transport::offload::Reduction;
use ringfold_types::{Collective, DataType, ReduceOp, Wire};

const CHILDREN: usize = 8;
const CHUNK: usize = 1 << 20;
/// Chunks of each child, together larger than the caches.
const CHUNKS: usize = 32;

/// The chunks of all children, and of the results.
struct Memory {
    parts: Vec<Vec<u64>>,
    result: Vec<u64>,
}

fn memory() -> Memory {
    let words = CHUNK / 8 * CHUNKS;
    Memory { parts: vec![vec![1; words]; CHILDREN], result: vec![0; words] }
}

/// Reads all parts and writes one result, by all threads of the pool.
fn touch(pool: &ThreadPool, memory: &mut Memory) {
    let words = CHUNK / 8;
    let parts = &memory.parts;
    pool.install(|| {
        memory.result.par_chunks_mut(words).enumerate().for_each(|(at, dst)| {
            let part = |child: usize| &parts[child][at * words..][..dst.len()];
            let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(part);
            for at in 0..dst.len() {
                dst[at] = a[at] ^ b[at] ^ c[at] ^ d[at] ^ e[at] ^ f[at] ^ g[at] ^ h[at];
            }
        });
    });
}

fn combine(pool: &ThreadPool, memory: &mut Memory, data_type: DataType) {
    let combiner = Combiner { ranks: CHILDREN, is_top: true };
    let reduction = Reduction {
        collective: Collective::AllReduce,
        data_type,
        op: ReduceOp::Sum,
        root: 0,
        form: Wire::Element,
    };
    let parts: Vec<&[u8]> = memory.parts.iter().map(|part| bytemuck::cast_slice(part)).collect();
    let result: &mut [u8] = bytemuck::cast_slice_mut(&mut memory.result);
    for (at, dst) in result.chunks_mut(CHUNK).enumerate() {
        let parts: Vec<_> = parts.iter().map(|part| &part[at * CHUNK..][..CHUNK]).collect();
        combiner.combine(&reduction, &parts, dst, Some(pool));
    }
}

fn bench(c: &mut Criterion) {
    let mut memory = memory();
    let mut group = c.benchmark_group("eight children");
    group.throughput(Throughput::Bytes(((CHILDREN + 1) * CHUNK * CHUNKS) as u64));
    for threads in [1, 2] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        group.bench_function(format!("memory, {threads} threads"), |b| {
            b.iter(|| touch(&pool, black_box(&mut memory)));
        });
        for data_type in [DataType::F32, DataType::Bf16] {
            group.bench_function(format!("{data_type}, {threads} threads"), |b| {
                b.iter(|| combine(&pool, black_box(&mut memory), data_type));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
