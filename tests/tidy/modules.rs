//! The modules of a crate, and the uses between them. A module is a file.
//!
//! A module uses another one if its code, without tests, names an item of the other: in a private
//! `use`, or in a path from `crate`, `self`, `super`, a child or an import. `mod child;` is not a
//! use. Neither is a `pub use` whose name its own module does not mention, since it only re-exports
//! the item. A re-exported item belongs to the module that defines it.
//!
//! A parent is a module like any other. A child may use items of its parent's file only if that
//! file does not use the child.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust::{self, Token, is_word};
use crate::tree::Tree;

/// A file of a crate.
#[derive(Default)]
pub(crate) struct Module {
    /// The path from the root of the workspace.
    pub(crate) file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names of all items at the top level of the file.
    items: BTreeSet<String>,
    imports: Vec<Import>,
    paths: Vec<Mention>,
    /// Names outside of paths, each with its first line.
    words: BTreeMap<String, usize>,
}

/// A path in the code, without generic arguments.
#[derive(Clone)]
struct Mention {
    path: Vec<String>,
    line: usize,
}

/// A name that a `use` imports, or `*` for all names of a module.
struct Import {
    name: String,
    mention: Mention,
    /// Whether it is a `pub use` of any visibility.
    is_public: bool,
}

/// One module's use of another one's item.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// The target of a path.
#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    /// An item of this module, or a part of an item.
    Item(usize),
}

/// The modules of one target: a library, a binary, a test, a bench or an example.
pub(crate) struct Modules(pub(crate) Vec<Module>);

impl Modules {
    /// The modules below the file `root`.
    pub(crate) fn read(tree: &Tree, root: &str) -> Self {
        let mut modules = Self(Vec::new());
        let folder = root.rfind('/').map_or(0, |slash| slash + 1);
        modules.add(tree, root, &root[..folder], None);
        modules
    }

    /// Reads a file and its children, which are in `folder`, a path with a slash at its end.
    fn add(&mut self, tree: &Tree, file: &str, folder: &str, parent: Option<usize>) -> usize {
        let code = tree.0.iter().find(|found| found.path == file).map(|found| found.code());
        let (module, children) = read(file, &code.unwrap_or_default());
        let at = self.0.len();
        self.0.push(Module { file: file.into(), parent, ..module });
        for child in children {
            let inside = format!("{folder}{child}/");
            let files = [format!("{folder}{child}.rs"), format!("{inside}mod.rs")];
            let exists = |path: &&String| tree.0.iter().any(|found| found.path == **path);
            if let Some(file) = files.iter().find(exists) {
                let index = self.add(tree, file, &inside, Some(at));
                self.0[at].children.insert(child, index);
            }
        }
        at
    }

    /// Returns all uses between modules.
    pub(crate) fn uses(&self) -> BTreeSet<Use> {
        let mut uses = BTreeSet::new();
        for (from, module) in self.0.iter().enumerate() {
            for Import { name, mention: Mention { path, line }, is_public } in &module.imports {
                let mentioned = module.words.get(name);
                if let Some(line) = if *is_public { mentioned } else { Some(line) } {
                    uses.extend(self.used(from, path, *line, name == ALL));
                }
            }
            for Mention { path, line } in &module.paths {
                uses.extend(self.used(from, path, *line, false));
            }
        }
        uses
    }

    /// Returns the use of another module by a path: of one item, or of all items.
    fn used(&self, from: usize, path: &[String], line: usize, is_all: bool) -> Option<Use> {
        match self.lead(from, path, 0)? {
            Target::Module(_) if !is_all => None,
            Target::Module(to) | Target::Item(to) => {
                (to != from).then(|| Use { from, to, line, path: path.join("::") })
            }
        }
    }

    /// Returns the target of `path` from a module, or `None` outside the crate. `depth` counts the
    /// imports and globs on the way, which ends cycles of them.
    fn lead(&self, from: usize, path: &[String], depth: usize) -> Option<Target> {
        const DEPTH_MAX: usize = 16;
        if depth > DEPTH_MAX {
            return None;
        }
        let mut at = from;
        for (index, name) in path.iter().enumerate() {
            let (is_first, is_last) = (index == 0, index + 1 == path.len());
            match name.as_str() {
                "crate" if is_first => at = 0,
                "self" => (),
                "super" => at = self.0[at].parent?,
                _ => match self.member(at, name, is_last, depth) {
                    Some(Target::Module(to)) => at = to,
                    Some(item) => return Some(item),
                    // A macro may define it.
                    None if !is_first && !self.is_foreign(at, name) => {
                        return Some(Target::Item(at));
                    }
                    None => return None,
                },
            }
        }
        Some(Target::Module(at))
    }

