//! A rank for tests that need processes. Its arguments name a task, and it reports the result on
//! standard output.
//!
//! * `allreduce BYTES`: all-reduces BYTES bytes again and again, until a call fails;
//! * `broadcast BYTES`: likewise, from rank 0;
//! * `messages BYTES`: sends BYTES bytes to the next rank and receives as many from the previous
//!   one, again and again, until that fails;
//! * `requests BYTES`: keeps 100 started all-reduces of BYTES bytes under way, until one fails.
//!   The others must then end with the same cause, and all buffers come back;
//! * `endure COUNT`: starts COUNT calls, 30 at once, and prints the descriptors and the memory of
//!   this process;
//! * `idle GROUPS SECONDS`: rank 0 has a call under way in each of GROUPS groups. After the death
//!   of rank 2 it prints the CPU time of the helper thread in SECONDS;
//! * `any BYTES`: the last rank sends BYTES bytes to each other in turn, which receives from any;
//! * `checked BYTES STOP`: as `allreduce`, with known sums, until a file STOP exists. Calls
//!   alternate between an ordinary buffer and one of the communicator's, whose sums one rank then
//!   broadcasts. Rank 0 prints the start and the duration of each call in microseconds;
//! * `window BYTES`: as `allreduce`, in a window;
//! * `refill BYTES STOP`: as `window`. After a failed call a rank fills its window with a number.
//!   Once a file STOP exists, it prints how many elements have changed. `refill-started` starts its
//!   calls and waits for them;
//! * `refuse BYTES`: as `window`, without free memory. After a failed call a rank prints the panic
//!   of its window;
//! * `mixed SEED CALLS`: CALLS calls of all kinds with known results; 0 calls until one fails;
//! * `half`: rank 1 takes a window, the others a slice of theirs;
//! * `other`: rank 1 takes another window than the others;
//! * `range`: rank 1 takes another part of the window than the others;
//! * `differ COUNT TIMES`: all ranks all-reduce COUNT elements TIMES times. Then rank 1 broadcasts
//!   while the others all-reduce again;
//! * `counted COUNT TIMES STOP`: all-reduces COUNT elements TIMES times, and then sleeps until a
//!   file STOP exists;
//! * `part COUNT ROOT`: all ranks all-reduce COUNT elements. Then rank 1 does so again while the
//!   others broadcast from ROOT and all-reduce the result;
//! * `rich COUNT`: all-reduces COUNT ones, twice, and prints the algorithm;
//! * `poor COUNT`: the same, while rank 1 has no free memory;
//! * `crossed`: each rank broadcasts its own number, so no rank waits;
//! * `late SECONDS`: rank 1 sleeps before the second call;
//! * `exit`: rank 1 exits after the first call without leaving the communicator;
//! * `letter TAG`: rank 1 sends a message with TAG and leaves. Rank 0 receives another type with
//!   tag 5, two seconds later;
//! * `leaves`: rank 1 leaves after the first call, while the others call again;
//! * `abort`: rank 1 aborts from another thread, while it waits for the last rank, which sleeps;
//! * `forked RANK`: RANK forks a child that tries its communicator, drops it, makes one of its own
//!   and sleeps. All ranks all-reduce again and again until a call fails;
//! * `footprint BYTES`: all-reduces BYTES bytes once, and prints the descriptors, mappings and
//!   memory of this process;
//! * `grouped VICTIM BYTES`: all-reduces BYTES bytes in four groups at once, until the groups of
//!   VICTIM have failed. Prints each cause, and the groups that are sound;
//! * `joining`: makes groups of all ranks until that fails, and prints the cause;
//! * `short WHO SPARE`: makes a group of all ranks while WHO may open SPARE more descriptors, and
//!   prints the outcome;
//! * `churn GROUPS ROUNDS`: makes and drops GROUPS groups, ROUNDS times, and prints the descriptors
//!   and the memory of this process;
//! * `split COLORS ROUNDS`: splits the ranks into COLORS groups, ROUNDS times. Rank 0 prints the
//!   time of each split in microseconds;
//! * `agree STOP`: agrees on flags until a file STOP exists, and shrinks then. Rank 1 revokes the
//!   communicator meanwhile.
//! * `survive STOP [replace]`: all-reduces known numbers until a file STOP exists, and shrinks
//!   after each failure. Prints each cause, each epoch with the identities of its ranks and their
//!   hosts, and the time of shrinking. With `replace` it waits for a new rank after each failure;
//! * `bits ROUNDS SECONDS`: sleeps, then reduces numbers of all types by all operations, ROUNDS
//!   times. Prints a digest of the results of each round;
//! * `stray WHAT [RANK]`: after 100 calls this rank, or rank 3, does WHAT for ever: it sleeps,
//!   computes (`loop`), or waits to `receive` a message that nobody sends, also after a `start`.
//!   The others call again. With `pass` those with higher numbers first wait for a message of the
//!   rank before them;
//! * `pace MILLIS`: makes short calls for ever, and computes for this time before each;
//! * `noted FOLDER`: makes short calls for ever. After each call it writes their number, and the
//!   nanoseconds since 1970, to a file in FOLDER that has the name of its rank. It prints its
//!   process number after the first one;
//! * `traced CALLS MESSAGES`: all-reduces CALLS times, sends MESSAGES messages to the next rank and
//!   receives as many, of which every hundredth is long, and leaves;
//! * `again TIMES`: makes TIMES more communicators, every second one before it leaves the last.
#![expect(clippy::print_stdout, reason = "standard output is how it reports")]

