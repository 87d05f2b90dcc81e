//! All-gather of serialized values.

use anyhow::{Context as _, ensure};
use ringfold::Communicator;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest serialized value of a rank, in bytes.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// Returns every rank's value, by rank. Every rank must call this. Blocks until all have.
pub(crate) fn all_gather<T: Serialize + DeserializeOwned>(
    comm: &mut Communicator,
    own: &T,
) -> anyhow::Result<Vec<T>> {
    let (rank, bytes) = (comm.rank().index(), postcard::to_stdvec(own)?);
    let mut lengths = vec![0_u64; comm.size()];
    lengths[rank] = bytes.len() as u64;
    comm.all_gather(&mut lengths)?;
    let longest = usize::try_from(lengths.iter().copied().max().unwrap_or(0))?;
    ensure!(longest <= VALUE_BYTES_MAX, "a rank's report has more than {VALUE_BYTES_MAX} bytes");
    let mut blocks = vec![0_u8; longest * comm.size()];
    blocks[rank * longest..][..bytes.len()].copy_from_slice(&bytes);
    comm.all_gather(&mut blocks)?;
    let value = |(rank, block): (usize, &[u8])| {
        postcard::from_bytes(block).with_context(|| format!("rank {rank} sent an invalid report"))
    };
    blocks.chunks_exact(longest.max(1)).enumerate().map(value).collect()
}
