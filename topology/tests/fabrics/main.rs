//! Damaged fabrics of every kind, and the accuracy of the classifier on them.
//!
//! The generator follows the definitions of the papers (`shapes`) and shares no code with the
//! classifier. A seed gives one fabric: 2 to 512 hosts, 1 to 16 NICs, 1 to 4 planes, and up to 5 %
//! of its cables missing or misplaced. `truth` has its true properties, and `equivalent` the kinds
//! with overlapping definitions.
//!
//! All 2,000 with their table: `cargo test --release -p ringfold-topology --test fabrics --
//! --ignored --nocapture`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is a test")]

mod accuracy;
mod damage;
mod definitions;
mod design;
mod emit;
mod equivalent;
mod grade;
mod oracle;
mod shapes;
mod table;
mod truth;
mod wiring;
