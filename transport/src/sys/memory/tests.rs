//! Mappings: their contents, their addresses and their pages.

use super::*;

#[test]
fn two_mappings_show_the_same_bytes() {
    let file = sealed_memory(c"ringfold-test", 3 * 65_536).unwrap();
    let one = Mapping::new(&file, 65_536, 65_536).unwrap();
    let other = Mapping::new(&file, 0, 3 * 65_536).unwrap();
    assert_eq!((one.bytes(), other.bytes()), (65_536, 3 * 65_536));
    // SAFETY: both lie within their mappings, and this thread is alone.
    unsafe {
        one.base().add(7).write(42);
        assert_eq!(other.base().add(65_536 + 7).read(), 42);
    }
}

#[test]
fn unfit_files_and_ranges_are_refused() {
    let file = sealed_memory(c"ringfold-test", 65_536).unwrap();
    for (offset, bytes) in [(65_536, 1), (0, 65_537), (u64::MAX, 2), (0, 0)] {
        let error = Mapping::new(&file, offset, bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
    assert!(ftruncate(&file, 4096).is_err(), "shrunk");
    assert!(ftruncate(&file, 131_072).is_err(), "grown");
    let open = memfd_create(c"ringfold-test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&open, 65_536).unwrap();
    assert!(Mapping::new(&open, 0, 65_536).is_err(), "can be shrunk");
}

/// Makes a file and a mapping of all of it, with its pages.
fn made(bytes: usize) -> (OwnedFd, Mapping) {
    let file = sealed_memory(c"ringfold-test", bytes).unwrap();
    let memory = Mapping::new(&file, 0, bytes).unwrap();
    memory.make_pages(0..bytes).unwrap();
    (file, memory)
}

/// Returns the bytes of `mapping` in pages and in large pages, as the system reports them.
fn pages(mapping: &Mapping) -> (usize, usize) {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", mapping.base().addr());
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start)).skip(1);
    let mut bytes = |name| {
        let line = lines.find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    };
    (bytes("Rss:"), bytes("ShmemPmdMapped:"))
}

/// Whether the system makes large pages of shared memory on request. Tries it on private memory,
/// which needs the same support.
fn makes_large_pages() -> bool {
    let settings = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let denied = std::fs::read_to_string(settings).is_ok_and(|now| now.contains("[deny]"));
    let (_held, at) = Addresses::keep(0, LARGE_PAGE_BYTES).unwrap();
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: all within the reserved addresses, which no other code knows.
    let made = unsafe {
        mmap_anonymous(at.as_ptr().cast(), LARGE_PAGE_BYTES, both, flags).unwrap();
        at.write(1);
        libc::madvise(at.as_ptr().cast(), LARGE_PAGE_BYTES, COLLAPSE)
    };
    made == 0 && !denied
}

#[test]
fn large_pages_come_wherever_they_fit() {
    if !makes_large_pages() {
        // Writes past the test harness, which captures printed output.
        let what = b"SKIPPED: large pages, which this system does not make when told to\n";
        return io::Write::write_all(&mut io::stderr(), what).unwrap();
    }
    let whole = |bytes: usize| bytes / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    for bytes in [1, 3].map(|pages| pages * LARGE_PAGE_BYTES + 3 * 4096 + 5) {
        let (file, memory) = made(bytes);
        assert_eq!(pages(&memory), (bytes.next_multiple_of(4096), whole(bytes)));
        // Other mappings of the file get these large pages too, from their first aligned address
        // on.
        for offset in [0, 8192] {
            let len = bytes - offset;
            let other = Mapping::new(&file, offset as u64, len).unwrap();
            other.populate().unwrap();
            let large = whole(bytes - offset.next_multiple_of(LARGE_PAGE_BYTES));
            assert_eq!(pages(&other), (len.next_multiple_of(4096), large), "from {offset} on");
        }
    }
}

#[test]
fn long_mappings_show_the_bytes_of_their_place() {
    let bytes = 3 * LARGE_PAGE_BYTES + 4097;
    let (file, memory) = made(bytes);
    let word = |at: usize| at / 8 * 0x9E37_79B9 + 1;
    for at in (0..bytes - 8).step_by(8) {
        // SAFETY: within the mapping, which only this thread knows.
        let cell = unsafe { memory.base().add(at).cast::<usize>() };
        // SAFETY: as above, and aligned.
        assert_eq!(unsafe { cell.replace(word(at)) }, 0, "byte {at}");
    }
    for offset in [0, 65_536, LARGE_PAGE_BYTES - 65_536, LARGE_PAGE_BYTES] {
        for len in [1, LARGE_PAGE_BYTES - 1, LARGE_PAGE_BYTES, bytes - offset] {
            let part = Mapping::new(&file, offset as u64, len).unwrap();
            let apart = part.base().addr().get().wrapping_sub(offset) % LARGE_PAGE_BYTES;
            assert!(len < LARGE_PAGE_BYTES || apart == 0, "{len} bytes from {offset} on");
            for at in (0..len.saturating_sub(8)).step_by(8) {
                // SAFETY: within the mapping, aligned, and nobody writes to the file now.
                let found = unsafe { part.base().add(at).cast::<usize>().read() };
                assert!(at + offset >= bytes - 8 || found == word(at + offset), "byte {at}");
            }
        }
    }
}
