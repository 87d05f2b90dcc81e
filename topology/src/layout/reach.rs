//! Sets of rails and planes, in one word, and the sets of a rank.

use std::fmt;

use crate::fabric::Place;

/// A set of rails and planes. Two ranks whose sets overlap have a network in common.
///
/// Rails are below `Reach::RAILS` and planes below `Reach::PLANES`. In larger fabrics, a job
/// numbers the rails and planes that it uses.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach(u64);

/// The rails and planes of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankReach {
    /// Rails and planes that it reaches by some port of its host.
    pub reaches: Reach,
    /// Rails and planes of the ports near it that no other rank of its host prefers. A subset of
    /// `reaches`.
    pub prefers: Reach,
}

impl Reach {
    /// Number of rails that a set can hold.
    pub const RAILS: u16 = 16;

    /// Number of planes of a rail that a set can hold.
    pub const PLANES: u8 = 4;

    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The set of one rail and plane; `None` if the numbers are too large.
    #[must_use]
    pub const fn of(place: Place) -> Option<Self> {
        if place.rail < Self::RAILS && place.plane < Self::PLANES {
            Some(Self(1 << (place.plane as u16 * Self::RAILS + place.rail)))
        } else {
            None
        }
    }

    /// The union of both sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The intersection of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the sets overlap.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether bit `at` is in the set. Plane 0 of all rails has the first bits.
    pub(crate) const fn has_bit(self, at: u32) -> bool {
        self.0 >> at & 1 == 1
    }

    /// The distance from bit `at` onwards to the next set bit, in a circle; 64 for the empty set.
    pub(crate) const fn first_bit_from(self, at: u32) -> u32 {
        self.0.rotate_right(at).trailing_zeros()
    }

    /// The rails and planes in the set: plane 0 of all rails first.
    pub fn places(self) -> impl Iterator<Item = Place> {
        let rails = move |plane| (0..Self::RAILS).map(move |rail| Place { rail, plane });
        let all = (0..Self::PLANES).flat_map(rails);
        all.filter(move |place| Self::of(*place).is_some_and(|it| it.meets(self)))
    }
}

impl FromIterator<Self> for Reach {
    fn from_iter<I: IntoIterator<Item = Self>>(sets: I) -> Self {
        sets.into_iter().fold(Self::NONE, Self::or)
    }
}

impl fmt::Display for Reach {
    /// Writes rails as in `0,1,2:1`. A rail has its plane if that is not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.places().enumerate().try_for_each(|(index, Place { rail, plane })| {
            let comma = if index == 0 { "" } else { "," };
            match plane {
                0 => write!(f, "{comma}{rail}"),
                plane => write!(f, "{comma}{rail}:{plane}"),
            }
        })
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let place = |rail, plane| Place { rail, plane };
        let places = [place(0, 0), place(15, 0), place(3, 1), place(15, 3)];
        let set: Reach = places.iter().filter_map(|place| Reach::of(*place)).collect();
        assert_eq!(set.places().collect::<Vec<_>>(), places);
        assert_eq!(set.to_string(), "0,15,3:1,15:3");
        for other in [place(16, 0), place(0, 4)] {
            assert_eq!(Reach::of(other), None);
        }
        let rail = |rail| Reach::of(place(rail, 0)).unwrap_or_default();
        assert!(set.meets(rail(15)) && !set.meets(rail(3)) && Reach::NONE.is_empty());
        assert_eq!(set.and(rail(15).or(rail(1))), rail(15));
    }
}
