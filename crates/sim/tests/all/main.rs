//! Worlds of crashes and faults, from seeds.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "tests")]

mod commit_points;
mod figures;
mod mutants;
mod product;
mod seeds;
mod worlds;