    /// Returns the member of a module with this name. At the end of a path an item takes precedence
    /// over a module.
    fn member(&self, at: usize, name: &str, is_last: bool, depth: usize) -> Option<Target> {
        let module = &self.0[at];
        let child = module.children.get(name).map(|index| Target::Module(*index));
        if child.is_some() && !is_last {
            return child;
        }
        if module.items.contains(name) {
            return Some(Target::Item(at));
        }
        let imports = module.imports.iter().filter(|import| import.name == name);
        let mut imported =
            imports.filter_map(|import| self.lead(at, &import.mention.path, depth + 1));
        imported.next().or(child).or_else(|| self.globbed(at, name, is_last, depth))
    }

    fn globbed(&self, at: usize, name: &str, is_last: bool, depth: usize) -> Option<Target> {
        let globs = self.0[at].imports.iter().filter(|import| import.name == ALL);
        let mut sources = globs.filter_map(|glob| {
            let Target::Module(source) = self.lead(at, &glob.mention.path, depth + 1)? else {
                return None;
            };
            (source != at).then_some(source)
        });
        sources.find_map(|source| self.member(source, name, is_last, depth + 1))
    }

    /// Returns whether a module re-exports this name from another crate.
    fn is_foreign(&self, at: usize, name: &str) -> bool {
        self.0[at].imports.iter().any(|import| import.name == name)
    }
}

/// Stands for all names of a module.
const ALL: &str = "*";

/// Words before the names of items.
const KINDS: &[&str] = &["fn", "struct", "enum", "union", "trait", "type", "const", "static"];

/// Parses a file into a module without its children, and returns the names of the children.
fn read(file: &str, code: &str) -> (Module, Vec<String>) {
    let tokens = rust::without_tests(&rust::tokens(code));
    let mut reader = Reader { tokens: &tokens, ..Reader::default() };
    while reader.at < tokens.len() {
        reader.step();
    }
    assert!(reader.depth == 0, "{file}: braces do not match");
    (reader.module, reader.children)
}

#[derive(Default)]
struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    depth: usize,
    /// The brace depths of inline modules.
    inner: Vec<usize>,
    module: Module,
    children: Vec<String>,
}

impl<'a> Reader<'a> {
    /// Returns the token that is `ahead` of this one; empty after the last.
    fn text(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    fn before(&self) -> &'a str {
        self.at.checked_sub(1).map_or("", |at| self.tokens[at].text)
    }

    fn step(&mut self) {
        match (self.text(0), self.text(1), self.text(2)) {
            ("{", ..) => self.depth += 1,
            ("}", ..) => {
                self.depth = self.depth.saturating_sub(1);
                if self.inner.last() == Some(&self.depth) {
                    self.inner.pop();
                }
            }
            ("mod", child, ";") => {
                self.children.push(child.into());
                self.at += 2;
            }
            ("mod", name, "{") => {
                self.define(name);
                self.inner.push(self.depth);
                self.depth += 1;
                self.at += 2;
            }
            ("use", next, _) if next != "<" => {
                let is_public = self.before() == "pub" || self.before() == ")";
                self.at += 1;
                self.imports(&[], is_public);
            }
            ("macro_rules", "!", name) => {
                self.define(name);
                self.at += 2;
            }
            ("const", "fn" | "unsafe" | "extern", _) => (),
            (kind, name, _) if KINDS.contains(&kind) && is_name(name) => {
                self.define(name);
                self.at += 1;
            }
            (name, ..) if is_name(name) => return self.path(),
            _ => (),
        }
        self.at += 1;
    }

    fn define(&mut self, name: &str) {
        if self.depth == 0 {
            self.module.items.insert(name.into());
        }
    }

    /// Reads a path or a single name.
    fn path(&mut self) {
        let is_member = matches!(self.before(), "." | "::");
        let line = self.tokens[self.at].line;
        let mut path = vec![self.text(0).to_owned()];
        while self.text(1) == "::" && is_name(self.text(2)) {
            path.push(self.text(2).to_owned());
            self.at += 2;
        }
        self.at += 1;
        // A field or an argument may have the name of a function.
        let is_label = self.text(0) == ":";
        if is_member || (is_label && path.len() == 1) {
            return;
        }
        if path.len() > 1 {
            let path = self.at_the_top(path);
            self.module.paths.push(Mention { path, line });
        } else {
            self.module.words.entry(path.remove(0)).or_insert(line);
        }
    }

    /// Reads the tree of a `use` to its end.
    fn imports(&mut self, prefix: &[String], is_public: bool) {
        let mut path = prefix.to_vec();
        while self.at < self.tokens.len() {
            match self.text(0) {
                "::" if path.is_empty() => path.push(String::new()),
                "::" => (),
                "{" => {
                    self.at += 1;
                    while !matches!(self.text(0), "}" | "") {
                        self.imports(&path, is_public);
                        self.at += usize::from(self.text(0) == ",");
                    }
                    self.at += 1;
                    return;
                }
                ALL => return self.import(path, ALL, is_public),
                name => {
                    path.push(name.into());
                    if self.text(1) != "::" {
                        return self.import(path, name, is_public);
                    }
                }
            }
            self.at += 1;
        }
    }

