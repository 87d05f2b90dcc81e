//! Trees of aggregators: two levels of processes, and several groups at one process.

use ringfold_bootstrap::aggregators::{LeafGrant, Placement, TreeGrant, Trees, grant, parent};

use super::*;

/// A tree of members and aggregators.
enum Node {
    Member(usize),
    Aggregator(Vec<Self>),
}

fn form(wire: Wire) -> Form {
    match wire {
        Wire::Element => Form::Element,
        Wire::Accumulator => Form::Accumulator,
    }
}

/// The sum of a node by the scalar kernel, rounded once at each aggregator.
fn sum(node: &Node, reduction: &Reduction, count: usize, ranks: usize, is_top: bool) -> Vec<u8> {
    let children = match node {
        Node::Member(member) => {
            return input(reduction, u16::try_from(*member).unwrap(), 0, count);
        }
        Node::Aggregator(children) => children,
    };
    let parts: Vec<_> =
        children.iter().map(|child| sum(child, reduction, count, ranks, false)).collect();
    let kernel = Kernel::scalar(reduction.data_type, reduction.op, ranks);
    let kernel = if is_top { kernel } else { kernel.partial() };
    let from = form(reduction.form);
    let to = if is_top { Form::Element } else { from };
    let operand = |bytes| Operand::Bytes { bytes, form: from };
    let operands: Vec<_> = parts.iter().map(|bytes: &Vec<u8>| operand(bytes)).collect();
    let (first, rest) = operands.split_at(1);
    let mut sums = vec![0; count * Form::Accumulator.bytes(reduction.data_type)];
    kernel.combine(&mut sums, Form::Accumulator, first);
    for part in rest {
        kernel.combine(&mut sums, Form::Accumulator, &[Operand::Destination, *part]);
    }
    let mut result = vec![0; count * to.bytes(reduction.data_type)];
    kernel.combine(&mut result, to, &[Operand::accumulators(&sums)]);
    result
}

/// Asks for the groups of a placement.
fn granted(aggregator: &Aggregator, tree: &Placement, ranks: u32) -> Vec<Leaf> {
    let terms = terms("levels", ranks);
    let leaf = |leaf: LeafGrant| {
        let LeafGrant { first, children, at, rdma_port } = leaf;
        Leaf { first, children, at: Endpoints { tcp: at, rdma_port } }
    };
    let TreeGrant { leaves, .. } = grant(tree, &terms, &aggregator.site, PATIENCE).unwrap();
    leaves.into_iter().map(leaf).collect()
}

fn connect(leaves: &[Leaf], members: usize) -> Vec<Box<dyn Group>> {
    let connect = |at: u16| provider(leaves, KEY).connect(0, at).unwrap();
    (0..u16::try_from(members).unwrap()).map(connect).collect()
}

/// Runs some calls at all members in turn, and compares the results with the tree's.
fn check(groups: &mut [Box<dyn Group>], tree: &Placement) {
    let shape = tree.fold(&Node::Member, &Node::Aggregator);
    let (ranks, began) = (groups.len(), Instant::now());
    let calls: Vec<_> = calls().into_iter().step_by(3).collect();
    for (number, (reduction, count)) in (0..).zip(&calls) {
        let chunk = Chunk { number, tag: 5, reduction: *reduction, count: *count };
        let mut is_posted = vec![false; ranks];
        let mut done = 0;
        let wanted = match reduction.collective {
            Collective::Barrier => Vec::new(),
            _ => sum(&shape, reduction, *count, ranks, true),
        };
        while done < ranks {
            assert!(began.elapsed() < 3 * PATIENCE, "the test hangs at {reduction:?}");
            for (at, group) in (0..).zip(&mut *groups) {
                group.poll().unwrap();
                let posted = &mut is_posted[usize::from(at)];
                *posted = *posted || group.post(&chunk, &input(reduction, at, 0, *count)).unwrap();
                if let Some(outcome) = group.result() {
                    let bytes = reduction.output_bytes(*count, at);
                    assert!(outcome.bytes == &wanted[..bytes], "{at}: {reduction:?} x {count}");
                    group.take();
                    done += 1;
                }
            }
        }
    }
}

/// A root and two aggregators below it, and the trees that a list of those two gives.
fn two_levels(name: &str) -> ([Aggregator; 3], Trees) {
    let root = Aggregator::start(&format!("{name}-root"), &[]);
    let secret = root.folder.join(".ringfold/site-secret");
    let site = secret.to_str().unwrap();
    let below = |at: u8| {
        let arguments = ["--parent", &root.at, "--site-secret-file", site];
        Aggregator::start(&format!("{name}-{at}"), &arguments)
    };
    let [first, second] = [0, 1].map(below);
    let list = format!("{},{}", first.at, second.at);
    let (trees, failed) = Trees::of_setting(&list).unwrap().with_parents(&root.site, PATIENCE);
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(parent(&first.at, &root.site, PATIENCE).unwrap(), Some(root.at.clone()));
    ([root, first, second], trees)
}

