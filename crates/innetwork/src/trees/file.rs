//! The aggregators of a site: a list of addresses, or a tree file.
//!
//! ```text
//! ringfold-aggregators 1
//! # address         of its parent           children
//! 10.0.0.1:7411
//! 10.0.1.1:7411     parent 10.0.0.1:7411    hosts node[01-16]
//! 10.0.2.1:7411     parent 10.0.0.1:7411    hosts node[17-32]
//! ```
//!
//! After the first line, each line names one aggregator by the address of its control port. `rail`
//! and a number belong to an aggregator without a parent, and count for the tree below it. `hosts`
//! and a list, as Slurm writes it, belong to an aggregator without aggregators below it. `#` begins
//! a comment.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use ringfold_types::expand_hosts;
use ringfold_types::limits::{
    AGGREGATOR_FILE_BYTES_MAX, AGGREGATOR_HOSTS_MAX, AGGREGATOR_LEVELS_MAX, AGGREGATORS_MAX,
    RANKS_MAX,
};

/// The first line of a tree file, without its version.
const TITLE: &str = "ringfold-aggregators";
/// The version that ringfold writes, and the only one that it reads.
const VERSION: &str = "1";
/// Bytes of an address.
const ADDRESS_BYTES_MAX: usize = 262;

/// One aggregator of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aggregator {
    /// The address of its control port, as `host:port`.
    pub at: String,
    /// Its parent, as an index among the aggregators.
    pub parent: Option<usize>,
    /// The rail of its tree, if it is a root.
    pub rail: Option<u16>,
    /// The names of the hosts whose members are its children. Empty if the file names none.
    pub hosts: Vec<String>,
}

/// The aggregators of a site. Those without a parent are the roots of trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trees {
    /// In the order of the file or list.
    pub(super) nodes: Vec<Aggregator>,
    /// Whether only the aggregators themselves know their parents.
    pub(super) is_list: bool,
}

/// The reason why a text names no aggregators.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreesError {
    /// The file cannot be read.
    #[error("{file} is neither a list of host:port nor a tree file that can be read")]
    Unreadable {
        /// The file.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line of the file is wrong.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// The list of addresses is wrong.
    #[error("{0}")]
    List(String),
}

impl Trees {
    /// Reads a list `host:port[,host:port...]`, or else the path of a
    /// tree file.
    ///
    /// # Errors
    /// The list or the file is wrong, or the file cannot be read.
    pub fn of_setting(value: &str) -> Result<Self, TreesError> {
        if value.split(',').all(|item| is_address(item.trim())) {
            return Self::of_list(value);
        }
        Self::read(Path::new(value))
    }

    /// Reads a list of addresses. The aggregators themselves know their parents, and
    /// `with_parents` asks for them.
    ///
    /// # Errors
    /// An item is no address, or occurs twice.
    pub fn of_list(list: &str) -> Result<Self, TreesError> {
        let mut nodes: Vec<Aggregator> = Vec::new();
        for at in list.split(',').map(str::trim) {
            if !is_address(at) {
                return Err(TreesError::List(format!("{at:?} is not host:port")));
            }
            if nodes.iter().any(|node| node.at == at) {
                return Err(TreesError::List(format!("{at} occurs twice")));
            }
            if nodes.len() == AGGREGATORS_MAX {
                let most = format!("more than {AGGREGATORS_MAX} aggregators, the limit");
                return Err(TreesError::List(most));
            }
            nodes.push(Aggregator { at: at.into(), ..Aggregator::default() });
        }
        Ok(Self { nodes, is_list: true })
    }

    /// Reads a tree file.
    ///
    /// # Errors
    /// The file cannot be read, is too long, or is wrong.
    pub fn read(path: &Path) -> Result<Self, TreesError> {
        let file = path.display().to_string();
        let unreadable = |source| TreesError::Unreadable { file: file.clone(), source };
        let mut text = Vec::new();
        let most = AGGREGATOR_FILE_BYTES_MAX as u64 + 1;
        let opened = std::fs::File::open(path).map_err(unreadable)?;
        opened.take(most).read_to_end(&mut text).map_err(unreadable)?;
        let text = String::from_utf8_lossy(&text);
        Self::parse(&file, &text)
    }

