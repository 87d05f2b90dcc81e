//! Tree files, and the places of members in trees.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const FILE: &str = "ringfold-aggregators 1
# the root
10.0.0.1:7411
10.0.1.1:7411 parent 10.0.0.1:7411 hosts node[01-03]
10.0.2.1:7411 parent 10.0.0.1:7411 hosts node04,node05 # two
";

fn parse(text: &str) -> Result<Trees, TreesError> {
    Trees::parse("file", text)
}

/// The shape of the only tree for these hosts.
fn shape(trees: &Trees, hosts: &[&str]) -> String {
    let placed = trees.place(hosts);
    assert_eq!((placed.trees.len(), &placed.left_out[..]), (1, &[][..]));
    let list = |children: Vec<String>| format!("[{}]", children.join(" "));
    placed.trees[0].fold(&|member| member.to_string(), &list)
}

#[test]
fn a_tree_file_travels() {
    let trees = parse(FILE).unwrap();
    assert_eq!(parse(&trees.write()).unwrap(), trees);
    assert_eq!(Trees::new(trees.aggregators().to_vec()).unwrap(), trees);
    let leaf = trees.find("10.0.2.1:7411").unwrap();
    assert_eq!(trees.parent_of(leaf), Some("10.0.0.1:7411"));
    assert_eq!(leaf.hosts, ["node04", "node05"]);
}

#[test]
fn a_wrong_line_is_named() {
    let text = |line: &str| format!("ringfold-aggregators 1\na:1\nb:1 parent a:1\n{line}\n");
    for (line, part) in [
        ("c", "not host:port"),
        ("c:0", "not host:port"),
        ("a:1", "occurs twice"),
        ("c:1 parent d:1", "no aggregator d:1"),
        ("c:1 parent", "nothing follows"),
        ("c:1 rail x", "no rail"),
        ("c:1 rail 1 parent a:1", "belongs to the root"),
        ("c:1 hosts n[1", "brackets"),
        ("c:1 hosts n[1-9999999]", "hosts"),
        ("c:1 color red", "neither"),
        ("c:1 parent c:1", "circle"),
        ("c:1 parent a:1 hosts x,x", "occurs twice"),
        ("c:1 parent a:1 hosts x", "only some lowest"),
        ("c:1 rail 0", "only some trees"),
    ] {
        let error = parse(&text(line)).unwrap_err().to_string();
        assert!(error.starts_with("file:") && error.contains(part), "{line}: {error}");
    }
    assert!(parse("").unwrap_err().to_string().contains("does not begin"));
    assert!(parse("ringfold-aggregators 2").unwrap_err().to_string().contains("version 2"));
    let long = "#".repeat(ringfold_types::limits::AGGREGATOR_FILE_BYTES_MAX + 1);
    assert!(parse(&long).unwrap_err().to_string().contains("bytes"));
}

#[test]
fn members_stay_in_order_below_the_aggregators_of_their_hosts() {
    let trees = parse(FILE).unwrap();
    let at = |hosts: &[&str]| shape(&trees, hosts);
    assert_eq!(at(&["node01", "node02", "node04.site"]), "[[0 1] [2]]");
    assert_eq!(at(&["node01", "node04", "node02"]), "[[0] [1] [2]]");
    // The root has nothing to combine.
    assert_eq!(at(&["node04", "node05"]), "[0 1]");
    let placed = trees.place(&["node01", "other"]);
    assert!(placed.trees.is_empty() && placed.left_out[0].contains("other"));
}

#[test]
fn more_members_than_children_have_levels() {
    let alone = Trees::of_list("a:1").unwrap();
    for members in [1, 2, 64, 65, 130, 4096] {
        let placed = alone.place(&vec!["host"; members]);
        let tree = &placed.trees[0];
        let count = |node: Vec<usize>| node.into_iter().sum::<usize>();
        assert_eq!(tree.fold(&|_| 1, &count), members);
        assert_eq!(tree.groups.len() > 1, members > 64);
        for group in &tree.groups {
            assert!((1..=64).contains(&group.members.len()));
            let Some((parent, child)) = group.parent else { continue };
            let below: u16 = group.members.iter().sum();
            assert_eq!(tree.groups[parent].members[usize::from(child)], below);
        }
    }
    assert!(alone.place(&vec!["host"; 4097]).trees.is_empty());
}

#[test]
fn trees_alternate_between_rails() {
    let text = "ringfold-aggregators 1\na:1 rail 0\nb:1 rail 0\nc:1 rail 1\nd:1 rail 1\n";
    let names = |text: &str| {
        let placed = parse(text).unwrap().place(&["x", "y"]);
        let names: Vec<_> = placed.trees.iter().map(|tree| tree.name.clone()).collect();
        (names.join(" "), placed.left_out.len())
    };
    assert_eq!(names(text), ("a:1 c:1 b:1 d:1".into(), 0));
    assert_eq!(names(&text.replace("a:1 rail 0\n", "")), ("b:1 c:1".into(), 1));
    let striped = Trees::of_setting("a:1, b:1").unwrap().place(&["x", "y"]);
    assert_eq!(striped.trees.len(), 2);
    assert!(Trees::of_setting("a:1,a:1").is_err());
    assert!(Trees::of_setting("/no/such/file").is_err());
}

proptest! {
    #[test]
    fn any_bytes_into_every_decoder(bytes in vec(any::<u8>(), 0..300)) {
        drop(postcard::from_bytes::<ToAggregator>(&bytes));
        drop(postcard::from_bytes::<FromAggregator>(&bytes));
        drop(decode(&bytes));
    }
}
