//! Checks the project's rules on the working tree. All offences are reported at once.
//!
//! * `tree` reads the files; `rust` separates code from comments and strings;
//! * `imports`: dependencies between crates; `modules`, `cycles`: uses between modules;
//! * `place`: the place of folders, names and `unsafe`; `text`: lines and words;
//! * `written`: the required contents of the documents;
//! * `pages`: the pages for users: length, links, and tables that agree with the code;
//! * `limits`: the page of limits.
//!
//! A rule is a function from the tree to its offences. Its tests are in the same file, with trees
//! that break it.

mod cycles;
mod imports;
mod limits;
mod modules;
mod pages;
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
    offences.extend(pages::offences(&tree));
    offences.extend(limits::offences(&tree));
    assert!(offences.is_empty(), "{} offences:\n{}", offences.len(), offences.join("\n"));
}
