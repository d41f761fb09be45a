//! What modelled drives come to in virtual time, against what is known of real ones.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "tests")]

mod measure;
mod plan;
mod qos;
mod qos_cost;
mod random_cases;
mod ranges;
mod rates;
mod study;
mod tuning;
