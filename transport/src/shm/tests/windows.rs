//! Windows: made by all ranks, seen by all, and refused if a report is wrong.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use ringfold_types::{Lane, Rank};

use super::{Shm, connect_all};
use crate::contract::{LinkError, LinkFault, SharedMemory as _, Transport as _};
use crate::sys::{Exposure, Window};

/// Polls until the window is finished or failed.
fn finished(end: &mut Shm) -> Result<io::Result<Window>, LinkError> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(made) = end.finish_window().transpose() {
            return made;
        }
        assert!(Instant::now() < until, "no window in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a window of `bytes` bytes on every endpoint.
fn windows(ends: &mut [Shm], bytes: usize) -> Vec<Window> {
    ends.iter_mut().for_each(|end| end.begin_window(bytes).unwrap());
    ends.iter_mut().map(|end| finished(end).unwrap().unwrap()).collect()
}

/// Exposes a window; only this thread has the parts of the exposure.
fn expose(window: &mut Window) -> Exposure<'_> {
    // SAFETY: one thread has the parts of all ranks and uses them one after the other.
    let mut exposure = unsafe { window.expose() };
    exposure.complete();
    exposure
}

/// The bytes `range` of the part of `peer`, as `window` shows them.
fn peers(window: &mut Window, peer: u32, range: Range<usize>) -> Vec<u8> {
    expose(window).peers.read(Rank(peer), range).to_vec()
}

#[test]
fn peers_read_put_bytes() {
    let mut ends = connect_all(4);
    for bytes in [1, 4096, 5000, 3 << 20] {
        let mut windows = windows(&mut ends, bytes);
        for window in &mut windows {
            assert!(window.read(0..bytes).iter().all(|byte| *byte == 0));
        }
        windows[2].write(bytes - 1..bytes)[0] = 7;
        expose(&mut windows[3]).peers.put(Rank(1), 0, &[9]);
        assert_eq!(peers(&mut windows[0], 2, bytes - 1..bytes), [7]);
        let exposure = expose(&mut windows[3]);
        let place = exposure.peers.place(Rank(2));
        let mut parts: Vec<_> = exposure.peers.write_all(&(0..1)).collect();
        assert_eq!((place, parts.len()), (2, 3));
        parts[place][0] = 5;
        drop(exposure);
        assert_eq!(windows[2].read(0..1)[0], 5);
        windows[2].write(bytes - 1..bytes)[0] = 7;
        assert_eq!(windows[1].read(0..1)[0], 9);
        // A rank that leaves takes nothing from the others.
        drop(windows.remove(2));
        assert_eq!(peers(&mut windows[0], 2, bytes - 1..bytes), [7]);
    }
}

#[test]
fn two_ranks_swap_their_parts() {
    let mut windows = windows(&mut connect_all(2), 100);
    for (rank, window) in windows.iter_mut().enumerate() {
        window.write(0..1)[0] = if rank == 0 { 3 } else { 4 };
        expose(window).swap();
    }
    assert_eq!([&windows[0], &windows[1]].map(|window| window.read(0..1)[0]), [4, 3]);
    windows[1].write(1..2)[0] = 5;
    assert_eq!(peers(&mut windows[0], 1, 0..2), [3, 5]);
    expose(&mut windows[0]).swap();
    assert_eq!(windows[0].read(0..2), [3, 5], "its own again");
}

/// A rank drops an exposure early, while peers write to its window or only read it.
#[test]
fn peers_do_not_reach_a_window_whose_exposure_did_not_complete() {
    for bytes in [1, 4096, 5001, (3 << 20) + 1] {
        let mut windows = windows(&mut connect_all(4), bytes);
        for (rank, window) in windows[..2].iter_mut().enumerate() {
            window.write(0..bytes).fill(3);
            let at = window.read(0..bytes).as_ptr();
            if rank == 0 {
                // SAFETY: as in `expose`.
                drop(unsafe { window.expose() });
            } else {
                // SAFETY: as in `expose`.
                drop(unsafe { window.expose_to_readers() });
            }
            assert_eq!(window.read(0..1).as_ptr(), at, "it stays there");
        }
        for rank in 0..2 {
            expose(&mut windows[3]).peers.put(Rank::at(rank), bytes - 1, &[4]);
            assert!(windows[rank].read(0..bytes).iter().all(|byte| *byte == 3));
            windows[rank].write(0..bytes).fill(5);
            let left = peers(&mut windows[3], u32::try_from(rank).unwrap(), bytes - 1..bytes);
            assert_eq!(left, [4], "nor the other way");
        }
    }
}

