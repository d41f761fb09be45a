//! What a server that started anew may have lost is written again.
//!
//! Ranges that are kept do not overlap ([`Log`]), so they may be carried out in any order, and many
//! are under way at a time, as they were when clients wrote them: one after the other they would
//! take a server as long as all of its answers together.
//!
//! How long that takes is a matter of how much is kept, and of the server. So each request has the
//! time that a request has, and all of them as long as they need: a server that goes on answering
//! is not given up for want of speed, and no path for another one on which all begins anew.
//!
//! [`Log`]: super::log::Log

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::log::{Connection, Kept};
use super::pending::Pending;
use super::reach::Again;
use super::requests::{io_error, is_ending};
use super::{Link, State, within};
use crate::nbd::client::{Client, ClientError};

/// Requests under way at a time.
const REQUESTS_MAX: usize = 64;
/// Their bytes, unless one alone has more.
const BYTES_MAX: u64 = 4 << 20;

/// A request under way, and its bytes.
struct Sent<'a> {
    bytes: u64,
    answer: Pin<Box<dyn Future<Output = Result<(), Again>> + 'a>>,
}

impl Link {
    /// Writes again what a server that started anew may have lost. Counts what was answered.
    pub(super) async fn write_again(
        &self,
        connection: Connection,
        client: &Client,
        answered: &Cell<usize>,
    ) -> Result<(), Again> {
        let pending = RefCell::default();
        let mut left = self.log.borrow().kept().into_iter().peekable();
        let mut sent: Vec<Sent<'_>> = Vec::new();
        loop {
            let under_way: u64 = sent.iter().map(|sent| sent.bytes).sum();
            let fits = |next: &Kept| {
                sent.is_empty() || sent.len() < REQUESTS_MAX && under_way + bytes(next) <= BYTES_MAX
            };
            if let Some(kept) = left.next_if(fits) {
                let bytes = bytes(&kept);
                let answer = Box::pin(self.write_one_again(connection, client, kept, &pending));
                sent.push(Sent { bytes, answer });
                continue;
            }
            if sent.is_empty() {
                return Ok(());
            }
            poll_fn(|context| {
                let before = sent.len();
                let mut ix = 0;
                while let Some(next) = sent.get_mut(ix) {
                    match next.answer.as_mut().poll(context) {
                        Poll::Ready(Ok(())) => drop(sent.swap_remove(ix)),
                        Poll::Ready(Err(again)) => return Poll::Ready(Err(again)),
                        Poll::Pending => ix += 1,
                    }
                }
                answered.update(|count| count + before - sent.len());
                if sent.len() < before { Poll::Ready(Ok(())) } else { Poll::Pending }
            })
            .await?;
        }
    }

    async fn write_one_again(
        &self,
        connection: Connection,
        client: &Client,
        kept: Kept,
        pending: &RefCell<Pending>,
    ) -> Result<(), Again> {
        let under_way = Pending::begin(pending, self.core.now(), bytes(&kept));
        // With others waiting, more than a request gets otherwise: the server has just begun.
        let may_take = match self.paths.len() {
            1 => self.patience.reconnect,
            _ => 2 * self.patience.path,
        };
        let answer = async {
            self.settled(&kept.write).await;
            if matches!(&*self.state.borrow(), State::Ended(_)) {
                // The drive that takes its place may have newer bytes there.
                return Err(ClientError::Closed);
            }
            self.in_doubt_until(connection, &kept.write, kept.send(client)).await
        };
        match within(&self.core, may_take + under_way.allowance, answer).await {
            Some(Ok(())) => Ok(()),
            Some(Err(ClientError::Failed(errno))) if !is_ending(errno) => Err(Again::Never(io_error(errno))),
            Some(Err(error)) => Err(Again::Later(error)),
            None => Err(Again::Stalled),
        }
    }
}

fn bytes(kept: &Kept) -> u64 {
    kept.write.bytes.end - kept.write.bytes.start
}
