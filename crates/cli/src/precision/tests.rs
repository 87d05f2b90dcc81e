//! Executed sums and their bounds.

use super::*;

fn question(
    collective: Collective,
    [ranks, per_host]: [usize; 2],
    data_type: DataType,
) -> Question {
    let (count, per_host) = (Some(Amount(37)), Some(per_host));
    let (ranks_of_all, data_types) = (vec![ranks], vec![data_type]);
    let wire = Wire::Element;
    let args =
        Args { collective, ranks: ranks_of_all, per_host, count, data_type: data_types, wire };
    args.question(ranks, data_type).unwrap()
}

fn sums(question: &Question, algorithm: &Algorithm) -> Sums {
    match question.find(algorithm).unwrap() {
        Finding::Sums(sums) => sums,
        Finding::LeftOut(reason) => panic!("{algorithm}: {reason}"),
    }
}

/// The algorithms of collectives that add, on links.
fn algorithms() -> impl Iterator<Item = &'static Algorithm> {
    let all = Collective::ALL.into_iter().filter(|collective| collective.reduces());
    all.flat_map(Algorithm::of).filter(|algorithm| algorithm.works_anywhere())
}

/// The results of rank 0, or of the last rank of a scan, where each rank's inputs are all equal.
fn results(question: &Question, algorithm: &Algorithm, inputs: &[f32]) -> Vec<f32> {
    let Question { call, layout } = question;
    let kernel = Kernel::new(call.data_type, call.op, layout.size());
    let len = call.input_len(layout.size());
    let numbers = inputs.iter().map(|input| Numbers::rounded(&kernel, &vec![*input; len]));
    let shown = if call.collective.is_scan() { layout.size() - 1 } else { 0 };
    execute(&question.programs(algorithm), &kernel, numbers.collect()).unwrap()[shown].values()
}

#[test]
fn sums_of_integers_are_exact_as_f32() {
    for algorithm in algorithms() {
        for place in [[1, 1], [2, 1], [3, 1], [5, 2], [8, 1], [12, 3], [13, 1]] {
            let question = question(algorithm.collective, place, DataType::F32);
            let inputs: Vec<f32> = (0..13_u16).map(|rank| f32::from(7 * rank + 1)).collect();
            let inputs = &inputs[..place[0]];
            let results = results(&question, algorithm, inputs);
            let last = Rank::at(place[0] - 1);
            let sum = inputs[question.call.summands(last, place[0])].iter().sum::<f32>();
            assert!(results.iter().all(|result| *result == sum), "{algorithm}, {place:?}");
            assert_eq!(results.len(), 37, "{algorithm}");
        }
    }
}

#[test]
fn each_hop_between_hosts_rounds_to_nearest_even() {
    let ring = Algorithm::named(Collective::Reduce, "ring").unwrap();
    let binomial = Algorithm::named(Collective::Reduce, "binomial").unwrap();
    // The chain to the root begins at rank 1. From 256 to 512, bf16 has even numbers only.
    let inputs = [1.0, 256.0, 1.0];
    let question = question(Collective::Reduce, [3, 1], DataType::Bf16);
    assert_eq!(results(&question, ring, &inputs)[0], 256.0);
    assert_eq!(results(&question, binomial, &inputs)[0], 258.0);
    let call = Call { wire: Wire::Accumulator, ..question.call };
    assert_eq!(results(&Question { call, ..question }, ring, &inputs)[0], 258.0);
}

#[test]
fn errors_never_exceed_the_bound() {
    for algorithm in algorithms() {
        for place in [[2, 1], [3, 1], [7, 1], [8, 2], [13, 3], [24, 1], [64, 1]] {
            for data_type in
                [DataType::F16, DataType::Bf16, DataType::F8E4M3, DataType::F8E5M2, DataType::F32]
            {
                let question = question(algorithm.collective, place, data_type);
                for wire in Wire::ALL {
                    let call = Call { wire, ..question.call };
                    let question = Question { call, layout: question.layout.clone() };
                    let sums = sums(&question, algorithm);
                    let bound = bound(data_type, sums.way).unwrap();
                    let worst = sums.mixed.worst().max(sums.positive.worst());
                    let what = format!("{algorithm} of {data_type}, {place:?}, {wire}");
                    assert!(worst <= bound, "{what}: {worst} exceeds {bound}");
                    let summands = call.summands(Rank::at(place[0] - 1), place[0]);
                    assert!(worst > 0.0 || summands.len() == 1, "{what}: no sum was rounded");
                }
            }
        }
    }
}

/// The page on precision states these numbers.
#[test]
fn roundings_are_as_stated() {
    for algorithm in algorithms() {
        for hosts in 2..=33_usize {
            let question = question(algorithm.collective, [hosts, 1], DataType::Bf16);
            let roundings = sums(&question, algorithm).way.roundings as usize;
            let (below, above) =
                (hosts.ilog2() as usize, hosts.next_power_of_two().ilog2() as usize);
            let stated = match algorithm.name {
                "ring" => hosts - 1..=hosts - 1,
                "one_shot" | "two_shot" | "direct" | "linear" => 1..=1,
                "chain" => hosts - 2..=hosts - 1,
                // The second round of an exscan combines twice.
                _ if algorithm.collective.is_scan() => below - 1..=above + 1,
                "tree" | "binomial" => below..=below,
                "recursive_doubling" | "halving_doubling" | "halving" => above..=above,
                "double_tree" => below..=below + 1,
                _ => 1..=above,
            };
            assert!(stated.contains(&roundings), "{algorithm}, {hosts} hosts: {roundings}");
        }
    }
}

#[test]
fn partial_sums_stay_unrounded_within_a_host() {
    let roundings = |name, place, wire| {
        let algorithm = Algorithm::named(Collective::AllReduce, name).unwrap();
        let question = question(Collective::AllReduce, place, DataType::Bf16);
        let call = Call { wire, ..question.call };
        sums(&Question { call, ..question }, algorithm).way.roundings
    };
    assert_eq!(roundings("ring", [8, 8], Wire::Element), 1);
    assert_eq!(roundings("ring", [8, 2], Wire::Element), 4);
    assert_eq!(roundings("ring", [8, 1], Wire::Accumulator), 1);
    // The sum of a host's inputs, the sum of two hosts, and the result.
    assert_eq!(roundings("hierarchical", [8, 2], Wire::Element), 3);
}
