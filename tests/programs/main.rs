//! ringfold's programs start on machines without RDMA libraries, which they load at run time. The
//! dynamic section of an ELF file lists the libraries that a program needs to start. Their man
//! pages and shell completions have every option of their `--help`. `inference` and `training` are
//! examples, and `slow` has the commands of a page.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod inference;
mod slow;
mod training;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ringfold_harness::{needed, program};

/// The type of a mapped segment in the program header table.
const PT_LOAD: u64 = 1;
/// The type of the dynamic section in the program header table.
const PT_DYNAMIC: u64 = 2;

/// The entry of a needed library's name in the dynamic section.
const DT_NEEDED: u64 = 1;
/// The entry of the address of all names in the dynamic section.
const DT_STRTAB: u64 = 5;

/// The bytes of an ELF file.
struct Elf(Vec<u8>);

impl Elf {
    /// Returns the file if it has 64 bits and is little-endian.
    fn of(bytes: Vec<u8>) -> Option<Self> {
        bytes.starts_with(b"\x7fELF\x02\x01").then_some(Self(bytes))
    }

    fn number(&self, at: u64, bytes: usize) -> u64 {
        let mut number = [0; 8];
        let at = usize::try_from(at).unwrap();
        number[..bytes].copy_from_slice(&self.0[at..at + bytes]);
        u64::from_le_bytes(number)
    }

    /// Returns the offset, address and length of each segment of a type.
    fn segments(&self, kind: u64) -> impl Iterator<Item = [u64; 3]> {
        let [begin, size, count] = [(32, 8), (54, 2), (56, 2)].map(|(at, n)| self.number(at, n));
        let entries = (0..count).map(move |entry| begin + entry * size);
        let entries = entries.filter(move |at| self.number(*at, 4) == kind);
        entries.map(|at| [8, 16, 32].map(|field| self.number(at + field, 8)))
    }

    /// Returns the libraries that the program needs to start.
    fn needed(&self) -> Vec<String> {
        let dynamic = self.segments(PT_DYNAMIC).flat_map(|[offset, _, length]| {
            (offset..offset + length)
                .step_by(16)
                .map(|at| [self.number(at, 8), self.number(at + 8, 8)])
        });
        let dynamic: Vec<[u64; 2]> = dynamic.collect();
        let values = |kind| dynamic.iter().filter(move |it| it[0] == kind).map(|it| it[1]);
        let Some(names) = values(DT_STRTAB).next() else { return Vec::new() };
        let is_there =
            |[_, address, length]: &[u64; 3]| (*address..address + length).contains(&names);
        let [offset, address, _] = self.segments(PT_LOAD).find(is_there).unwrap();
        let name = |value: u64| {
            let begin = usize::try_from(names - address + offset + value).unwrap();
            let name = self.0[begin..].split(|byte| *byte == 0).next().unwrap();
            String::from_utf8_lossy(name).into_owned()
        };
        values(DT_NEEDED).map(name).collect()
    }
}

#[test]
fn programs_start_without_rdma_libraries() {
    let mut programs: Vec<PathBuf> =
        ["ringrun", "ringfold", "allreduce-perf", "rank"].map(program::binary).into();
    programs.push(program::example("train"));
    for program in programs {
        let Some(elf) = Elf::of(fs::read(&program).unwrap()) else {
            let _ = needed::skipped("elf", "programs are not 64-bit little-endian ELF files here");
            return;
        };
        let libraries = elf.needed();
        println!("{}: {libraries:?}", program.display());
        // Libraries of the compiler and the C library. A statically linked program has none.
        let own = ["libc.", "libm.", "libgcc_s.", "libpthread.", "libdl.", "librt.", "ld-"];
        let is_own = |library: &&String| own.iter().any(|name| library.starts_with(name));
        let others: Vec<_> = libraries.iter().filter(|library| !is_own(library)).collect();
        assert!(others.is_empty(), "{} needs {others:?}", program.display());
        let is_static = cfg!(target_feature = "crt-static");
        assert_eq!(libraries.is_empty(), is_static, "{}", program.display());
    }
}

