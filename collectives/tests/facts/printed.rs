//! Schedules of four ranks as text that a reviewer can follow by hand. `golden/NAME.txt` holds the
//! text, so a change of an algorithm shows there.

use ringfold_collectives::{Algorithm, ScheduleParams};
use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

/// All four ranks' schedules for 8 elements in chunks of 2.
fn printed(algorithm: &str) -> String {
    let (collective, data_type, op) = (Collective::AllReduce, DataType::F32, ReduceOp::Sum);
    let call = Call { collective, count: 8, data_type, op, root: Rank(0), wire: Wire::default() };
    let layout = Layout::one_host(4);
    let algorithm = Algorithm::named(collective, algorithm).expect("an algorithm of that name");
    let schedule = |rank| {
        let window_bytes = LINK_BYTES_MIN;
        let plan =
            ScheduleParams { call, layout: &layout, rank: Rank(rank), chunk: 2, window_bytes };
        (algorithm.schedule)(&plan).to_string()
    };
    (0..4).map(schedule).collect::<Vec<_>>().join("\n")
}

macro_rules! golden {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let now = printed(stringify!($name));
            let golden = include_str!(concat!("golden/", stringify!($name), ".txt"));
            assert_eq!(now, golden, "now:\n{now}");
        }
    )*};
}

golden! {
    double_tree
    recursive_doubling
    ring
    two_shot
}
