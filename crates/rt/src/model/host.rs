//! Requests that wait in the host for a place in the drive's queue.

use crate::model::{Kind, Ticket};
use std::collections::VecDeque;

/// Reads and everything else, each in the order of arrival.
#[derive(Debug)]
pub(super) struct Host<T> {
    group: u32,
    waiting: [VecDeque<Ticket<T>>; 2],
    /// Whose turn it is, and for how many more.
    turn: usize,
    left: u32,
}

impl<T> Host<T> {
    pub(super) fn new(group: u32) -> Host<T> {
        Host { group, waiting: [VecDeque::new(), VecDeque::new()], turn: 0, left: 0 }
    }

    pub(super) fn push(&mut self, ticket: Ticket<T>) {
        self.waiting[usize::from(ticket.request.kind != Kind::Read)].push_back(ticket);
    }

    /// The next in order: of arrival, or of turns.
    pub(super) fn pop(&mut self) -> Option<Ticket<T>> {
        let first = |queue: &VecDeque<Ticket<T>>| queue.front().map_or(u64::MAX, |ticket| ticket.number);
        let oldest = usize::from(first(&self.waiting[1]) < first(&self.waiting[0]));
        if self.group == 0 {
            return self.waiting[oldest].pop_front();
        }
        let other = 1 - self.turn;
        if self.waiting[self.turn].is_empty() || (self.left == 0 && !self.waiting[other].is_empty()) {
            (self.turn, self.left) = (other, 0);
        }
        if self.left == 0 {
            self.left = self.group;
        }
        let popped = self.waiting[self.turn].pop_front()?;
        self.left -= 1;
        Some(popped)
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter().flatten().map(|ticket| &ticket.owner)
    }

    pub(super) fn drain(&mut self) -> Vec<Ticket<T>> {
        self.waiting.iter_mut().flat_map(std::mem::take).collect()
    }
}
