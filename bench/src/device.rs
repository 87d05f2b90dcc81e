//! The processes of the ranks.

use ringfold::{Communicator, Rank};

/// A rank's process, as the head of the table shows it.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) pid: u32,
    pub(crate) host: String,
    /// The rank's number on its host.
    pub(crate) local: usize,
}

/// Returns every rank's process. All ranks must call this.
pub(crate) fn devices(comm: &mut Communicator) -> anyhow::Result<Vec<Device>> {
    /// Bytes of a record: the process id, and the name of the host, cut to fit.
    const RECORD: usize = 68;
    let mut record = [0_u8; RECORD];
    record[..4].copy_from_slice(&std::process::id().to_le_bytes());
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for (to, from) in record[4..].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    let mut all = vec![0_u8; RECORD * comm.size()];
    comm.all_gather_into(&record, &mut all)?;
    let layout = comm.layout();
    let device = |(rank, record): (usize, &[u8])| {
        let (pid, name) = record.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let name = String::from_utf8_lossy(name);
        let local = (0..rank).filter(|r| layout.same_host(Rank::at(*r), Rank::at(rank))).count();
        let host = name.trim_end_matches('\0').to_owned();
        Device { pid: u32::from_le_bytes(*pid), host, local }
    };
    Ok(all.chunks(RECORD).enumerate().map(device).collect())
}
