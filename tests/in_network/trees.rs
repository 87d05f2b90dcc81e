//! Trees of aggregators: levels, tree files, rails, and more hosts than one has children.

use super::*;

/// Hosts below two aggregators: three and two.
const UNEVEN: usize = 5;

/// A root and two aggregators below it.
fn two_levels(home: &Home) -> [Aggregator; 3] {
    let root = home.aggregator(&[]);
    let [one, two] = [(); 2].map(|()| home.aggregator(&["--parent", &root.at]));
    [root, one, two]
}

fn list(aggregators: &[&Aggregator]) -> String {
    aggregators.iter().map(|it| &it.at[..]).collect::<Vec<_>>().join(",")
}

/// Chunks that each of these aggregators has combined.
fn chunks(home: &Home, aggregators: &[&Aggregator]) -> Vec<u64> {
    aggregators.iter().flat_map(|aggregator| home.chunks(&aggregator.at)).collect()
}

#[test]
fn levels_have_the_bits_of_the_ranks_own_steps() {
    let home = Home::new();
    let [root, one, two] = two_levels(&home);
    let aggregators = list(&[&one, &two]);
    let ranks = Ranks { hosts: UNEVEN, home: &home, aggregators: &aggregators };
    let job = Job::start(&mut ranks.run(&["bits", "2"]));
    job.wait_for_line(DEADLINE, |line| line.starts_with("bits "));
    let combined = chunks(&home, &[&root, &one, &two]);
    assert!(combined.len() == 3 && combined.iter().all(|it| *it > 100), "{combined:?}");
    let with = bits(&job.finish(DEADLINE), UNEVEN, 2);
    // A lower one is killed, then the root, in the middle of calls and before them.
    assert_eq!(interrupted(&ranks, &two, (Signal::KILL, moment(EARLY))).0, with);
    let [root, one, two] = two_levels(&home);
    let aggregators = list(&[&one, &two]);
    let ranks = Ranks { aggregators: &aggregators, ..ranks };
    assert_eq!(own_steps(&ranks, &root, 1).0, with);
}

#[test]
fn a_root_that_stops_amid_calls_changes_no_bits() {
    let home = Home::new();
    let [root, one, two] = two_levels(&home);
    let aggregators = list(&[&one, &two]);
    let ranks = Ranks { hosts: UNEVEN, home: &home, aggregators: &aggregators };
    interrupted(&ranks, &root, (Signal::STOP, moment(EARLY)));
}

#[test]
fn a_tree_file_names_hosts_and_rails() {
    let home = Home::new();
    let [root, one, two] = two_levels(&home);
    let [above, first, second] = two_levels(&home);
    let below = |root: &Aggregator, one: &Aggregator, two: &Aggregator, rail: u8| {
        let (root, one, two) = (&root.at, &one.at, &two.at);
        format!(
            "{root} rail {rail}\n{one} parent {root} hosts host-[0-2]\n\
             {two} parent {root} hosts host-[3-4]\n"
        )
    };
    let both = [below(&root, &one, &two, 0), below(&above, &first, &second, 1)].concat();
    let file = home.path().join("tree");
    std::fs::write(&file, format!("ringfold-aggregators 1\n{both}")).unwrap();
    let ranks = Ranks { hosts: UNEVEN, home: &home, aggregators: file.to_str().unwrap() };
    let job = Job::start(&mut ranks.run(&["bits", "2"]));
    job.wait_for_line(DEADLINE, |line| line.starts_with("bits "));
    let combined = chunks(&home, &[&root, &one, &two, &above, &first, &second]);
    assert!(combined.len() == 6 && combined.iter().all(|it| *it > 100), "{combined:?}");
    let with = bits(&job.finish(DEADLINE), UNEVEN, 2);
    // One of two trees fails: its part of a call goes on by the ranks' own steps.
    assert_eq!(interrupted(&ranks, &first, (Signal::KILL, moment(EARLY))).0, with);
}

#[test]
fn one_aggregator_serves_more_hosts_than_it_has_children() {
    let home = Home::new();
    let aggregator = home.aggregator(&[]);
    let ranks = Ranks { hosts: 66, home: &home, aggregators: &aggregator.at };
    let outcome = Job::start(&mut ranks.run(&["rich", "1000"])).finish(DEADLINE);
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stdout.matches("by in_network").count(), 66, "{outcome:?}");
    assert_eq!(outcome.stdout.matches("sums 66 66").count(), 2 * 66, "{outcome:?}");
}
