//! The rules of the house, checked on the tree as it lies here. All offences are reported at once.
//!
//! * `tree` reads the files; `rust` tells code from comments and strings;
//! * `imports`: which crate may use which; `modules`, `cycles`: which module uses which;
//! * `place`: the place of folders, names and `unsafe`; `text`: lines and words;
//! * `written`: what the documents must mention.
//!
//! A rule is a function from the tree to its offences, tested beside it on trees that break it.

mod cycles;
mod imports;
mod modules;
mod place;
mod rust;
mod text;
mod tree;
mod written;

use tree::Tree;

/// A broken rule, as `path:line: what to do`.
type Offence = String;

#[test]
fn the_house_is_in_order() {
    let tree = Tree::read();
    let metadata = imports::metadata();
    let mut offences = imports::offences(&metadata, &tree);
    offences.extend(cycles::offences(&metadata, &tree));
    offences.extend(place::offences(&tree));
    offences.extend(text::offences(&tree));
    offences.extend(written::offences(&tree));
    assert!(offences.is_empty(), "{} offences:\n{}", offences.len(), offences.join("\n"));
}