#[test]
fn two_levels_give_the_bits_of_the_tree_and_a_group_ends_on_both() {
    let ([root, first, _second], trees) = two_levels("levels");
    let placed = trees.place(&["a"; 5]);
    assert_eq!((placed.trees.len(), placed.left_out.len()), (1, 0));
    let tree = &placed.trees[0];
    let grant = granted(&root, tree, 5);
    let mut groups = connect(&grant, 5);
    check(&mut groups, tree);
    let stats = aggregators::stats(&first.at, &root.site, PATIENCE).unwrap();
    assert!(stats.groups.iter().all(|group| group.parent.as_ref().unwrap().is_connected));
    // A late member below the other aggregator is no failure, and is named as above.
    let (reduction, count) = calls()[0];
    let chunk = Chunk { number: groups[0].posted(), tag: 6, reduction, count };
    let bytes = input(&reduction, 0, 0, count);
    for group in &mut groups[..4] {
        drive(group, |group| group.post(&chunk, &bytes).unwrap()).unwrap();
    }
    drive(&mut groups[0], |group| group.awaited().above == 0b10).unwrap();
    assert_eq!(groups[0].awaited().children, 0);
    // A member that differs ends the groups below both aggregators.
    let other = Chunk { tag: 7, ..chunk };
    groups[4].post(&other, &bytes).unwrap();
    for group in &mut groups {
        let error = drive(group, |_| false).unwrap_err();
        let OffloadError::Refused { reason } = &error else { panic!("{error}") };
        assert!(reason.contains("differ"), "{reason}");
    }
}

#[test]
fn a_root_that_dies_or_stops_fails_all_members_below() {
    for (name, signal) in [("levels-kill", Signal::KILL), ("levels-stop", Signal::STOP)] {
        let ([root, _first, _second], trees) = two_levels(name);
        let placed = trees.place(&["a"; 4]);
        let grant = granted(&root, &placed.trees[0], 4);
        let mut groups = connect(&grant, 4);
        check(&mut groups, &placed.trees[0]);
        root.signal(signal);
        let (reduction, count) = calls()[0];
        let chunk = Chunk { number: groups[0].posted(), tag: 6, reduction, count };
        let bytes = input(&reduction, 0, 0, count);
        for group in &mut groups {
            // The group may have ended already.
            group.post(&chunk, &bytes).ok();
        }
        for group in &mut groups {
            let error = drive(group, |_| false).unwrap_err();
            let OffloadError::Refused { reason } = &error else { panic!("{error}") };
            assert!(reason.contains(&root.at[..9]), "{reason}");
        }
    }
}

#[test]
fn one_aggregator_serves_more_members_than_it_has_children_by_levels() {
    let aggregator = Aggregator::start("levels-alone", &[]);
    let trees = Trees::of_setting(&aggregator.at).unwrap();
    let (trees, _) = trees.with_parents(&aggregator.site, PATIENCE);
    let placed = trees.place(&["a"; 67]);
    let tree = &placed.trees[0];
    assert_eq!(tree.groups.len(), 3);
    let grant = granted(&aggregator, tree, 67);
    let mut groups = connect(&grant, 67);
    let shape = tree.fold(&Node::Member, &Node::Aggregator);
    let (reduction, count) = calls()[4];
    let wanted = sum(&shape, &reduction, count, 67, true);
    let chunk = Chunk { number: 0, tag: 6, reduction, count };
    for (at, group) in (0..).zip(&mut groups) {
        let bytes = input(&reduction, at, 0, count);
        drive(group, |group| group.post(&chunk, &bytes).unwrap()).unwrap();
    }
    for group in &mut groups {
        drive(group, |group| group.result().is_some()).unwrap();
        assert!(group.result().unwrap().bytes == wanted);
    }
}

#[test]
fn a_group_without_the_parent_of_its_aggregator_is_refused() {
    let aggregator = Aggregator::start("levels-orphan", &[]);
    let above = aggregators::Above { group: 0, port: 1, rdma_port: 0, child: 0, is_here: false };
    let error = aggregator.ask(Ask { above: Some(above), ..request() }).unwrap_err();
    assert!(error.to_string().contains("no parent"), "{error}");
}
