//! Sentences about evidence that an agreement ignores.

use std::collections::BTreeSet;

/// The most sentences that an agreement keeps.
const REMARKS_MAX: usize = 16;

/// Sentences about ignored evidence. Further ones are only counted.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    kept: BTreeSet<String>,
    more: usize,
}

impl Remarks {
    pub(super) fn add(&mut self, sentence: String) {
        self.kept.insert(sentence);
        if self.kept.len() > REMARKS_MAX {
            self.kept.pop_last();
            self.more += 1;
        }
    }

    pub(super) fn sentences(self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("{} more like these", self.more));
        self.kept.into_iter().chain(more).collect()
    }
}
