//! What the stack should look like: pure functions from topology and facts to limits and findings.

pub mod audit;
pub mod limiter;
pub mod limits;
pub mod plan;