    /// Reads the end of one path of a `use`, with its `as` name if it has one.
    fn import(&mut self, mut path: Vec<String>, name: &str, is_public: bool) {
        let line = self.tokens[self.at].line;
        let mut name = name.to_owned();
        if name == "self" && path.len() > 1 {
            path.pop();
            name.clone_from(&path[path.len() - 1]);
        }
        self.at += 1;
        if self.text(0) == "as" {
            name = self.text(1).into();
            self.at += 2;
        }
        let mention = Mention { path: self.at_the_top(path), line };
        self.module.imports.push(Import { name, mention, is_public });
    }

    /// Returns the path as seen from the top level of the file.
    fn at_the_top(&self, mut path: Vec<String>) -> Vec<String> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        path.drain(..supers.min(self.inner.len()));
        if supers > 0 && supers <= self.inner.len() {
            path.insert(0, "self".into());
        }
        path
    }
}

/// Returns whether a token may be part of a path.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| is_word(c) && !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the uses in a library of these files, each as `from to path`.
    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let modules = Modules::read(&Tree::of(files), "lib.rs");
        let file = |at: usize| &modules.0[at].file;
        let texts = modules.uses().into_iter();
        texts.map(|used| format!("{} {} {}", file(used.from), file(used.to), used.path)).collect()
    }

    #[test]
    fn paths_lead_to_files() {
        let a = ("a/mod.rs", "mod c; pub struct A; pub fn f() {}");
        let c = ("a/c.rs", "pub fn g() { super::f(); super::super::b::h(); self::c(); }");
        let b = ("b.rs", "use crate::a::{self, c::{g as k, x}, A as B}; fn h() { a::f() }");
        let found = uses(&[("lib.rs", "mod a; mod b;"), a, c, b]);
        let expected = [
            "a/c.rs a/mod.rs super::f",
            "a/c.rs b.rs super::super::b::h",
            "b.rs a/mod.rs a::f",
            "b.rs a/mod.rs crate::a::A",
            "b.rs a/c.rs crate::a::c::g",
            "b.rs a/c.rs crate::a::c::x",
        ];
        assert_eq!(BTreeSet::from(expected.map(str::to_owned)), found.into_iter().collect());
    }

    #[test]
    fn an_item_that_is_passed_on_is_its_definers() {
        let root = ("lib.rs", "mod a; mod b; pub use a::X;");
        let parent = ("a/mod.rs", "mod c; pub(crate) use c::{X, Y as Z}; pub use c::*;");
        let child = ("a/c.rs", "pub struct X; pub struct Y; pub struct G;");
        let user = |code: &str| uses(&[root, parent, child, ("b.rs", code)]);
        for path in ["crate::a::X", "super::X", "crate::a::Z", "crate::a::G"] {
            assert_eq!(user(&format!("use {path};")), [format!("b.rs a/c.rs {path}")]);
            assert_eq!(user(&format!("fn f(x: {path}) {{}}")), [format!("b.rs a/c.rs {path}")]);
        }
        assert_eq!(user("use crate::a::MadeByAMacro;").len(), 1);
    }

    #[test]
    fn passing_on_is_a_use_only_where_the_name_is_mentioned() {
        let child = ("a.rs", "pub struct X; pub fn f() {}");
        let root = |code| uses(&[("lib.rs", code), child]);
        assert_eq!(root("mod a; pub use a::{X, f}; fn g(y: Y) { y.f(); Y { f: 1 } }").len(), 0);
        assert_eq!(root("mod a; pub use a::X; fn g(x: X) {}").len(), 1);
        assert_eq!(root("mod a; pub use a::X; fn g() { X::new() }").len(), 1);
        assert_eq!(root("mod a; use a::X;").len(), 1);
        assert_eq!(root("mod a; fn g() { a::f() }").len(), 1);
        assert_eq!(root("mod a;").len(), 0);
    }

    #[test]
    fn tests_and_other_crates_are_no_use() {
        let code = "#[cfg(test)] use super::X;
            #[cfg(test)] mod tests { use super::super::X; fn f() { crate::X::new() } }
            use std::mem; use ::other::X; fn f() { mem::take(); core::x(); }";
        assert_eq!(
            uses(&[("lib.rs", "mod a; pub use half::f16; struct X;"), ("a.rs", code)]).len(),
            0
        );
        let root = ("lib.rs", "mod a; pub use half::f16;");
        assert_eq!(uses(&[root, ("a.rs", "use crate::f16; // use crate::X;")]).len(), 0);
    }

    #[test]
    fn modules_within_a_file_are_the_file() {
        let code = "mod inner { use super::Y; use super::super::X; }
            fn f(y: inner::Z) { self::Y }";
        assert_eq!(
            uses(&[("lib.rs", "mod a; struct X;"), ("a.rs", code)]),
            ["a.rs lib.rs super::X"]
        );
    }

    #[test]
    fn circles_of_imports_end() {
        let files =
            [("lib.rs", "mod a; mod b;"), ("a.rs", "pub use super::b::*; use super::b::X;")];
        let b = ("b.rs", "pub use super::a::*; pub use super::a::X;");
        assert!(uses(&[files[0], files[1], b]).len() < 4);
    }
}
