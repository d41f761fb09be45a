//! How rows of stripes were written, as benchmarks and simulations tell it.

use serde::Serialize;
use wattle_engine::CounterTotals;

/// How rows of stripes were written, and what was read for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RowPlanReport {
    pub full_stripe: u64,
    pub reconstruct_write: u64,
    pub read_modify_write: u64,
    pub degraded: u64,
    pub pre_reads: u64,
    pub merged: u64,
}

impl RowPlanReport {
    /// From one look at the counters to the next.
    pub fn between(before: &CounterTotals, after: &CounterTotals) -> Self {
        let grew = |counter: fn(&CounterTotals) -> u64| counter(after).saturating_sub(counter(before));
        Self {
            full_stripe: grew(|counters| counters.rows_full),
            reconstruct_write: grew(|counters| counters.rows_reconstruct),
            read_modify_write: grew(|counters| counters.rows_read_modify),
            degraded: grew(|counters| counters.rows_degraded),
            pre_reads: grew(|counters| counters.pre_reads),
            merged: grew(|counters| counters.merged),
        }
    }
}
