//! Ranks are threads of one process.
