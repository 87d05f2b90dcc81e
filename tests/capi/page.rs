//! The programs and commands of `docs/c.md`, run as they stand there in a folder with the files
//! that the page tells to write.

use std::fs;
use std::process::Command;

use ringfold_harness::{needed, program};

use crate::installed::{Installed, SOURCES};
use crate::{DEADLINE, run};

/// Blocks of the page: their language and their text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let odd = page.split("\n```").skip(1).step_by(2);
    odd.map(|block| block.split_once('\n').unwrap()).collect()
}

/// The name of the file that holds a program: the last one in backticks before it.
fn file_of<'a>(page: &'a str, text: &str) -> &'a str {
    let before = &page[..page.find(text).unwrap()];
    before.rsplit('`').find(|word| word.ends_with(".c")).unwrap()
}

#[test]
fn the_page_works_as_it_stands() {
    let Some(installed) = Installed::get() else { return };
    if !needed::are_there("pkg-config", &["pkg-config"]) {
        return;
    }
    let page = fs::read_to_string(format!("{SOURCES}/../../docs/c.md")).unwrap();
    let home = installed.prefix().join("home");
    // The installation of the page would build in release mode. Its files are these.
    fs::create_dir_all(&home).unwrap();
    let local = home.join(".local");
    if !local.exists() {
        std::os::unix::fs::symlink(installed.prefix(), &local).unwrap();
    }
    let mut script = "set -eux\n".to_owned();
    let mut programs = 0;
    for (language, text) in blocks(&page) {
        match language {
            "c" => {
                fs::write(home.join(file_of(&page, text)), text).unwrap();
                programs += 1;
            }
            "sh" => {
                let is_installation =
                    |line: &&str| line.starts_with("crates/") || line.starts_with("cargo ");
                let lines = text.lines().filter(|line| !is_installation(line));
                lines.for_each(|line| script += &format!("{line}\n"));
            }
            other => panic!("a block of {other}"),
        }
    }
    assert_eq!(programs, 5);
    let ringrun = program::binary("ringrun");
    let path = std::env::join_paths(
        [ringrun.parent().unwrap().to_owned()]
            .into_iter()
            .chain(std::env::split_paths("/usr/local/bin:/usr/bin:/bin")),
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(&home).env("HOME", &home).env("PATH", path.unwrap());
    let outcome = run(&mut shell, DEADLINE);
    let four = "the numbers of 4 ranks add up to 6\n";
    let one = "the numbers of 1 ranks add up to 0\n";
    let rest =
        "10 11 12\nrank 2 is the last one, sum 99 is 297\nmeanwhile 999, sum 0.5\nrank 2 has 0.5\n";
    // The second program of one rank is linked statically.
    assert_eq!(outcome.stdout, format!("{four}{one}{one}{rest}"), "{outcome:?}");
}
