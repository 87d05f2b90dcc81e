//! ringfold's programs start on machines without RDMA libraries, which they load at run time. The
//! dynamic section of an ELF file lists the libraries that a program needs to start.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;

use ringfold_tests::{needed, program};

/// The type of a mapped segment in the program header table.
const PT_LOAD: u64 = 1;
/// The type of the dynamic section in the program header table.
const PT_DYNAMIC: u64 = 2;

/// The entry of a needed library's name in the dynamic section.
const DT_NEEDED: u64 = 1;
/// The entry of the address of all names in the dynamic section.
const DT_STRTAB: u64 = 5;

/// The bytes of an ELF file.
struct Elf(Vec<u8>);

impl Elf {
    /// Returns the file if it has 64 bits and is little-endian.
    fn of(bytes: Vec<u8>) -> Option<Self> {
        bytes.starts_with(b"\x7fELF\x02\x01").then_some(Self(bytes))
    }

    fn number(&self, at: u64, bytes: usize) -> u64 {
        let mut number = [0; 8];
        let at = usize::try_from(at).unwrap();
        number[..bytes].copy_from_slice(&self.0[at..at + bytes]);
        u64::from_le_bytes(number)
    }

    /// Returns the offset, address and length of each segment of a type.
    fn segments(&self, kind: u64) -> impl Iterator<Item = [u64; 3]> {
        let [begin, size, count] = [(32, 8), (54, 2), (56, 2)].map(|(at, n)| self.number(at, n));
        let entries = (0..count).map(move |entry| begin + entry * size);
        let entries = entries.filter(move |at| self.number(*at, 4) == kind);
        entries.map(|at| [8, 16, 32].map(|field| self.number(at + field, 8)))
    }

    /// Returns the libraries that the program needs to start.
    fn needed(&self) -> Vec<String> {
        let dynamic = self.segments(PT_DYNAMIC).flat_map(|[offset, _, length]| {
            (offset..offset + length)
                .step_by(16)
                .map(|at| [self.number(at, 8), self.number(at + 8, 8)])
        });
        let dynamic: Vec<[u64; 2]> = dynamic.collect();
        let values = |kind| dynamic.iter().filter(move |it| it[0] == kind).map(|it| it[1]);
        let Some(names) = values(DT_STRTAB).next() else { return Vec::new() };
        let is_there =
            |[_, address, length]: &[u64; 3]| (*address..address + length).contains(&names);
        let [offset, address, _] = self.segments(PT_LOAD).find(is_there).unwrap();
        let name = |value: u64| {
            let begin = usize::try_from(names - address + offset + value).unwrap();
            let name = self.0[begin..].split(|byte| *byte == 0).next().unwrap();
            String::from_utf8_lossy(name).into_owned()
        };
        values(DT_NEEDED).map(name).collect()
    }
}

#[test]
fn programs_start_without_rdma_libraries() {
    let mut programs: Vec<PathBuf> =
        ["ringrun", "ringfold", "allreduce-perf", "rank"].map(program::binary).into();
    programs.push(program::example("train"));
    for program in programs {
        let Some(elf) = Elf::of(fs::read(&program).unwrap()) else {
            let _ = needed::skipped("elf", "programs are not 64-bit little-endian ELF files here");
            return;
        };
        let libraries = elf.needed();
        println!("{}: {libraries:?}", program.display());
        // Libraries of the compiler and the C library. A statically linked program has none.
        let own = ["libc.", "libm.", "libgcc_s.", "libpthread.", "libdl.", "librt.", "ld-"];
        let is_own = |library: &&String| own.iter().any(|name| library.starts_with(name));
        let others: Vec<_> = libraries.iter().filter(|library| !is_own(library)).collect();
        assert!(others.is_empty(), "{} needs {others:?}", program.display());
        let is_static = cfg!(target_feature = "crt-static");
        assert_eq!(libraries.is_empty(), is_static, "{}", program.display());
    }
}
