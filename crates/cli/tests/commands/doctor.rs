//! `ringfold doctor` on any host.

use std::net::TcpListener;
use std::process::{Command, Stdio};

/// On any host, every line has a mark and a subject.
#[test]
fn every_finding_has_a_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_ringfold")).arg("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
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
    let output = doctor.arg("doctor").env("RINGFOLD_IB_TIMEOUT", "99").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
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
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_ringfold"));
        let output = doctor.args(["doctor", "--report", path]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(text), "{error}");
    }
}

/// Ranks of one host share memory, so there is no pair to probe. Rank 0 reports for all, with and
/// without RDMA ports.
#[test]
fn one_rank_of_a_job_reports() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let file = std::env::temp_dir().join(format!("ringfold-doctor-{}", std::process::id()));
    let started = ["0", "1", "2"].map(|rank| {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_ringfold"));
        doctor.args(["doctor", "--report"]).arg(&file).env("RANK", rank).env("WORLD_SIZE", "3");
        doctor.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        doctor.env("RINGFOLD_SECRET", &"5ec2e7".repeat(11)[..64]);
        doctor.stdout(Stdio::piped()).spawn().unwrap()
    });
    let [first, others @ ..] = started.map(|doctor| doctor.wait_with_output().unwrap());
    let text = String::from_utf8(first.stdout).unwrap();
    assert!(!text.contains(" - "), "there is no pair to probe: {text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with(if first.status.success() { "ok    " } else { "BAD   " }), "{text}");
    let report = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(report.contains(&text) && report.contains(" #0\n"), "{report}");
    assert!(!report.contains("5ec2e7"), "the secret is in the report: {report}");
    for other in others {
        assert!(other.status.success() && other.stdout.is_empty(), "{other:?}");
    }
}
