//! The text of an error with its causes.

use core::error::Error;
use core::fmt;

/// Displays an error and the chain of its causes on one line, separated by colons.
///
/// The error types of ringfold leave their source out of `Display` and return it from `source`.
/// A program that prints such an error prints this type, and each cause appears once.
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<&'static Self>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.map(|layer| layer as _)
        }
    }

    #[test]
    fn the_causes_follow_the_error() {
        static CAUSE: Layer = Layer("the disk is full", None);
        static MIDDLE: Layer = Layer("cannot write", Some(&CAUSE));
        assert_eq!(Chain(&CAUSE).to_string(), "the disk is full");
        let error = Layer("cannot save", Some(&MIDDLE));
        assert_eq!(Chain(&error).to_string(), "cannot save: cannot write: the disk is full");
    }
}
