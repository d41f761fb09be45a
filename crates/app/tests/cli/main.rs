//! The command from outside, as a user sees it: contracts that every command keeps, bad input, arrays that a kernel wrote, and
//! serving to real NBD clients.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "these are tests: they fail loudly and may wait"
)]

mod arrays;
mod bad_input;
mod contract;
mod harness;
mod serving;
