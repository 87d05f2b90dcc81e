//! `ringfold simulate` from the command line, and its page.

use ringfold_harness::Folder;

use crate::{printed, refused, tables_of};

fn simulate(arguments: &str) -> Vec<&str> {
    ["simulate"].into_iter().chain(arguments.split_whitespace()).collect()
}

#[test]
fn the_page_has_what_its_commands_print() {
    assert_eq!(tables_of("docs/simulator.md", "simulate"), 4);
}

/// A failed cable changes the time, and a slow one is named.
#[test]
fn cables_that_fail_or_are_slow_are_seen() {
    let usual = "reduce_scatter --fabric fat:16x1:100G:radix=4 -b 16M -a halving --json";
    let time = |more: &str| {
        let words = format!("{usual} {more}");
        let answer: serde_json::Value = serde_json::from_str(&printed(&simulate(&words))).unwrap();
        let cell = &answer["fabrics"][0]["cells"][0];
        let link = cell["links"][0]["link"].as_str().unwrap_or_default().to_owned();
        (cell["seconds"].as_f64().unwrap(), link)
    };
    let (whole, _) = time("");
    assert!(time("--fail leaf0.0").0 > whole);
    let (slow, link) = time("--slow leaf0.0=0.1");
    assert!(slow > whole && link.contains("leaf0.0"), "{link}");
    assert_eq!(time("--routing ecmp --seed 3"), time("--routing ecmp --seed 3"));
    let (once, twice) = ("--traffic host0.0:host15.0", "--traffic host1.0:host15.0");
    let one = time(once);
    let two = time(&format!("{once} {twice}"));
    assert!(whole < one.0 && one.0 < two.0 && two.1 == "leaf7 to host15.0", "{one:?}, {two:?}");
    let all = |seed: u32| printed(&simulate(&format!("{usual} --traffic 30 --seed {seed}")));
    assert_eq!(all(3), all(3));
    assert_ne!(all(3), all(4));
}

/// The texts and classes of a picture's elements of this name.
fn elements(picture: &str, name: &str) -> Vec<(String, String)> {
    let document = roxmltree::Document::parse(picture).unwrap();
    let all = document.descendants().filter(|it| it.has_tag_name(name));
    let of = |it: roxmltree::Node<'_, '_>| {
        let text = it.descendants().find_map(|it| it.text());
        (text.unwrap_or_default().to_owned(), it.attribute("class").unwrap_or_default().to_owned())
    };
    all.map(of).collect()
}

/// Plots by size and by hosts have a point for each call, and a ring around each choice. A lone
/// call's picture has all links.
#[test]
fn pictures_show_what_tables_say() {
    let folder = Folder::new();
    let picture = |words: &str| {
        let path = folder.at("plot.svg");
        let table = printed(&simulate(&format!("{words} --svg {path}")));
        let picture = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        (table, picture)
    };
    let several = "--fabric=switch:4x1:100G --fabric=switch:8x1:100G";
    let (table, plots) = picture(&format!("allgather {several} -b 64K -e 1M"));
    let points = elements(&plots, "circle");
    let count = |class: &str| points.iter().filter(|(_, it)| it == class).count();
    // By size on each fabric, and by hosts for each size. The legend has each algorithm once.
    let algorithms = elements(&plots, "polyline").len() / 6;
    let calls = table.lines().filter(|line| line.ends_with('%')).count();
    assert_eq!(calls, 2 * 3 * algorithms);
    assert_eq!(count(""), 2 * calls + algorithms);
    assert_eq!(count("choice"), 2 * 6 + 1);
    let (_, heat) = picture("allreduce --fabric fat:16x1:100G:radix=8 -b 1M -a ring");
    let links = elements(&heat, "rect");
    let named = links.iter().filter(|(words, _)| words.contains(" to "));
    assert_eq!(named.count(), 2 * 32);
    let idle = |(words, class): &(String, String)| words.contains(" to ") && class == "idle";
    // A ring leaves each of four leaf switches by one of its four cables.
    assert_eq!(links.iter().filter(|it| idle(it)).count(), 2 * (16 - 4));
}

#[test]
fn pictures_without_a_place_are_refused_at_once() {
    let folder = Folder::new();
    let kept = folder.at("kept.svg");
    std::fs::write(&kept, "kept").unwrap();
    let long = "alltoall --fabric fat:1024x1:100G -b 1G -a linear";
    for (path, reason) in [
        (kept.clone(), "it exists; remove it"),
        (folder.at("no/plot.svg"), "cannot write it; name a file in a folder with room"),
        (folder.at("."), "it exists"),
        (String::new(), "it is no file"),
    ] {
        let words = simulate(long).into_iter().chain(["--svg", &path]).collect::<Vec<_>>();
        let error = refused(&words);
        assert!(error.contains("--svg") && error.contains(reason), "{path}: {error}");
    }
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
}

#[test]
fn wrong_arguments_are_refused_with_the_reason() {
    for (arguments, reason) in [
        ("allreduce", "--fabric <SHAPE>"),
        ("allreduce --fabric mesh:8x1:1G", "no kind of fabric"),
        ("allreduce --fabric fat:8x1:1G -n 9", "9 ranks: the fabric has 8 hosts"),
        ("allreduce --fabric fat:8x1:1G --per-host 0", "--per-host: 1 to"),
        ("allreduce --fabric fat:8x1:1G -b 0", "--bytes 0"),
        ("allreduce --fabric fat:8x1:1G -b 16 -e 8", "--bytes 16 to 8"),
        ("allreduce --fabric fat:8x1:1G -b 1 -e 99999999G -f 2", "too many to count"),
        ("allreduce --fabric fat:8x1:1G -a rings", "allreduce has ring"),
        ("allreduce --fabric fat:8x1:1G -a window", "only links"),
        ("allreduce --fabric fat:8x1:1G -a in_network", "give --aggregators too"),
        ("allreduce --fabric fat:1x1:1G --aggregators", "one host needs no aggregators"),
        ("allreduce --fabric rail-only:8x1:1G --aggregators --fail host0.0", "no switch joins"),
        ("allreduce --fabric fat:8x1:1G --routing best", "--routing best"),
        ("allreduce --fabric fat:8x1:1G --fail leaf9.0", "no cable leaf9.0"),
        ("allreduce --fabric fat:8x1:1G --fail host0.0", "no way through the fabric"),
        ("allreduce --fabric fat:8x1:1G --slow leaf0.0=2", "CABLE=PART"),
        ("alltoall --fabric fat:48895x1:1G -a linear", "too many to simulate"),
        ("broadcast --fabric fat:8x1:1G --slow host0.0=0.000000008 -b 64M -a linear", "53 days"),
        ("allreduce --fabric fat:8x1:1G --traffic host0.0:host9.0", "no cable host9.0"),
        ("allreduce --fabric fat:8x1:1G --traffic host0.0:host0.0", "no way joins"),
        ("allreduce --fabric fat:8x1:1G --traffic 5=2", "--traffic 5=2: give PORT:PORT"),
        ("allreduce --fabric fat:8x1:1G --traffic many", "--traffic many: give PORT:PORT"),
        ("allreduce --fabric fat:8x1:1G --traffic 99999999999", "more than 65536 streams"),
        ("allreduce --from no-such-file", "no-such-file"),
        ("broadcast --fabric fat:8x1:1G --root 8", "only 8 ranks"),
    ] {
        let error = refused(&simulate(arguments));
        assert!(error.contains(reason), "{arguments}: {error}");
    }
}