mod bits;
mod endurance;
mod groups;
mod mixed;
mod recovery;

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use ringfold::{
    ANY_SOURCE, Call, Collective, Communicator, Config, DataType, Error, Rank, ReduceOp, Request,
    UniqueId, Wire,
};
use ringfold_transport::fork_for_test;
use rustix::process::{Resource, Rlimit, setrlimit};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // A rank reports before it closes its communicator, which may take long.
    let mut comm = None;
    match run(&args, &mut comm) {
        Ok(()) => {
            println!("done");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let cause = match &error {
                Error::Failed(failure) => failure.cause.to_string(),
                Error::Leave { cause, .. } => cause.to_string(),
                other => format!("{other:?}"),
            };
            println!("cause {cause}");
            println!("failed {error:?}");
            ExitCode::from(3)
        }
    }
}

/// Does what `args` say by a communicator that `own` keeps, unless the task takes it.
fn run(args: &[String], own: &mut Option<Communicator>) -> Result<(), Error> {
    let comm = own.insert(Communicator::init()?);
    let is_odd_one = comm.rank() == Rank(1);
    let number = |index: usize| args.get(index).and_then(|n| n.parse().ok()).unwrap_or(0);
    // The others do not wait for a newcomer there.
    if comm.epoch() == 0 {
        comm.barrier()?;
    }
    match args.first().map(String::as_str) {
        Some(task @ ("allreduce" | "broadcast")) => {
            let mut buffer = vec![0.0_f32; number(1) / 4];
            println!("started");
            loop {
                match task {
                    "broadcast" => comm.broadcast(&mut buffer, Rank(0))?,
                    _ => comm.all_reduce(&mut buffer, ReduceOp::Max)?,
                }
            }
        }
        Some("messages") => messages(comm, number(1)),
        Some("requests") => requests(comm, number(1) / 4),
        Some("any") => any(comm, number(1)),
        Some("checked") => checked(comm, number(1) / 4, &args[2]),
        Some("window") => window(comm, number(1) / 4),
        Some("mixed") => {
            println!("started");
            mixed::mixed(comm, number(1) as u64, number(2))
        }
        Some("refuse") => refuse(comm, number(1) / 4),
        Some(task @ ("refill" | "refill-started")) => {
            refill(comm, number(1) / 4, &args[2], task == "refill-started")
        }
        Some("abort") => abort(comm),
        Some("stray") => stray(comm, &args[1], Rank::at(args.get(2).map_or(3, |_| number(2)))),
        Some("pace") => pace(comm, number(1) as u64),
        Some("noted") => noted(comm, Path::new(&args[1])),
        Some("forked") => forked(taken(own), Rank::at(number(1))),
        Some(task @ ("half" | "other" | "range")) => differ_in_windows(comm, task),
        Some("differ") => differ(comm, number(1), number(2)),
        Some("counted") => counted(comm, number(1), number(2), Path::new(&args[3])),
        Some("traced") => traced(taken(own), number(1), number(2)),
        Some("part") => part(comm, number(1), Rank::at(number(2))),
        Some(task @ ("rich" | "poor")) => ones(comm, number(1), task == "poor" && is_odd_one),
        Some("crossed") => crossed(taken(own)),
        Some("late") if is_odd_one => {
            std::thread::sleep(Duration::from_secs(number(1) as u64));
            comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum)
        }
        Some("letter") => letter(taken(own), is_odd_one, u32::try_from(number(1)).unwrap_or(0)),
        Some("leaves") if is_odd_one => taken(own).leave(),
        Some("footprint") => footprint(comm, number(1) / 4),
        Some("bits") => {
            println!("started");
            bits::bits(comm, number(1), number(2) as u64)
        }
        Some("again") => again(taken(own), number(1)),
        Some("grouped") => groups::grouped(taken(own), Rank::at(number(1)).0, number(2)),
        Some("joining") => groups::joining(taken(own)),
        Some("short") => groups::short(taken(own), Rank::at(number(1)).0, number(2)),
        Some("endure") => endurance::endure(taken(own), number(1)),
        Some("idle") => endurance::idle(taken(own), number(1), number(2)),
        Some("agree") => recovery::agree(taken(own), &args[1]),
        Some("survive") => recovery::survive(taken(own), &args[1], args.len() > 2),
        Some("churn") => groups::churn(taken(own), number(1), number(2)),
        Some("split") => groups::split(taken(own), Rank::at(number(1)).0, number(2)),
        Some("exit") if is_odd_one => exit(),
        _ => comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum),
    }
}

