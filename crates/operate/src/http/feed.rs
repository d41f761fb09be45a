//! A reply that goes on: bytes for a viewer as they come.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc;

/// Where a site puts what a viewer is to see.
#[derive(Debug, Clone)]
pub struct FeedSender(mpsc::Sender<Bytes>);

/// What a viewer takes it from: the body of a reply ([`super::HttpReply::stream`]).
#[derive(Debug)]
pub struct Feed(mpsc::Receiver<Bytes>);

/// A feed that holds at most `capacity` pieces that the viewer has not taken.
#[must_use]
pub fn feed(capacity: usize) -> (FeedSender, Feed) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    (FeedSender(sender), Feed(receiver))
}

impl FeedSender {
    /// Gives the viewer a piece, without waiting. `false`: the viewer is gone, or took too little
    /// in time; drop this sender, which ends the viewer's reply.
    #[must_use]
    pub fn send(&self, piece: impl Into<Bytes>) -> bool {
        self.0.try_send(piece.into()).is_ok()
    }

    /// Whether the viewer is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the viewer is gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

impl Body for Feed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
