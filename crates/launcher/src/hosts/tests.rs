//! Lists and files of hosts, right and wrong.

use proptest::prelude::{any, prop_assert, proptest};

use super::{Host, HostsError, Place, parse_file, parse_list};

fn host(name: &str, slots: usize) -> Host {
    Host { name: name.to_owned(), slots }
}

#[test]
fn lists() {
    assert_eq!(parse_list("a:2,b:3"), Ok(vec![host("a", 2), host("b", 3)]));
    assert_eq!(parse_list("a, b:1,a"), Ok(vec![host("a", 2), host("b", 1)]));
    assert_eq!(parse_list("me@a.b-c:4"), Ok(vec![host("me@a.b-c", 4)]));
    assert_eq!(parse_list("fe80::1%eth0"), Ok(vec![host("fe80::1%eth0", 1)]));
    assert_eq!(parse_list("[::1]:3,[::2]"), Ok(vec![host("::1", 3), host("::2", 1)]));
}

#[test]
fn files() {
    let text = "# nodes\nn1 slots=2 # fast\n\n n2:3\r\nn3\nn1\n";
    assert_eq!(parse_file(text), Ok(vec![host("n1", 3), host("n2", 3), host("n3", 1)]));
}

#[test]
fn mistakes_are_named() {
    let place = Place::Line(2);
    assert_eq!(parse_file("# only\n"), Err(HostsError::Empty));
    assert_eq!(parse_file("a\nb cores=2"), Err(HostsError::Word { place, word: "cores=2".into() }));
    assert_eq!(parse_file("a\nb slots=0"), Err(HostsError::Slots { place, slots: "0".into() }));
    let place = Place::Item(1);
    assert_eq!(parse_list("a:x"), Err(HostsError::Slots { place, slots: "x".into() }));
    assert_eq!(
        parse_list("-oProxyCommand=x"),
        Err(HostsError::Name { place, name: "-oProxyCommand=x".into() })
    );
    assert_eq!(parse_list(""), Err(HostsError::Name { place, name: String::new() }));
    assert_eq!(parse_list("a:65536,b"), Err(HostsError::TooMany));
}

#[test]
fn what_an_agent_could_take_for_an_option_is_refused() {
    for name in [
        "-Fcfg",
        "[-Fcfg]",
        "[-Fcfg]:2",
        "-oProxyCommand=x",
        "-l@node",
        "[-l@node]",
        "me@-Fcfg",
        "me@[-Fcfg]",
        "@node",
        "me@",
        "a@-b@node",
        "[node]",
        "[me@node]",
        "[]",
        "[::1",
        "::1]",
        "fe80::1%-x",
        "fe80::1%",
        "a%b",
        ":",
        "a:b:c",
        ".",
        "a/b",
        "$(reboot)",
        "node;x",
        "n\u{f6}de",
        "\u{1b}[2J",
    ] {
        for hosts in [parse_list(name), parse_file(name)] {
            let error = hosts.expect_err(name).to_string();
            assert!(error.contains("is not a host: write NAME"), "{error}");
            let place = ["host 1 of the list: '", "line 1: '"];
            assert!(place.iter().any(|place| error.starts_with(place)), "{error}");
            assert!(!error.contains('\u{1b}'), "{error}");
        }
    }
    let error = parse_file("good\n\n[-Fcfg] slots=2\n").unwrap_err().to_string();
    assert!(error.starts_with("line 3: '[-Fcfg]' is not a host"), "{error}");
    assert_eq!(parse_list("me@[::1]:3,a@b@c"), Ok(vec![host("me@::1", 3), host("a@b@c", 1)]));
}

proptest! {
    #[test]
    fn any_text_is_refused_or_within_limits(text in any::<String>()) {
        for hosts in [parse_file(&text), parse_list(&text)].into_iter().flatten() {
            prop_assert!(!hosts.is_empty());
            prop_assert!(hosts.iter().all(|h| h.slots >= 1 && !h.name.starts_with('-')));
        }
    }

    #[test]
    fn hosts_are_words_and_addresses(text in "[-a:@%\\[\\].,=/ #1]{0,12}") {
        for host in [parse_file(&text), parse_list(&text)].into_iter().flatten().flatten() {
            prop_assert!(host.name.split('@').all(|part| !part.starts_with('-')));
            prop_assert!(!host.name.contains(['[', ']', ' ', '/', '=', '#']));
        }
    }

    #[test]
    fn what_is_written_is_read(
        names in proptest::collection::btree_map("[a-z][a-z0-9.-]{0,9}", 1..9_usize, 1..9),
    ) {
        let hosts = names.iter().map(|(n, s)| host(n, *s)).collect::<Vec<_>>();
        let list = names.iter().map(|(n, s)| format!("{n}:{s}")).collect::<Vec<_>>();
        let file = names.iter().map(|(n, s)| format!("{n}  slots={s} # x\n"));
        prop_assert!(parse_list(&list.join(",")) == Ok(hosts.clone()));
        prop_assert!(parse_file(&file.collect::<String>()) == Ok(hosts));
    }
}