/// A task of this program, as described in its head.
fn exit() -> ! {
    println!("started");
    // The others may not have left the first call.
    std::thread::sleep(Duration::from_millis(500));
    #[expect(clippy::disallowed_methods, reason = "this rank exits without leaving")]
    std::process::exit(0)
}

fn taken(own: &mut Option<Communicator>) -> Communicator {
    own.take().expect("a communicator")
}

/// A task of this program, as described in its head.
fn window(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let mut window = comm.alloc::<f32>(count)?;
    println!("started");
    loop {
        comm.all_reduce_window(&mut window, .., ReduceOp::Max)?;
    }
}

/// A task of this program, as described in its head.
fn counted(comm: &mut Communicator, count: usize, times: usize, stop: &Path) -> Result<(), Error> {
    let mut buffer = vec![1.0_f32; count];
    (0..times).try_for_each(|_| comm.all_reduce(&mut buffer, ReduceOp::Max))?;
    println!("counted");
    while !stop.exists() {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A task of this program, as described in its head.
fn traced(mut comm: Communicator, calls: usize, messages: usize) -> Result<(), Error> {
    (0..calls).try_for_each(|_| comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum))?;
    let (data, mut into) = (vec![1_u8; 100_000], vec![0_u8; 100_000]);
    let (rank, size) = (comm.rank().index(), comm.size());
    let (next, previous) = (Rank::at((rank + 1) % size), Rank::at((rank + size - 1) % size));
    for message in 0..messages {
        let bytes = if message % 100 == 99 { data.len() } else { message % 100 };
        comm.send_recv(&data[..bytes], next, &mut into, previous, 7)?;
    }
    comm.leave()
}

/// A task of this program, as described in its head.
fn messages(comm: &mut Communicator, bytes: usize) -> Result<(), Error> {
    let (data, mut into) = (vec![1_u8; bytes], vec![0_u8; bytes]);
    let (rank, size) = (comm.rank().index(), comm.size());
    let (next, previous) = (Rank::at((rank + 1) % size), Rank::at((rank + size - 1) % size));
    println!("started");
    loop {
        comm.send_recv(&data, next, &mut into, previous, 7)?;
    }
}

/// A task of this program, as described in its head.
fn requests(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let mut start = || comm.start_all_reduce(vec![1.0_f32; count], ReduceOp::Max);
    let mut under_way = VecDeque::new();
    for _ in 0..100 {
        under_way.push_back(start()?);
    }
    println!("started");
    // Calls that ended well before the failure are not those after the one that fails.
    let (failed, mut has_one_failed) = loop {
        let Some(oldest) = under_way.pop_front() else { unreachable!("there are 100") };
        match oldest.wait() {
            Ok(_) => {}
            Err(failed) => break (failed, true),
        }
        match start() {
            Ok(request) => under_way.push_back(request),
            Err(failed) => break (failed, false),
        }
    };
    assert_eq!(failed.buffers.len(), count);
    for request in under_way {
        match request.wait() {
            Err(other) => {
                assert_eq!(other.error.to_string(), failed.error.to_string());
                assert_eq!(other.buffers.len(), count);
                has_one_failed = true;
            }
            Ok(_) => assert!(!has_one_failed, "a call has ended after one that failed"),
        }
    }
    Err(failed.error)
}

/// A task of this program, as described in its head.
fn any(comm: &mut Communicator, bytes: usize) -> Result<(), Error> {
    let mut data = vec![1_u8; bytes];
    let sender = comm.size() - 1;
    println!("started");
    for to in (0..sender).cycle() {
        if comm.rank().index() == sender {
            comm.send(&data, Rank::at(to), 7)?;
        } else {
            comm.recv(&mut data, ANY_SOURCE, 7)?;
        }
    }
    Ok(())
}

/// A task of this program, as described in its head.
fn letter(mut comm: Communicator, is_sender: bool, tag: u32) -> Result<(), Error> {
    if is_sender {
        comm.send(&[7_u32; 3], Rank(0), tag)?;
        return comm.leave();
    }
    std::thread::sleep(Duration::from_secs(2));
    comm.recv(&mut [0.0_f32; 3], Rank(1), 5).map(drop)
}

/// A task of this program, as described in its head.
fn crossed(mut comm: Communicator) -> Result<(), Error> {
    let root = comm.rank();
    comm.broadcast(&mut [root.0], root)?;
    comm.leave()
}

/// A task of this program, as described in its head.
fn differ_in_windows(comm: &mut Communicator, task: &str) -> Result<(), Error> {
    let is_odd_one = comm.rank() == Rank(1);
    if task == "half" {
        let mut window = comm.alloc::<f32>(1000)?;
        return if is_odd_one {
            comm.all_reduce_window(&mut window, .., ReduceOp::Sum)
        } else {
            comm.all_reduce(&mut window, ReduceOp::Sum)
        };
    }
    let mut windows = [comm.alloc::<f32>(100_000)?, comm.alloc::<f32>(100_000)?];
    let (window, range) = match (task, is_odd_one) {
        ("other", true) => (1, 0..100_000),
        ("other", false) => (0, 0..100_000),
        (_, true) => (0, 10..50_010),
        (_, false) => (0, 0..50_000),
    };
    comm.all_reduce_window(&mut windows[window], range, ReduceOp::Sum)
}

/// A task of this program, as described in its head. Prints the numbers of descriptors and
/// mappings, then kilobytes.
fn footprint(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let mut buffer = vec![1.0_f32; count];
    comm.all_reduce(&mut buffer, ReduceOp::Sum)?;
    let sum = comm.size() as f32;
    println!("sums {}", buffer.iter().all(|it| *it == sum));
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}"));
    let (status, maps) = (read("status").unwrap_or_default(), read("maps").unwrap_or_default());
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()).unwrap_or("?")
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    println!(
        "footprint descriptors {descriptors} mappings {} rss {} shared {} tables {} threads {}",
        maps.lines().count(),
        of("VmRSS:"),
        of("RssShmem:"),
        of("VmPTE:"),
        of("Threads:"),
    );
    // A barrier, so that no rank leaves while another counts.
    comm.barrier()
}

