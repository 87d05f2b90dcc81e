//! `ringfold doctor` on any host.

use std::process::Command;
use std::time::Duration;

use ringfold_harness::{Folder, Outcome, Ranks};

use crate::{refused, ringfold};

/// On any host, every line has a mark and a subject.
#[test]
fn every_finding_has_a_line() {
    let output = ringfold(&["doctor"]);
    let text = output.stdout;
    assert!(text.lines().count() >= 2, "{text}");
    for line in text.lines() {
        let mut words = line.split_whitespace();
        assert!(matches!(words.next(), Some("ok" | "note" | "BAD")), "{line}");
        assert!(words.count() > 2, "{line}");
    }
    assert_eq!(output.status.success(), !text.contains("BAD"), "{text}");
}

#[test]
fn invalid_settings_are_reported() {
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_ringfold"));
    let output = Outcome::of(doctor.arg("doctor").env("RINGFOLD_IB_TIMEOUT", "99"));
    assert_eq!(output.code(), 2);
    let error = output.stderr;
    let invalid = "RINGFOLD_IB_TIMEOUT=\"99\" is invalid: give a number from 1 to 31";
    assert!(error.contains(invalid), "{error}");
}

#[test]
fn a_report_has_no_place_in_a_missing_folder_and_in_place_of_one() {
    for (path, text) in [
        ("/no/such/folder/file", "--report /no/such/folder/file: cannot write it"),
        ("/tmp", "--report \"/tmp\": it is no file; give the name of one"),
        ("", "it is no file"),
    ] {
        let error = refused(&["doctor", "--report", path]);
        assert!(error.contains(text), "{error}");
    }
}

/// Ranks of one host share memory, so there is no pair to probe. Rank 0 reports for all, with and
/// without RDMA ports.
#[test]
fn one_rank_of_a_job_reports() {
    let folder = Folder::new();
    let file = folder.path().join("report");
    let job = Ranks::of(env!("CARGO_BIN_EXE_ringfold"), 3, |_, command| {
        command.args(["doctor", "--report"]).arg(&file);
    });
    let mut outcomes = job.finish(Duration::from_secs(120)).into_iter();
    let first = outcomes.next().unwrap();
    let text = &first.stdout;
    assert!(!text.contains(" - "), "there is no pair to probe: {text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with(if first.status.success() { "ok    " } else { "BAD   " }), "{text}");
    let report = std::fs::read_to_string(&file).unwrap();
    assert!(report.contains(text) && report.contains(" #0\n"), "{report}");
    assert!(!report.contains("5ec2e7"), "the secret is in the report: {report}");
    for other in outcomes {
        assert!(other.status.success() && other.stdout.is_empty(), "{other:?}");
    }
}
