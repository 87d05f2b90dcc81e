//! The doctor on a host of any kind.

#![allow(clippy::unwrap_used, reason = "tests may")]

use std::process::Command;

/// Whatever is there, every line says how it is and what it is about.
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
fn settings_that_make_no_sense_are_told() {
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_ringfold"));
    let output = doctor.arg("doctor").env("RINGFOLD_IB_TIMEOUT", "99").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("RINGFOLD_IB_TIMEOUT=\"99\": a number from 1 to 31"), "{error}");
}