/// A task of this program, as described in its head.
fn abort(comm: &mut Communicator) -> Result<(), Error> {
    if comm.rank() == Rank(1) {
        let aborter = comm.aborter();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            aborter.abort("on purpose");
        });
    }
    if comm.rank().index() == comm.size() - 1 {
        std::thread::sleep(Duration::from_secs(1));
    }
    comm.barrier()?;
    comm.barrier()
}

/// A task of this program, as described in its head.
fn forked(comm: Communicator, parent: Rank) -> Result<(), Error> {
    let (is_parent, mut comm) = (comm.rank() == parent, Some(comm));
    if is_parent {
        fork_for_test(|| {
            if let Some(mut comm) = comm.take() {
                let called = comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum);
                println!("child {} {}", std::process::id(), called.expect_err("a call in a child"));
                drop(comm);
            }
            join_anew();
            println!("dropped");
            std::thread::sleep(Duration::from_secs(30));
        })
        .expect("a child");
    }
    let mut comm = comm.expect("the parent keeps it");
    loop {
        comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum)?;
    }
}

/// Two threads of this process form a group and use it.
fn join_anew() {
    let id = UniqueId::new(&Config::default()).expect("an id");
    let part = |rank: u32| {
        let comm = Communicator::init_with_id(&Config::default(), &id, Rank(rank), 2);
        let mut sum = [rank];
        comm.expect("a group").all_reduce(&mut sum, ReduceOp::Sum).expect("a sum");
        assert_eq!(sum, [1]);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| part(0));
        part(1);
    });
}