#[test]
fn a_window_is_read_while_it_is_taken_from_peers() {
    const BYTES: usize = 8 << 20;
    let mut windows = windows(&mut connect_all(2), BYTES);
    windows[0].write(0..BYTES).fill(3);
    let window = &windows[0];
    std::thread::scope(|scope| {
        let reader =
            scope.spawn(|| (0..20).all(|_| window.read(0..BYTES).iter().all(|it| *it == 3)));
        while !reader.is_finished() {
            // SAFETY: all threads only read.
            drop(unsafe { window.expose_to_readers() });
        }
        assert!(reader.join().unwrap());
    });
}

#[test]
fn a_window_waits_for_all() {
    let mut ends = connect_all(3);
    ends[0].begin_window(100).unwrap();
    ends[2].begin_window(100).unwrap();
    assert!(
        ends[0].finish_window().unwrap().is_none() && ends[2].finish_window().unwrap().is_none()
    );
    ends[1].begin_window(100).unwrap();
    assert!(ends.iter_mut().all(|end| finished(end).unwrap().is_ok()));
    // Windows and messages are independent.
    let link = |peer| crate::contract::Link { peer: Rank(peer), lane: Lane(0) };
    assert_eq!(ends[0].send(link(1), 3, b"after").unwrap(), 5);
    ends[1].poll().unwrap();
    assert_eq!(ends[1].readable(link(0)).unwrap().unwrap().bytes, b"after");
}

#[test]
#[should_panic(expected = "beyond the window")]
fn nothing_beyond_a_window_is_lent() {
    let mut ends = connect_all(2);
    let mut windows = windows(&mut ends, 100);
    drop(peers(&mut windows[0], 1, 50..101));
}

#[test]
#[should_panic(expected = "a rank with a part")]
fn a_put_to_a_missing_part_panics() {
    let mut ends = connect_all(2);
    let mut windows = windows(&mut ends, 100);
    expose(&mut windows[0]).peers.put(Rank(0), 0, &[1]);
}

/// A peer with a wrong window report causes an error on its link and no more.
#[test]
fn a_wrong_window_report_is_refused() {
    for (number, bytes, is_made) in
        [(1, 8192, true), (1, 8192, false), (3, 4096, true), (9, 0, true)]
    {
        let mut ends = connect_all(2);
        ends[1].slot.report_window(number, bytes, is_made);
        ends[0].begin_window(4096).unwrap();
        let error = finished(&mut ends[0]).unwrap_err();
        assert_eq!(error.link.peer, Rank(1));
        assert!(matches!(error.fault, LinkFault::Protocol(_)), "{error}");
        assert!(error.to_string().contains("another window"), "{error}");
    }
}

#[test]
fn a_rank_one_window_ahead_still_reports_the_last() {
    for is_made in [true, false] {
        let mut ends = connect_all(2);
        ends[1].slot.report_window(1, 4096, is_made);
        ends[1].slot.report_window(2, 100, true);
        ends[0].begin_window(4096).unwrap();
        assert_eq!(finished(&mut ends[0]).unwrap().is_ok(), is_made);
    }
}

/// Bytes of the shared file that have pages.
fn taken(end: &Shm) -> u64 {
    let blocks = rustix::fs::fstat(end.segment.file()).unwrap().st_blocks;
    u64::try_from(blocks).unwrap() * 512
}

#[test]
fn the_last_rank_to_drop_a_window_frees_it() {
    for bytes in [100_000, 5 << 20] {
        let mut ends = connect_all(3);
        let before = taken(&ends[0]);
        let mut windows = windows(&mut ends, bytes);
        while let Some(window) = windows.pop() {
            assert!(taken(&ends[0]) >= before + 3 * bytes as u64, "parts live on");
            drop(window);
        }
        assert_eq!(taken(&ends[0]), before);
    }
}

#[test]
fn a_rank_without_memory_reports_it_and_the_next_window_is_made() {
    let mut ends = connect_all(3);
    // Longer than any address space.
    ends.iter_mut().for_each(|end| end.begin_window(1 << 60).unwrap());
    assert!(ends.iter_mut().all(|end| finished(end).unwrap().is_err()));
    assert_eq!(windows(&mut ends, 10).len(), 3);
}

#[test]
fn a_peer_that_ends_is_an_error_for_a_window_in_progress() {
    let mut ends = connect_all(3);
    ends[0].begin_window(100).unwrap();
    ends[1].begin_window(100).unwrap();
    drop(ends.pop());
    let error = finished(&mut ends[0]).unwrap_err();
    assert_eq!((error.link.peer, error.to_string().contains("closed")), (Rank(2), true));
    assert!(finished(&mut ends[1]).is_err());
}
