//! Windows: handed around, seen by all, refused where they are not what they should be.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use ringfold_types::{Lane, Rank};

use super::{Shm, meet_all};
use crate::contract::{LinkError, LinkFault, SharedMemory as _, Transport as _};
use crate::sys::{Exposure, Window};

/// Polls until there is an outcome.
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

/// A window of `bytes` bytes on every end.
fn windows(ends: &mut [Shm], bytes: usize) -> Vec<Window> {
    ends.iter_mut().for_each(|end| end.begin_window(bytes).unwrap());
    ends.iter_mut().map(|end| finished(end).unwrap().unwrap()).collect()
}

/// The ends of an exposure belong to this thread alone.
fn expose(window: &mut Window) -> Exposure<'_> {
    // SAFETY: one thread has the parts of all ranks and uses them in turn.
    let mut exposure = unsafe { window.expose() };
    exposure.complete();
    exposure
}

/// The bytes `range` that `window` has of the part of `peer`.
fn peers(window: &mut Window, peer: u32, range: Range<usize>) -> Vec<u8> {
    expose(window).peers.read(Rank(peer), range).to_vec()
}

#[test]
fn what_one_puts_the_others_read() {
    let mut ends = meet_all(4);
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
        // Who leaves takes nothing from the others.
        drop(windows.remove(2));
        assert_eq!(peers(&mut windows[0], 2, bytes - 1..bytes), [7]);
    }
}

#[test]
fn two_trade_their_parts() {
    let mut windows = windows(&mut meet_all(2), 100);
    for (rank, window) in windows.iter_mut().enumerate() {
        window.write(0..1)[0] = if rank == 0 { 3 } else { 4 };
        expose(window).trade();
    }
    assert_eq!([&windows[0], &windows[1]].map(|window| window.read(0..1)[0]), [4, 3]);
    windows[1].write(1..2)[0] = 5;
    assert_eq!(peers(&mut windows[0], 1, 0..2), [3, 5]);
    expose(&mut windows[0]).trade();
    assert_eq!(windows[0].read(0..2), [3, 5], "its own again");
}

/// A rank gives up while it exposes its window to peers that write to it, or only read it.
#[test]
fn peers_do_not_reach_a_window_whose_exposure_did_not_complete() {
    for bytes in [1, 4096, 5001, (3 << 20) + 1] {
        let mut windows = windows(&mut meet_all(4), bytes);
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
    let mut windows = windows(&mut meet_all(2), BYTES);
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
    let mut ends = meet_all(3);
    ends[0].begin_window(100).unwrap();
    ends[2].begin_window(100).unwrap();
    assert!(
        ends[0].finish_window().unwrap().is_none() && ends[2].finish_window().unwrap().is_none()
    );
    ends[1].begin_window(100).unwrap();
    assert!(ends.iter_mut().all(|end| finished(end).unwrap().is_ok()));
    // Windows and messages do not disturb each other.
    let link = |peer| crate::contract::Link { peer: Rank(peer), lane: Lane(0) };
    assert_eq!(ends[0].send(link(1), 3, b"after").unwrap(), 5);
    ends[1].poll().unwrap();
    assert_eq!(ends[1].readable(link(0)).unwrap().unwrap().bytes, b"after");
}

#[test]
#[should_panic(expected = "beyond the window")]
fn nothing_beyond_a_window_is_lent() {
    let mut ends = meet_all(2);
    let mut windows = windows(&mut ends, 100);
    drop(peers(&mut windows[0], 1, 50..101));
}

#[test]
#[should_panic(expected = "a rank with a part")]
fn nobody_puts_where_there_is_no_part() {
    let mut ends = meet_all(2);
    let mut windows = windows(&mut ends, 100);
    expose(&mut windows[0]).peers.put(Rank(0), 0, &[1]);
}

/// A peer that says something else of its window: an error on its link, no more.
#[test]
fn what_is_no_window_is_refused() {
    for (number, bytes, is_made) in
        [(1, 8192, true), (1, 8192, false), (3, 4096, true), (9, 0, true)]
    {
        let mut ends = meet_all(2);
        ends[1].slot.say_made(number, bytes, is_made);
        ends[0].begin_window(4096).unwrap();
        let error = finished(&mut ends[0]).unwrap_err();
        assert_eq!(error.link.peer, Rank(1));
        assert!(matches!(error.fault, LinkFault::Protocol(_)), "{error}");
        assert!(error.to_string().contains("another window"), "{error}");
    }
}

#[test]
fn who_is_ahead_has_said_what_became_of_the_last_window() {
    for is_made in [true, false] {
        let mut ends = meet_all(2);
        ends[1].slot.say_made(1, 4096, is_made);
        ends[1].slot.say_made(2, 100, true);
        ends[0].begin_window(4096).unwrap();
        assert_eq!(finished(&mut ends[0]).unwrap().is_ok(), is_made);
    }
}

/// Bytes of the shared files of this process that have pages.
fn taken(end: &Shm) -> u64 {
    let blocks = rustix::fs::fstat(end.segment.file()).unwrap().st_blocks;
    u64::try_from(blocks).unwrap() * 512
}

#[test]
fn the_last_that_drops_a_window_frees_it() {
    for bytes in [100_000, 5 << 20] {
        let mut ends = meet_all(3);
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
fn a_rank_without_memory_says_so_and_the_next_window_is_made() {
    let mut ends = meet_all(3);
    // More than any address space holds.
    ends.iter_mut().for_each(|end| end.begin_window(1 << 60).unwrap());
    assert!(ends.iter_mut().all(|end| finished(end).unwrap().is_err()));
    assert_eq!(windows(&mut ends, 10).len(), 3);
}

#[test]
fn a_peer_that_ends_breaks_the_making() {
    let mut ends = meet_all(3);
    ends[0].begin_window(100).unwrap();
    ends[1].begin_window(100).unwrap();
    drop(ends.pop());
    let error = finished(&mut ends[0]).unwrap_err();
    assert_eq!((error.link.peer, error.to_string().contains("closed")), (Rank(2), true));
    assert!(finished(&mut ends[1]).is_err());
}