/// Returns the output of a program that succeeds.
fn output(name: &str, args: &[&str]) -> String {
    let output = Command::new(program::binary(name)).args(args).output().unwrap();
    assert!(output.status.success(), "{name} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the words at the beginning of the lines of `help` after a heading.
fn listed<'t>(help: &'t str, heading: &str) -> Vec<&'t str> {
    let lines = help.lines().skip_while(|line| *line != heading).skip(1);
    // Entries have at most 6 columns before them, and descriptions more.
    let entries = lines.take_while(|line| line.is_empty() || line.starts_with(' '));
    let is_entry = |line: &&str| line.len() - line.trim_start().len() <= 6;
    let words = entries.filter(is_entry).flat_map(|line| line.split([' ', ',', '=']));
    words.filter(|word| !word.is_empty()).collect()
}

#[test]
fn sendrecv_perf_checks_messages_and_prints_the_columns_of_nccl_tests() {
    let args = ["--ranks", "3", "-b", "0", "-e", "64K", "-f", "16", "-d", "uint8", "-n", "2"];
    let text = output("sendrecv-perf", &args);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows.iter().map(|row| row[0]).collect::<Vec<_>>(),
        ["0", "1", "16", "256", "4096", "65536"]
    );
    for row in &rows {
        assert_eq!(row[2..5], ["uint8", "none", "-1"], "{row:?}");
        assert_eq!((row[8], row[12]), ("0", "N/A"), "{row:?}");
    }
    assert!(text.contains("# Collective test concluded: sendrecv_perf"), "{text}");
}

#[test]
fn perf_programs_of_blocks_and_scans_check_their_results() {
    for (name, op) in
        [("alltoall", "none"), ("gather", "none"), ("scatter", "none"), ("scan", "sum")]
    {
        let args = ["--ranks", "3", "-b", "0", "-e", "64K", "-f", "16", "-d", "int32", "-n", "2"];
        let text = output(&format!("{name}-perf"), &args);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows.len(), 6, "{text}");
        for row in &rows {
            assert_eq!(row[2..4], ["int32", op], "{row:?}");
            assert_eq!((row[8], row[12]), ("0", "0"), "{row:?}");
        }
        assert_ne!(rows[5][0], "0", "{text}");
        assert!(text.contains(&format!("# Collective test concluded: {name}_perf")), "{text}");
    }
}

#[test]
fn alltoallv_perf_checks_uneven_parts() {
    for ranks in ["1", "3", "4"] {
        let args = ["--ranks", ranks, "-b", "0", "-e", "64K", "-f", "16", "-d", "half", "-n", "2"];
        let text = output("alltoallv-perf", &args);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows.len(), 6, "{text}");
        for row in &rows {
            assert_eq!(row[2..5], ["half", "none", "-1"], "{row:?}");
            assert_eq!((row[8], row[12]), ("0", "0"), "{row:?}");
        }
        // The buffer holds whole shares: 3 of them with 3 ranks, and 6 with 4.
        let last = if ranks == "1" { "65536" } else { "65532" };
        assert_eq!(rows[5][0], last, "{text}");
        assert!(text.contains("# Collective test concluded: alltoallv_perf"), "{text}");
    }
}