    /// Reads the text of a tree file. `file` is the name for errors.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, TreesError> {
        let failed = |(line, reason)| TreesError::Line { file: file.into(), line, reason };
        if text.len() > AGGREGATOR_FILE_BYTES_MAX {
            let reason = format!("the file has more than {AGGREGATOR_FILE_BYTES_MAX} bytes");
            return Err(failed((1, reason)));
        }
        let lines = read_lines(text).map_err(failed)?;
        tree_of(lines).map_err(failed)
    }

    /// The text of a tree file. `parse` turns it into equal trees.
    #[must_use]
    pub fn write(&self) -> String {
        let mut text = format!("{TITLE} {VERSION}\n");
        for node in &self.nodes {
            text.push_str(&node.at);
            if let Some(parent) = node.parent {
                let _ = write!(text, " parent {}", self.nodes[parent].at);
            }
            if let Some(rail) = node.rail {
                let _ = write!(text, " rail {rail}");
            }
            if !node.hosts.is_empty() {
                let _ = write!(text, " hosts {}", node.hosts.join(","));
            }
            text.push('\n');
        }
        text
    }

    /// The trees of these aggregators, whose `parent` is an index among them.
    ///
    /// # Errors
    /// They are no trees, or a name does not fit a tree file.
    pub fn new(nodes: Vec<Aggregator>) -> Result<Self, TreesError> {
        let sound = |node: &Aggregator| node.parent.is_none_or(|parent| parent < nodes.len());
        if !nodes.iter().all(sound) {
            return Err(TreesError::List("a parent that is no aggregator".into()));
        }
        let text = Self { nodes: nodes.clone(), is_list: false }.write();
        let reread = Self::parse("aggregators", &text)?;
        let changed = || TreesError::List("a host's name does not fit a tree file".into());
        if reread.nodes == nodes { Ok(reread) } else { Err(changed()) }
    }

    /// The aggregators.
    #[must_use]
    pub fn aggregators(&self) -> &[Aggregator] {
        &self.nodes
    }

    /// The aggregator with this address.
    #[must_use]
    pub fn find(&self, at: &str) -> Option<&Aggregator> {
        self.nodes.iter().find(|node| node.at == at)
    }

    /// The address of an aggregator's parent.
    #[must_use]
    pub fn parent_of(&self, node: &Aggregator) -> Option<&str> {
        node.parent.map(|parent| self.nodes[parent].at.as_str())
    }
}

/// Whether a text is `host:port`.
pub(super) fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_word = |c: char| c.is_ascii_alphanumeric() || "._-:[]%".contains(c);
    text.len() <= ADDRESS_BYTES_MAX
        && !host.is_empty()
        && host.chars().all(is_word)
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// One line: its number, the aggregator, and the address of its parent.
type Line<'t> = (usize, Aggregator, Option<&'t str>);

fn read_lines(text: &str) -> Result<Vec<Line<'_>>, (usize, String)> {
    let lines = (1..).zip(text.lines());
    let lines = lines.map(|(number, line)| (number, line.split('#').next().unwrap_or_default()));
    let mut lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let (number, title) = lines.next().unwrap_or((1, ""));
    match title.split_whitespace().collect::<Vec<_>>()[..] {
        [TITLE, VERSION] => {}
        [TITLE, other] => {
            let reason = format!("version {other:.20} is not supported, only version {VERSION}");
            return Err((number, reason));
        }
        _ => return Err((number, format!("the file does not begin with `{TITLE} {VERSION}`"))),
    }
    let (mut read, mut hosts) = (Vec::new(), 0);
    for (number, line) in lines {
        if read.len() == AGGREGATORS_MAX {
            return Err((number, format!("more than {AGGREGATORS_MAX} aggregators, the limit")));
        }
        let (node, parent) = read_line(line).map_err(|reason| (number, reason))?;
        hosts += node.hosts.len();
        if hosts > AGGREGATOR_HOSTS_MAX {
            return Err((number, format!("more than {AGGREGATOR_HOSTS_MAX} hosts, the limit")));
        }
        read.push((number, node, parent));
    }
    Ok(read)
}

fn read_line(line: &str) -> Result<(Aggregator, Option<&str>), String> {
    let mut words = line.split_whitespace();
    let address = |word: &str| match is_address(word) {
        true => Ok(()),
        false => Err(format!("{word:.80?} is not host:port")),
    };
    let at = words.next().unwrap_or_default();
    address(at)?;
    let mut node = Aggregator { at: at.into(), ..Aggregator::default() };
    let mut parent = None;
    while let Some(key) = words.next() {
        let value = words.next().ok_or_else(|| format!("nothing follows {key:.80?}"))?;
        let is_again = match key {
            "parent" => parent.replace(value).is_some(),
            "rail" => {
                let rail = value.parse().map_err(|_| format!("{value:.80?} is no rail"))?;
                node.rail.replace(rail).is_some()
            }
            "hosts" => {
                let hosts =
                    expand_hosts(value, RANKS_MAX).map_err(|e| format!("{value:.80?}: {e}"))?;
                !std::mem::replace(&mut node.hosts, hosts).is_empty()
            }
            _ => return Err(format!("{key:.80?} is neither parent, rail nor hosts")),
        };
        if is_again {
            return Err(format!("{key} occurs twice"));
        }
    }
    parent.map_or(Ok(()), address)?;
    if parent.is_some() && node.rail.is_some() {
        return Err("a rail belongs to the root of a tree, which has no parent".into());
    }
    Ok((node, parent))
}

