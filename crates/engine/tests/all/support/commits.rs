//! Metadata that does something at each record, and has no bitmap.

use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata, NoMetadata};
use wattle_engine::units::MemberSet;

/// What is done at each record.
pub struct OnCommit<F>(pub F);

impl<F: AsyncFn(&ArrayRecord)> Metadata for OnCommit<F> {
    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async {
            (self.0)(record).await;
            Ok(())
        })
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        NoMetadata.mark(regions)
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        NoMetadata.unmark(regions)
    }
}