/// A task of this program, as described in its head.
fn refuse(comm: &mut Communicator, count: usize) -> Result<(), Error> {
    let mut window = comm.alloc::<f32>(count)?;
    comm.all_reduce_window(&mut window, .., ReduceOp::Max)?;
    allow_no_more_memory();
    println!("started");
    loop {
        let called = comm.all_reduce_window(&mut window, .., ReduceOp::Max);
        if called.is_err() {
            let panic = std::panic::catch_unwind(|| window[0]).expect_err("a lost window");
            println!("refused {}", panic.downcast_ref::<String>().map_or("?", |why| why));
            return called;
        }
    }
}

/// A task of this program, as described in its head.
fn refill(comm: &mut Communicator, count: usize, stop: &str, starts: bool) -> Result<(), Error> {
    const FILLED: f32 = 777.0;
    let mut window = comm.alloc::<f32>(count)?;
    println!("started");
    loop {
        let called = if starts {
            let shared = window.share();
            let request = comm.start_all_reduce_window(&shared, .., ReduceOp::Max);
            let called = request.and_then(Request::wait);
            window = shared.take().expect("the call has ended");
            called.map_err(Error::from)
        } else {
            comm.all_reduce_window(&mut window, .., ReduceOp::Max)
        };
        if called.is_err() {
            window.fill(FILLED);
            println!("filled");
            while !Path::new(stop).exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
            println!("changed {}", window.iter().filter(|it| **it != FILLED).count());
            return called;
        }
    }
}

/// A task of this program, as described in its head.
fn again(comm: Communicator, times: usize) -> Result<(), Error> {
    let mut last = Some(comm);
    for round in 0..times {
        let before = last.take().filter(|_| round % 2 == 0);
        let mut comm = Communicator::init()?;
        if let Some(mut comm) = before {
            comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum)?;
        }
        comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum)?;
        last = Some(comm);
    }
    Ok(())
}

/// A task of this program, as described in its head.
fn differ(comm: &mut Communicator, count: usize, times: usize) -> Result<(), Error> {
    let mut buffer = vec![1.0_f32; count];
    (0..times).try_for_each(|_| comm.all_reduce(&mut buffer, ReduceOp::Max))?;
    if comm.rank() == Rank(1) {
        return comm.broadcast(&mut [1.0_f64; 10], Rank(2));
    }
    comm.all_reduce(&mut buffer, ReduceOp::Sum)
}

/// A task of this program, as described in its head.
fn stray(comm: &mut Communicator, what: &str, stray: Rank) -> Result<(), Error> {
    let mut buffer = [1.0_f32; 8];
    (0..100).try_for_each(|_| comm.all_reduce(&mut buffer, ReduceOp::Max))?;
    println!("started");
    while comm.rank() == stray {
        match what {
            "loop" => std::hint::spin_loop(),
            "receive" => drop(comm.recv(&mut buffer, Rank(0), 7)?),
            "start" => drop(comm.start_recv(vec![0.0_f32], Rank(0), 7)?.wait()?),
            _ => std::thread::sleep(Duration::from_secs(1)),
        }
    }
    if what == "pass" && comm.rank() > stray {
        comm.recv(&mut buffer, Rank(comm.rank().0 - 1), 7)?;
    }
    comm.all_reduce(&mut buffer, ReduceOp::Max)
}

