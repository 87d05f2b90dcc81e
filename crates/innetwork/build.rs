//! Names the sources of this crate, which ranks compare.

fn main() {
    ringfold_sources::emit();
}
