//! Sentences about evidence that an agreement ignores.

use std::collections::BTreeSet;

/// Sentences about ignored evidence that an agreement keeps.
const NOTES_MAX: usize = 16;

/// Sentences about what was ignored, as many as people read.
#[derive(Debug, Default)]
pub(super) struct Notes {
    kept: BTreeSet<String>,
    more: usize,
}

impl Notes {
    pub(super) fn add(&mut self, sentence: String) {
        self.kept.insert(sentence);
        if self.kept.len() > NOTES_MAX {
            self.kept.pop_last();
            self.more += 1;
        }
    }

    pub(super) fn sentences(self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("{} more like these", self.more));
        self.kept.into_iter().chain(more).collect()
    }
}
