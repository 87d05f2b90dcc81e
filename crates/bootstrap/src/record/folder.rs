//! The folder with the records of this host, as other hosts see it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use ringfold_types::limits;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::clock::nanoseconds;
use super::format::{RECORD_WORDS, without_keys};
use super::read::{Record, bytes_of, read_record, state_of, to_bytes, to_words};
use super::recorder;

/// The folder of a host's records, and a moment there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Here {
    /// A digest of the folder, which is the same for all processes that use it.
    pub(crate) folder: [u8; 16],
    /// A stamp, and monotonic nanoseconds.
    pub(crate) now: [u64; 2],
}

/// Two copies of a record, as blocks of LZ4. Their words are little-endian.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PackedRecord([Vec<u8>; 2]);

impl Here {
    /// The records here of the members of group `id`, with the states of their processes.
    pub(crate) fn look(id: [u64; 2]) -> (Self, Vec<(PackedRecord, Option<char>)>) {
        let Some(recorder) = recorder() else {
            return (Self { folder: [0; 16], now: [0; 2] }, Vec::new());
        };
        let folder = recorder.facts.folder.as_deref();
        let mut seen = Vec::new();
        let mut add = |first: &[u8], second: &[u8]| {
            let Ok(record) = read_record(first, second) else { return };
            if record.groups.iter().any(|group| group.id == id) {
                let packed = PackedRecord([pack(first), pack(second)]);
                seen.push((packed, state_of(&record)));
            }
        };
        match folder.map(fs::read_dir) {
            Some(Ok(entries)) => {
                for path in entries.flatten().map(|entry| entry.path()) {
                    let Ok(first) = bytes_of(&path) else { continue };
                    let Ok(second) = bytes_of(&path) else { continue };
                    add(&first, &second);
                }
            }
            // The record is in ordinary memory, where only this process reads it.
            _ => {
                let words = || recorder.words.iter().map(|word| word.load(Ordering::Relaxed));
                let [first, second] = [(); 2].map(|()| to_bytes(&words().collect::<Vec<_>>()));
                add(&first, &second);
            }
        }
        let now = [(recorder.facts.clock.0)(), nanoseconds(ClockId::Monotonic)];
        (Self { folder: folder.map_or([0; 16], digest), now }, seen)
    }
}

/// The digest of a folder of records: of this system, its file system and its number there.
#[must_use]
pub fn digest(folder: &std::path::Path) -> [u8; 16] {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let [device, number] = fs::metadata(folder).map_or([0; 2], |it| [it.dev(), it.ino()]);
    let all = [&boot[..], &device.to_le_bytes(), &number.to_le_bytes()].concat();
    let digest = Sha256::digest(all);
    std::array::from_fn(|at| digest[at])
}

/// A copy without the keys of its groups.
fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut words = to_words(bytes);
    without_keys(&mut words);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    lz4_flex::block::compress(&bytes)
}

impl PackedRecord {
    /// The record, if it is one of this version.
    pub(crate) fn unpack(&self) -> Option<Record> {
        let copy = |block: &Vec<u8>| {
            let plain = lz4_flex::block::decompress(block, limits::RECORD_BYTES).ok()?;
            let words = plain.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
            Some(to_bytes(&words.take(RECORD_WORDS).collect::<Vec<_>>()))
        };
        let [first, second] = &self.0;
        read_record(&copy(first)?, &copy(second)?).ok()
    }
}
