//! A future and what becomes of its output.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Hands the output of `future` to `take`. No `async` block: that would keep the future twice,
/// where it is caught and where it is polled, and every task would be twice as large.
pub(super) fn deliver<F: Future, T: FnOnce(F::Output)>(future: F, take: T) -> Deliver<F, T> {
    Deliver { future: Some(future), take: Some(take) }
}

/// See [`deliver`].
pub(super) struct Deliver<F, T> {
    future: Option<F>,
    take: Option<T>,
}

impl<F: Future, T: FnOnce(F::Output)> Future for Deliver<F, T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: the future is pinned as the whole is. It is not moved from here on: it is polled
        // in its place, and dropped there. What takes the output is never pinned.
        let (mut future, take) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), &mut this.take)
        };
        let running = future.as_mut().as_pin_mut().expect("a future is not polled after it is done");
        let Poll::Ready(output) = running.poll(context) else { return Poll::Pending };
        // What the future held is free before another task or core learns that it is done.
        future.set(None);
        if let Some(take) = take.take() {
            take(output);
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::task::Waker;

    use super::*;

    /// Notes its drop.
    struct Held(Rc<RefCell<Vec<&'static str>>>);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.borrow_mut().push("freed");
        }
    }

    #[test]
    fn what_the_future_held_is_free_before_its_output_is_told() {
        let notes = Rc::new(RefCell::new(Vec::new()));
        let (held, told) = (Held(notes.clone()), notes.clone());
        // The future itself owns it, as hand-written futures do, and not a block that ends.
        let mut held = Some(held);
        let future = std::future::poll_fn(move |_| Poll::Ready(held.as_mut().map(|_| 7)));
        let mut task = Box::pin(deliver(future, move |output| {
            assert_eq!(output, Some(7));
            told.borrow_mut().push("told");
        }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(task.as_mut().poll(&mut context).is_ready());
        assert_eq!(*notes.borrow(), ["freed", "told"]);
    }

    #[test]
    fn a_task_is_as_large_as_its_future() {
        let large = std::future::pending::<()>();
        let future = async move {
            let room = [0_u8; 1024];
            large.await;
            std::hint::black_box(&room);
        };
        let alone = size_of_val(&future);
        let task = deliver(future, |()| {});
        assert!(size_of_val(&task) <= alone + 16, "{} of {alone}", size_of_val(&task));
    }
}
