//! Arrays on drives of the tests' own, and on simulated ones: what clients read and what is on the
//! members, whatever fails.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "tests")]

mod ahead;
mod attacks;
mod blocks;
mod geometry;
mod intent;
mod io;
mod log;
mod losses;
mod mapped;
mod promotion;
mod remap;
mod support;
mod sync;
mod troubles;
