//! The flags of the perf programs from the command line: their effects, and the errors that come
//! before any rank starts.

use std::os::unix::process::CommandExt;
use std::process::Command;

use ringfold_harness::{Folder, Outcome};
use serde_json::Value;

/// Flags of a short run of two ranks.
const SHORT: &str = "--ranks 2 -b 64 -e 1K -f 16 -n 5 -w 1";

fn perf(name: &str, line: &str) -> Outcome {
    let program = match name {
        "allreduce" => env!("CARGO_BIN_EXE_allreduce-perf"),
        "broadcast" => env!("CARGO_BIN_EXE_broadcast-perf"),
        "alltoallv" => env!("CARGO_BIN_EXE_alltoallv-perf"),
        _ => env!("CARGO_BIN_EXE_sendrecv-perf"),
    };
    Outcome::of(Command::new(program).args(line.split(' ')))
}

/// Returns the table of a run that succeeds.
fn table(name: &str, line: &str) -> String {
    let output = perf(name, line);
    let table = output.printed();
    assert!(table.contains("Out of bounds values : 0 OK"), "{line}: {table}");
    table
}

/// Returns the words of each row.
fn rows(table: &str) -> Vec<Vec<&str>> {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| row.split_whitespace().collect()).collect()
}

#[test]
fn bad_input_is_refused_before_any_rank_starts() {
    let folder = Folder::new();
    let full = folder.path().join("full.json");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let full = format!("-J {}", full.display());
    let cases = [
        ("allreduce", "-J /nonexistent/x.json", "-J /nonexistent/x.json: cannot write the results"),
        ("allreduce", "-J results.txt", "-J results.txt: the name must end in .json"),
        ("allreduce", full.as_str(), "No space left on device"),
        ("allreduce", "-d flota", "-d flota: unknown data type (did you mean float?)"),
        ("allreduce", "-o smu", "-o smu: unknown reduction (did you mean sum?)"),
        ("allreduce", "-o band", "-o band: it combines integers only"),
        ("allreduce", "-b 1G -e 1M", "-b 1073741824 is more than -e 1048576"),
        ("allreduce", "-e 9999999G", "-e 9999999G: the buffers take"),
        ("allreduce", "-e 99999999999999G", "'99999999999999G' for '--maxbytes"),
        ("allreduce", "-b 0 -e 1G -i 1", "-i 1: there are more than 1048576 sizes"),
        ("allreduce", "-n 0", "'0' for '--iters"),
        ("allreduce", "-V 8", "-V 8: this flag of nccl-tests does not apply: there are no CTAs"),
        ("allreduce", "-K 2", "-K 2: only the columns of -I"),
        ("alltoallv", "-m 2", "-m 2: calls with uneven parts form no groups"),
        ("broadcast", "-r 2", "-r 2: give a root from 0 to 1"),
    ];
    for (name, line, reason) in cases {
        let output = perf(name, &format!("--ranks 2 {line}"));
        let errors = &output.stderr;
        assert_eq!(output.code(), 2, "{line}: {errors}");
        assert!(errors.contains(reason), "{line}: {errors}");
        assert!(output.stdout.is_empty() && !errors.contains("rank 0"), "{line}: {errors}");
    }
    let zero = perf("allreduce", "--ranks 0");
    assert!(zero.stderr.contains("'0' for '--ranks"), "{zero:?}");
}

#[test]
fn results_have_the_columns_that_flags_ask_for() {
    let folder = Folder::new();
    let file = folder.path().join("x.json");
    let line = format!("{SHORT} -m 3 -I 1 -K 2 -S 1 -u 1 -J {}", file.display());
    let table = table("allreduce", &line);
    assert!(table.contains("agg iters: 3 ") && table.contains("unalign: 1"), "{table}");
    assert!(table.contains("summary skips first 2 iterations"), "{table}");
    let head: Vec<&str> = table.lines().filter(|line| line.contains("#wrong")).collect();
    let words: Vec<&str> = head[0].split_whitespace().collect();
    assert_eq!(words.iter().filter(|word| **word == "i_p99").count(), 2, "{table}");
    assert_eq!(words.last(), Some(&"timestamp"), "{table}");
    let rows = rows(&table);
    assert_eq!(rows.len(), 2, "{table}");
    // Five words, two halves of eight, and a date with a time of day.
    assert!(rows.iter().all(|row| row.len() == 5 + 16 + 2), "{table}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(json["config"]["aggregated_iterations"], 3);
    assert_eq!(json["errors"], serde_json::json!([]), "the run has ended");
    for result in json["results"].as_array().unwrap() {
        for half in ["out_of_place_per_iter", "in_place_per_iter"] {
            let times = result[half]["times_us"].as_array().unwrap();
            let of_ranks = result[half]["per_process_max_times_us"].as_array().unwrap();
            assert_eq!((times.len(), of_ranks.len()), (5, 2), "{result}");
            let slowest = |at: usize| {
                of_ranks.iter().map(|times| times[at].as_f64().unwrap()).fold(0.0, f64::max)
            };
            assert_eq!(times[4].as_f64(), Some(slowest(4)), "{result}");
        }
    }
}

#[test]
fn groups_and_unaligned_buffers_have_right_results() {
    for line in
        ["-m 2", "-u 3", "-m 4 -u 1 -R 1", "-u 1 -d bf16", "-u 5 -R 2", "-u 1 -d all -o all"]
    {
        table("allreduce", &format!("{SHORT} {line}"));
    }
    table("sendrecv", &format!("{SHORT} -m 3 -u 1"));
    table("alltoallv", &format!("{SHORT} -u 1"));
    table("broadcast", &format!("{SHORT} -m 2 -r -1"));
}

#[test]
fn names_have_several_spellings_and_the_last_flag_counts() {
    let table = table("allreduce", "--ranks 2 -b 8 -b 64KB -e 8 -e 64KiB -n 1 -d float -d fp16");
    let rows = rows(&table);
    assert_eq!(rows.len(), 1, "{table}");
    assert_eq!((rows[0][0], rows[0][2]), ("65536", "half"), "{table}");
}

#[test]
fn programs_describe_themselves() {
    for (name, words) in [
        ("allreduce", "all-reduce: every rank gets the reduction of all inputs"),
        ("broadcast", "broadcast: every rank gets the input of the root"),
        ("sendrecv", "every rank sends to the next rank"),
        ("alltoallv", "all-to-all with parts of several lengths"),
    ] {
        let output = perf(name, "--help");
        let help = &output.stdout;
        assert!(output.status.success() && help.contains(words), "{help}");
        assert!(help.contains("-V and -M of nccl-tests are about threads and GPUs"), "{help}");
    }
}

/// One rank warns about a variable that nothing reads.
#[test]
fn misspelled_variables_are_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allreduce-perf"));
    let misspelled = format!("{}_TIMEOT", "RINGFOLD");
    command.args(SHORT.split(' ')).env(&misspelled, "5").env("RINGFOLD_TEST_SEED", "1");
    let output = Outcome::of(&mut command);
    let errors = &output.stderr;
    let sentence = "is ignored: there is no such variable; did you mean RINGFOLD_TIMEOUT?";
    let sentence = format!("{misspelled} {sentence}");
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.matches(&sentence).count(), 1, "{errors}");
    assert!(!errors.contains("TEST_SEED"), "{errors}");
}

