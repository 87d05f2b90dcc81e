//! Ranks on the wire: the first rank of each run without a gap, and the number of those behind it.
//! Most sets of many ranks have few gaps.

use ringfold_types::limits;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The runs of ranks in growing order.
pub(crate) type Runs = Vec<(u32, u32)>;

pub(crate) fn pack(ranks: impl IntoIterator<Item = u32>) -> Runs {
    let mut runs = Runs::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((first, behind)) if first.checked_add(*behind + 1) == Some(rank) => *behind += 1,
            _ => runs.push((rank, 0)),
        }
    }
    runs
}

/// The ranks of these runs.
///
/// # Errors
/// They are more than there may be.
pub(crate) fn unpack<E: Error>(runs: Runs) -> Result<impl Iterator<Item = u32>, E> {
    let count = runs.iter().map(|(_, behind)| *behind as usize + 1).sum::<usize>();
    if count > limits::RANKS_MAX {
        return Err(E::custom("more ranks than there may be"));
    }
    let run = |(first, behind): (u32, u32)| first..=first.saturating_add(behind);
    Ok(runs.into_iter().flat_map(run))
}

pub(crate) fn serialize<'a, C, S: Serializer>(ranks: &'a C, s: S) -> Result<S::Ok, S::Error>
where
    &'a C: IntoIterator<Item = &'a u32>,
{
    pack(ranks.into_iter().copied()).serialize(s)
}

pub(crate) fn deserialize<'de, C, D: Deserializer<'de>>(d: D) -> Result<C, D::Error>
where
    C: FromIterator<u32>,
{
    Ok(unpack(Runs::deserialize(d)?)?.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::channel::frames::{decode, encode};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sent(#[serde(with = "super")] BTreeSet<u32>);

    #[test]
    fn ranks_without_gaps_take_few_bytes() {
        for (ranks, bytes) in
            [((0..65_536).collect(), 5), ([].into(), 1), ([3, 4, 9, u32::MAX].into(), 11)]
        {
            let message = encode(&Sent(ranks));
            assert_eq!(message.len(), bytes);
            assert_eq!(encode(&decode::<Sent>(&message).unwrap()), message);
        }
    }

    #[test]
    fn runs_of_more_ranks_than_there_may_be_are_refused() {
        let of = |runs: Runs| decode::<Sent>(&encode(&runs));
        assert_eq!(of(vec![(3, 1), (9, 0)]), Some(Sent([3, 4, 9].into())));
        assert_eq!(of(vec![(0, 65_536)]), None);
        assert_eq!(of(vec![(0, 65_535), (7, 0)]), None);
        assert_eq!(of(vec![(0, u32::MAX); 9]), None);
    }
}
