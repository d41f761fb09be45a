//! An operation on a drive, for as long as something is expected of it: one that hangs may answer
//! in an hour, or never.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::core::OpFuture;

/// See [`OpFuture::until_given_up`].
#[must_use = "the outcome of an operation may be an error"]
pub struct UntilGivenUp<T, F> {
    operation: OpFuture<T>,
    instead: F,
}

impl<T> OpFuture<T> {
    /// What the operation gives, or `instead` once the traffic that it is counted in is
    /// [given up](crate::Core::give_up). The operation keeps its buffers in that case until the
    /// drive is done with them.
    pub fn until_given_up<F: Fn() -> T + Unpin>(self, instead: F) -> UntilGivenUp<T, F> {
        UntilGivenUp { operation: self, instead }
    }
}

impl<T, F: Fn() -> T + Unpin> Future for UntilGivenUp<T, F> {
    type Output = T;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Self { operation, instead } = self.get_mut();
        match Pin::new(&mut *operation).poll(context) {
            Poll::Pending if operation.is_given_up() => Poll::Ready(instead()),
            polled => polled,
        }
    }
}