/// A task of this program, as described in its head.
fn pace(comm: &mut Communicator, millis: u64) -> Result<(), Error> {
    println!("started");
    loop {
        comm.all_reduce(&mut [1.0_f32; 2], ReduceOp::Max)?;
        let end = Instant::now() + Duration::from_millis(millis);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A task of this program, as described in its head.
fn noted(comm: &mut Communicator, folder: &Path) -> Result<(), Error> {
    let file = File::create(folder.join(comm.rank().to_string())).expect("a file");
    for calls in 1_u64.. {
        comm.all_reduce(&mut [1.0_f32; 2], ReduceOp::Max)?;
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |it| it.as_nanos());
        let note = u128::from(calls) << 64 | now;
        file.write_all_at(&note.to_le_bytes(), 0).expect("room");
        if calls == 1 {
            println!("started {}", std::process::id());
        }
    }
    Ok(())
}

/// A task of this program, as described in its head.
fn part(comm: &mut Communicator, count: usize, root: Rank) -> Result<(), Error> {
    let mut buffer = vec![1.0_f32; count];
    comm.all_reduce(&mut buffer, ReduceOp::Max)?;
    if comm.rank() == Rank(1) {
        return comm.all_reduce(&mut buffer, ReduceOp::Sum);
    }
    let mut short = [1.0_f64; 10];
    comm.broadcast(&mut short, root)?;
    comm.all_reduce(&mut short, ReduceOp::Sum)
}

/// Limits the memory of this process: enough for a call, not for a staging buffer or a window.
fn allow_no_more_memory() {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let most = Some(pages * 4096 + (1 << 20));
    let limits = Rlimit { current: most, maximum: most };
    setrlimit(Resource::As, limits).expect("a limit can be lowered");
}

/// A task of this program, as described in its head. Prints the least and the largest sum, and the
/// algorithm.
fn ones(comm: &mut Communicator, count: usize, is_poor: bool) -> Result<(), Error> {
    let mut buffer = vec![1.0_f32; count];
    if is_poor {
        allow_no_more_memory();
    }
    for _ in 0..2 {
        buffer.fill(1.0);
        comm.all_reduce(&mut buffer, ReduceOp::Sum)?;
        let sums = buffer.iter().fold((f32::MAX, 0.0_f32), |(a, b), x| (a.min(*x), b.max(*x)));
        println!("sums {} {}", sums.0, sums.1);
    }
    let (collective, data_type, root) = (Collective::AllReduce, DataType::F32, Rank(0));
    let call =
        Call { collective, count, data_type, op: ReduceOp::Sum, root, wire: Wire::default() };
    println!("by {}", comm.algorithm_for(&call));
    Ok(())
}

/// A task of this program, as described in its head. The first element is 1 once rank 0 has seen
/// the file, so all ranks stop after the same call.
fn checked(comm: &mut Communicator, count: usize, stop: &str) -> Result<(), Error> {
    let (rank, size) = (comm.rank().0, comm.size());
    let whole = size * (size + 1) / 2;
    let begin = Instant::now();
    let (mut ordinary, mut registered) = (vec![0.0_f32; count], comm.alloc(count)?);
    for call in 0_usize.. {
        let buffer = if call.is_multiple_of(2) { &mut ordinary[..] } else { &mut registered[..] };
        // Sums of whole numbers this small are exact.
        let value = |at: usize| ((at * 7 + call) % 8191) as f32;
        for (at, number) in buffer.iter_mut().enumerate() {
            *number = value(at) * (rank + 1) as f32;
        }
        buffer[0] = if rank == 0 && Path::new(stop).exists() { 1.0 } else { 0.0 };
        let start = Instant::now();
        comm.all_reduce(buffer, ReduceOp::Sum)?;
        if !call.is_multiple_of(2) {
            let root = Rank::at(call / 2 % size);
            if comm.rank() != root {
                buffer.fill(-1.0);
            }
            comm.broadcast(buffer, root)?;
        }
        if rank == 0 {
            println!("call {} {}", (start - begin).as_micros(), start.elapsed().as_micros());
        }
        let wrong = |(at, sum): (usize, &f32)| *sum != value(at) * whole as f32;
        let wrong = buffer.iter().enumerate().skip(1).filter(|it| wrong(*it)).count();
        if wrong > 0 {
            println!("wrong {wrong} of call {call}");
        }
        if buffer[0] > 0.0 {
            break;
        }
    }
    Ok(())
}