#[test]
fn the_program_goes_by_its_name() {
    let folder = Folder::new();
    let named = |name: &str, line: &str| {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_allreduce-perf"), &link).unwrap();
        Outcome::of(Command::new(link).args(line.split(' ')))
    };
    let scan = named("scan-perf", SHORT);
    assert!(scan.status.success(), "{scan:?}");
    assert!(scan.stdout.contains("# Collective test concluded: scan_perf"));
    // A shell has found the program on the PATH; its ranks are that program too.
    let mut found = Command::new(env!("CARGO_BIN_EXE_allreduce-perf"));
    let found = Outcome::of(found.arg0("scan-perf").args(SHORT.split(' ')));
    assert!(found.stdout.contains("# Collective test concluded: scan_perf"), "{found:?}");
    let reduce_scatter = named("reduce_scatter_perf", SHORT);
    let output = &reduce_scatter.stdout;
    assert!(output.contains("# Collective test concluded: reduce_scatter_perf"), "{output}");
    let unknown = named("scna-perf", SHORT);
    let errors = &unknown.stderr;
    assert_eq!(unknown.code(), 2, "{errors}");
    assert!(errors.starts_with("error: scna-perf: the name of this program tells"), "{errors}");
    assert!(errors.contains(" allreduce-perf, ") && unknown.stdout.is_empty(), "{errors}");
}

#[test]
fn a_sibling_that_stands_alone_names_what_it_lacks() {
    let folder = Folder::new();
    let alone = folder.path().join("scan-perf");
    std::fs::copy(env!("CARGO_BIN_EXE_scan-perf"), &alone).unwrap();
    let output = Outcome::of(&mut Command::new(alone));
    let errors = &output.stderr;
    let lacking = format!("error: {} must run", folder.path().join("allreduce-perf").display());
    assert!(errors.starts_with(&lacking) && errors.contains("No such file"), "{errors}");
    assert_eq!(output.code(), 2);
}

/// The columns of `--profile` stand behind those of nccl-tests, and the parts fill the time.
#[test]
fn a_profile_has_the_parts_of_the_time() {
    let folder = Folder::new();
    let file = folder.path().join("x.json");
    for name in ["allreduce", "broadcast"] {
        let sizes = "--ranks 2 -b 64K -e 4M -f 64 -n 5 -w 1";
        let table = table(name, &format!("{sizes} --profile --algo -J {}", file.display()));
        let rows = rows(&table);
        // Five words, two halves of four, six of the profile, and the algorithm.
        assert!(rows.len() == 2 && rows.iter().all(|row| row.len() == 5 + 8 + 6 + 1), "{table}");
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        for (result, row) in json["results"].as_array().unwrap().iter().zip(&rows) {
            let profile = &result["profile"];
            let of_ranks = profile["of_ranks_us"].as_array().unwrap();
            let of = |rank: usize, part: usize| of_ranks[rank][part].as_f64().unwrap();
            let mean = |part: usize| (of(0, part) + of(1, part)) / 2.0;
            for (name, part) in [("waiting_us", 0), ("moving_us", 1), ("combining_us", 2)] {
                let seen = profile[name].as_f64().unwrap();
                assert!((seen - mean(part)).abs() <= 1e-6 * seen, "{result}");
            }
            assert_eq!(mean(2) > 0.0, name == "allreduce", "{result}");
            assert!(mean(1) > 0.0, "{result}");
            let least = profile["least_waiting_rank"].as_u64().unwrap();
            assert_eq!(row[15], least.to_string(), "{table}");
            assert!(of(usize::from(least == 1), 0) <= of(usize::from(least == 0), 0), "{result}");
        }
    }
}