#[test]
fn man_pages_and_completions_have_every_subcommand_and_option() {
    for (name, options_min) in [("ringfold", 2), ("ringrun", 15), ("reduce-scatter-perf", 20)] {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(fs::remove_dir_all(&dir));
        assert_eq!(output(name, &["--generate", dir.to_str().unwrap()]), "");
        let read = |file: String| fs::read_to_string(dir.join(&file)).unwrap();
        let scripts = [format!("{name}.bash"), format!("_{name}"), format!("{name}.fish")];
        let scripts = scripts.map(read);
        let subcommands: Vec<String> = match name {
            "ringfold" => output(name, &["--help"])
                .lines()
                .skip_while(|line| *line != "Commands:")
                .skip(1)
                .take_while(|line| !line.is_empty())
                .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
                .map(|line| line.split_whitespace().next().unwrap().to_owned())
                .filter(|subcommand| subcommand != "help")
                .collect(),
            _ => Vec::new(),
        };
        let has_tune = subcommands.iter().any(|subcommand| subcommand == "tune");
        assert_eq!(has_tune, name == "ringfold", "{subcommands:?}");
        let main_page = read(format!("{name}.1"));
        let pages = subcommands.iter().map(|it| (vec![it.as_str()], format!("{name}-{it}.1")));
        for (words, page) in pages.chain([(Vec::new(), format!("{name}.1"))]) {
            let help = output(name, &[&words[..], &["--help"]].concat());
            let page = read(page).replace('\\', "");
            let options = listed(&help, "Options:");
            let options = options.iter().filter(|word| word.starts_with("--"));
            let mut count = 0;
            for option in options {
                assert!(page.contains(option), "{name} {words:?}: no {option} in {page}");
                let bare = option.trim_start_matches('-');
                for script in &scripts {
                    assert!(script.contains(bare), "{name} {words:?}: no {option} in a script");
                }
                count += 1;
            }
            assert!(count >= if words.is_empty() { options_min } else { 1 }, "{words:?} {help}");
        }
        for subcommand in &subcommands {
            assert!(main_page.replace('\\', "").contains(&format!("{name}-{subcommand}(1)")));
            assert!(scripts.iter().all(|script| script.contains(subcommand)), "{subcommand}");
        }
    }
}

/// Returns commands that print much, and print all the time.
fn printers() -> Vec<Command> {
    let perf = ["-b", "8", "-e", "8", "-n", "1", "-w", "1", "-N", "0"];
    let lines: [(&str, Vec<&str>); 4] = [
        ("allreduce-perf", [&["--ranks", "2"], &perf[..]].concat()),
        ("sendrecv-perf", perf.to_vec()),
        ("ringfold", vec!["plan", "allreduce", "-n", "64", "-a", "ring"]),
        ("ringrun", vec!["-n", "2", "yes"]),
    ];
    lines
        .map(|(name, args)| {
            let mut command = Command::new(program::binary(name));
            command.args(args).stderr(Stdio::piped());
            command
        })
        .into()
}

#[test]
fn a_reader_that_leaves_ends_programs_quietly() {
    for mut command in printers() {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut reader = BufReader::with_capacity(64, child.stdout.take().unwrap());
        reader.read_line(&mut line).unwrap();
        drop(reader);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{command:?}: {output:?}");
        assert!(output.stderr.is_empty() && !line.is_empty(), "{command:?}: {output:?}");
    }
}

#[test]
fn a_full_disk_is_named() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let help = ["ringfold", "ringrun", "allreduce-perf", "scan-perf"].map(|name| {
        let mut command = Command::new(program::binary(name));
        command.arg("--help").stderr(Stdio::piped());
        command
    });
    for mut command in printers().into_iter().chain(help) {
        let output = command.stdout(full()).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        let status = output.status.code().unwrap();
        assert!([1, 2, 125].contains(&status), "{command:?} {status}: {err}");
        let words = "cannot write to standard output: No space left on device (os error 28)";
        assert_eq!(err.matches(words).count(), 1, "{command:?}: {err}");
    }
}

#[test]
fn output_waits_for_room_in_a_pipe_that_does_not_block() {
    for (name, args) in [
        ("ringfold", vec!["plan", "allreduce", "-n", "64", "-a", "ring"]),
        ("allreduce-perf", vec!["--help"]),
    ] {
        let expected = output(name, &args);
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        rustix::io::ioctl_fionbio(&write, true).unwrap();
        // The pipe holds less than the output.
        rustix::pipe::fcntl_setpipe_size(&write, 4096).unwrap();
        let mut command = Command::new(program::binary(name));
        let mut child = command.args(&args).stdout(write).spawn().unwrap();
        drop(command);
        std::thread::sleep(std::time::Duration::from_millis(500));
        let text = std::io::read_to_string(File::from(read)).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(text == expected, "{} bytes of {}", text.len(), expected.len());
    }
}

#[test]
fn logs_have_colours_on_terminals_only() {
    let mut command = Command::new(program::binary("ringrun"));
    command.args(["-n", "2"]).arg(program::binary("allreduce-perf"));
    command.args(["-b", "8", "-e", "8", "-n", "2"]).env("RINGFOLD_DEBUG", "INFO");
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && err.contains("INFO"), "{err}");
    assert!(!err.contains('\u{1b}'), "{err}");
}