/// Joins the lines to trees, and checks them.
fn tree_of(lines: Vec<Line<'_>>) -> Result<Trees, (usize, String)> {
    if lines.is_empty() {
        return Err((1, "the file names no aggregator".into()));
    }
    let mut places = HashMap::new();
    for (index, (number, node, _)) in lines.iter().enumerate() {
        if places.insert(node.at.clone(), index).is_some() {
            return Err((*number, format!("{} occurs twice", node.at)));
        }
    }
    let numbers: Vec<usize> = lines.iter().map(|(number, ..)| *number).collect();
    let mut nodes = Vec::with_capacity(lines.len());
    for (number, mut node, parent) in lines {
        let unknown = |at| (number, format!("the file has no aggregator {at}"));
        let index = parent.map(|at| places.get(at).copied().ok_or_else(|| unknown(at)));
        node.parent = index.transpose()?;
        nodes.push(node);
    }
    let trees = Trees { nodes, is_list: false };
    let at = |(index, reason): (usize, String)| (numbers[index], reason);
    trees.check_levels().map_err(at)?;
    trees.check_hosts().map_err(at)?;
    trees.check_rails().map_err(at)?;
    Ok(trees)
}

impl Trees {
    /// The aggregators from a node up to its root. Longer than the limit if there is no root.
    pub(super) fn path(&self, node: usize) -> Vec<usize> {
        let up = std::iter::successors(Some(node), |node| self.nodes[*node].parent);
        up.take(AGGREGATOR_LEVELS_MAX + 1).collect()
    }

    /// For each aggregator, whether it is another one's parent.
    pub(super) fn has_children(&self) -> Vec<bool> {
        let mut has = vec![false; self.nodes.len()];
        self.nodes.iter().filter_map(|node| node.parent).for_each(|parent| has[parent] = true);
        has
    }

    /// Appends an aggregator about which only its address is known.
    pub(super) fn append(&mut self, at: String) -> usize {
        self.nodes.push(Aggregator { at, ..Aggregator::default() });
        self.nodes.len() - 1
    }

    /// Keeps the aggregators for which `is_kept` holds. It must hold for the parents of those.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Self, usize) -> bool) {
        let kept: Vec<bool> = (0..self.nodes.len()).map(|node| is_kept(self, node)).collect();
        let before = |node: usize| kept[..node].iter().filter(|kept| **kept).count();
        let mut nodes = std::mem::take(&mut self.nodes);
        for node in &mut nodes {
            node.parent = node.parent.map(before);
        }
        self.nodes =
            nodes.into_iter().zip(&kept).filter_map(|(it, kept)| kept.then_some(it)).collect();
    }

    fn check_levels(&self) -> Result<(), (usize, String)> {
        let too_deep = |node: &usize| self.path(*node).len() > AGGREGATOR_LEVELS_MAX;
        match (0..self.nodes.len()).find(too_deep) {
            Some(node) => {
                let most = AGGREGATOR_LEVELS_MAX;
                Err((node, format!("a circle of parents, or more than {most} levels, the limit")))
            }
            None => Ok(()),
        }
    }

    fn check_hosts(&self) -> Result<(), (usize, String)> {
        let has_children = self.has_children();
        let mut seen = HashSet::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let wrong = |text: String| Err((index, text));
            if has_children[index] && !node.hosts.is_empty() {
                return wrong("hosts belong to an aggregator that is no parent".into());
            }
            let root = self.path(index).last().copied();
            if let Some(host) = node.hosts.iter().find(|host| !seen.insert((root, *host))) {
                return wrong(format!("host {host:.80} occurs twice in one tree"));
            }
        }
        // Hosts are named by all lowest aggregators of a tree, or by none.
        let mut first = HashMap::new();
        for (index, node) in
            self.nodes.iter().enumerate().filter(|(index, _)| !has_children[*index])
        {
            let root = self.path(index).last().copied();
            if *first.entry(root).or_insert(node.hosts.is_empty()) != node.hosts.is_empty() {
                return Err((index, "only some lowest aggregators of the tree have hosts".into()));
            }
        }
        Ok(())
    }

    fn check_rails(&self) -> Result<(), (usize, String)> {
        let roots = || self.nodes.iter().enumerate().filter(|(_, node)| node.parent.is_none());
        let rails: HashSet<u16> = roots().filter_map(|(_, node)| node.rail).collect();
        for (index, root) in roots().filter(|_| !rails.is_empty()) {
            let Some(rail) = root.rail else {
                return Err((index, "only some trees have a rail".into()));
            };
            if usize::from(rail) >= rails.len() {
                let text = format!("rail {rail} of {}: rails are numbered from 0", rails.len());
                return Err((index, text));
            }
        }
        Ok(())
    }
}
