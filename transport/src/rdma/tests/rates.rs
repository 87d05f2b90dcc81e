//! Ports with different rates.

use super::{Device, Like, Settings, fake_test, roce};
use crate::rdma::rail::{Rail, leave_out_slow};

/// The ports that remain of those with these rates, under that value of `RINGFOLD_IB_HCA`.
fn used(name: &str, rates: &[u32], devices: &str) -> (Vec<String>, Vec<String>) {
    let settings = Settings { devices: devices.parse().unwrap(), ..Settings::default() };
    let open = |(at, gigabits): (usize, &u32)| {
        let name = format!("{name}{at}");
        Device::add(&name, Like { gigabits: *gigabits, ..roce(0, 0) });
        Rail::open(&name, 1, &settings, None).unwrap()
    };
    let mut rails: Vec<Rail> = rates.iter().enumerate().map(open).collect();
    let left_out = leave_out_slow(&mut rails, &settings);
    (rails.iter().map(Rail::name).collect(), left_out)
}

fake_test! {
    fn a_port_below_a_quarter_of_the_fastest_is_left_out_unless_it_is_named() {
        let (names, left_out) = used("a", &[400, 25, 100], "");
        assert_eq!(names, ["a0:1", "a2:1"]);
        let [line] = &left_out[..] else { panic!("{left_out:?}") };
        for part in ["a1:1", "25 Gbit/s", "400 Gbit/s", "RINGFOLD_IB_HCA"] {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(used("b", &[400, 25], "b").0.len(), 2, "a prefix names both");
        assert_eq!(used("c", &[25, 400], "^x").0, ["c1:1"], "a list that excludes names neither");
        assert_eq!(used("d", &[25, 25], "").0.len(), 2);
    }
}
