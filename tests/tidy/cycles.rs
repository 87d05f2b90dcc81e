//! The modules of a crate have no cyclic uses, so each can be read before its users. `modules`
//! defines a use.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Offence;
use crate::imports::targets;
use crate::modules::{Modules, Use};
use crate::tree::Tree;

pub(crate) fn offences(metadata: &Value, tree: &Tree) -> Vec<Offence> {
    found(metadata, tree).into_iter().flat_map(|(_, cycles)| cycles).collect()
}

/// Returns the cycles of every crate, by its folder.
pub(crate) fn found(metadata: &Value, tree: &Tree) -> Vec<(String, Vec<Offence>)> {
    let of_crate = |(folder, roots): (&str, Vec<&str>)| {
        let cycles = roots.iter().flat_map(|root| cycles(&Modules::read(tree, root)));
        (folder.to_owned(), cycles.collect())
    };
    targets(metadata).into_iter().map(of_crate).collect()
}

/// Returns each set of modules with cyclic uses, with one use for each pair of them.
fn cycles(modules: &Modules) -> Vec<Offence> {
    let uses: Vec<_> = modules.uses().into_iter().collect();
    let reached: Vec<_> = (0..modules.0.len()).map(|from| reached(from, &uses)).collect();
    let mutual = |a: usize, b: usize| reached[a].contains(&b) && reached[b].contains(&a);
    let mut cycles = Vec::new();
    for first in 0..modules.0.len() {
        let members: Vec<_> = (0..modules.0.len()).filter(|other| mutual(first, *other)).collect();
        if members.first() != Some(&first) {
            continue;
        }
        let files: Vec<_> = members.iter().map(|at| modules.0[*at].file.as_str()).collect();
        let mut text = format!("{} modules in a circle: {}", members.len(), files.join(" "));
        let mut shown = BTreeSet::new();
        for Use { from, to, line, path } in &uses {
            let is_within = members.contains(from) && members.contains(to);
            if is_within && shown.insert((from, to)) {
                let (from, to) = (&modules.0[*from].file, &modules.0[*to].file);
                text += &format!("\n    {from}:{line}: `{path}` is of {to}");
            }
        }
        cycles.push(text);
    }
    cycles
}

/// Returns the modules that a module uses, directly or indirectly.
fn reached(from: usize, uses: &[Use]) -> Vec<usize> {
    let mut reached = Vec::new();
    let mut new = vec![from];
    while let Some(at) = new.pop() {
        for next in uses.iter().filter(|used| used.from == at).map(|used| used.to) {
            if !reached.contains(&next) {
                reached.push(next);
                new.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<Offence> {
        cycles(&Modules::read(&Tree::of(files), "lib.rs"))
    }

    #[test]
    fn a_circle_is_one_offence_with_its_uses() {
        let root = ("lib.rs", "mod a; mod b; mod c; mod d;");
        let (a, b) = (("a.rs", "use crate::b::B;"), ("b.rs", "struct B; fn f() { super::c::g() }"));
        let (c, d) = (("c.rs", "use crate::a;\nfn g() { a::h() }"), ("d.rs", "use crate::b::B;"));
        let found = of(&[root, a, b, c, d]);
        let expected = "3 modules in a circle: a.rs b.rs c.rs
    a.rs:1: `crate::b::B` is of b.rs
    b.rs:1: `super::c::g` is of c.rs
    c.rs:2: `a::h` is of a.rs";
        assert_eq!(found, [expected]);
        assert!(of(&[root, a, b, ("c.rs", "fn g() {}"), d]).is_empty());
    }

    #[test]
    fn a_parent_either_uses_its_child_or_serves_it() {
        let child = ("a.rs", "use super::P; pub struct C;");
        assert_eq!(of(&[("lib.rs", "mod a; struct P; fn f(c: a::C) {}"), child]).len(), 1);
        assert!(of(&[("lib.rs", "mod a; struct P; pub use a::C;"), child]).is_empty());
        let own = ("a.rs", "pub struct C;");
        assert!(of(&[("lib.rs", "mod a; struct P; fn f(c: a::C) {}"), own]).is_empty());
    }

    #[test]
    fn two_circles_are_two_offences() {
        let pair = |other: &str| format!("use super::{other}::X; struct X;");
        let files = [pair("b"), pair("a"), pair("d"), pair("c")];
        let [a, b, c, d] = &files;
        let root = ("lib.rs", "mod a; mod b; mod c; mod d;");
        assert_eq!(of(&[root, ("a.rs", a), ("b.rs", b), ("c.rs", c), ("d.rs", d)]).len(), 2);
    }
}
