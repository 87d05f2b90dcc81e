//! What the suites share. Filled below.
