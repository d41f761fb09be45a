//! Whose request is next: start-time fair queueing. Each volume's requests are stamped with the
//! time in which it would have been served alone at its weight; the smallest stamp is next. Within
//! a volume its clients take turns.
//!
//! Invariants:
//! 1. While two volumes have requests waiting, what each of them gets, divided by its weight,
//!    differs by no more than one request of each divided by its weight.
//! 2. If anything waits, something is next.
//! 3. Requests of one client keep their order.

use std::collections::VecDeque;

/// Stamps are in bytes of a volume of weight 1, in these parts.
const SCALE: u128 = 1 << 16;

/// Requests that wait, by volume and client.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// The stamp of what was served last.
    served: u128,
    /// By the number that the caller gave them.
    volumes: Vec<VolumeQueue<T>>,
    /// The numbers of those with requests.
    backlog: Vec<usize>,
}

#[derive(Debug)]
struct VolumeQueue<T> {
    /// The stamp at which what it was given so far ends.
    end: u128,
    /// Those with requests, the next one in front.
    clients: VecDeque<(u64, VecDeque<(u64, T)>)>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { served: 0, volumes: Vec::new(), backlog: Vec::new() }
    }
}

impl<T> FairQueue<T> {
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Whether a volume has requests that wait.
    pub fn has(&self, volume: usize) -> bool {
        self.backlog.contains(&volume)
    }

    /// Whether a volume has had no more than its share so far: what it asks for now goes before
    /// what others wait for.
    pub fn is_behind(&self, volume: usize) -> bool {
        self.volumes.get(volume).is_none_or(|volume| volume.end <= self.served)
    }

    /// A request of a volume that goes at once, and what it costs.
    pub fn charge(&mut self, volume: usize, cost: u64, weight: u32) {
        let served = self.served;
        let of = self.of(volume);
        let start = of.end.max(served);
        of.end = start + stamp(cost, weight);
        self.served = self.served.max(start);
    }

    /// A request of a client that waits.
    pub fn push(&mut self, volume: usize, client: u64, cost: u64, request: T) {
        let served = self.served;
        let of = self.of(volume);
        let was_empty = of.clients.is_empty();
        match of.clients.iter_mut().find(|(other, _)| *other == client) {
            Some((_, requests)) => requests.push_back((cost, request)),
            None => of.clients.push_back((client, VecDeque::from([(cost, request)]))),
        }
        if was_empty {
            // What it did not use while it asked for nothing is not made up for.
            of.end = of.end.max(served);
            self.backlog.push(volume);
        }
    }

    /// The next request, charged to its volume, whose weight `weight_of` knows.
    pub fn pop(&mut self, weight_of: impl Fn(usize) -> u32) -> Option<(usize, T)> {
        self.pop_where(weight_of, |_| true)
    }

    /// The same among volumes that `may` names.
    pub fn pop_where(
        &mut self,
        weight_of: impl Fn(usize) -> u32,
        may: impl Fn(usize) -> bool,
    ) -> Option<(usize, T)> {
        let waiting = self.backlog.iter().enumerate().filter(|(_, volume)| may(**volume));
        // Of equals the one that waits longest.
        let (place, volume) =
            waiting.min_by_key(|(_, volume)| self.volumes[**volume].end).map(|(at, volume)| (at, *volume))?;
        let of = &mut self.volumes[volume];
        let (client, mut requests) = of.clients.pop_front()?;
        let (cost, request) = requests.pop_front()?;
        if !requests.is_empty() {
            of.clients.push_back((client, requests));
        }
        self.served = self.served.max(of.end);
        of.end += stamp(cost, weight_of(volume));
        let last = self.backlog.remove(place);
        if !of.clients.is_empty() {
            self.backlog.push(last);
        }
        Some((volume, request))
    }

    fn of(&mut self, volume: usize) -> &mut VolumeQueue<T> {
        while self.volumes.len() <= volume {
            self.volumes.push(VolumeQueue { end: 0, clients: VecDeque::new() });
        }
        &mut self.volumes[volume]
    }
}

fn stamp(cost: u64, weight: u32) -> u128 {
    u128::from(cost) * SCALE / u128::from(weight.max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_volume_that_was_idle_is_next_but_makes_up_for_nothing() {
        let mut queue = FairQueue::default();
        for at in 0..100 {
            queue.push(0, 0, 1000, (0, at));
        }
        for at in 0..50 {
            assert_eq!(queue.pop(|_| 100), Some((0, (0, at))));
        }
        for at in 0..50 {
            queue.push(1, 0, 1000, (1, at));
        }
        let order: Vec<_> = (0..10).map(|_| queue.pop(|_| 100).unwrap().0).collect();
        assert_eq!(order.iter().filter(|volume| **volume == 1).count(), 5, "{order:?}");
    }

    #[test]
    fn clients_of_a_volume_take_turns() {
        let mut queue = FairQueue::default();
        for at in 0..4 {
            queue.push(0, 7, 1000, (7, at));
        }
        queue.push(0, 8, 1000, (8, 0));
        queue.push(0, 8, 1000, (8, 1));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(|_| 1)).map(|(_, request)| request).collect();
        assert_eq!(order, [(7, 0), (8, 0), (7, 1), (8, 1), (7, 2), (7, 3)]);
    }

    #[test]
    fn what_goes_at_once_is_charged_too() {
        let mut queue = FairQueue::default();
        queue.charge(0, 10_000, 1);
        queue.charge(1, 1000, 1);
        assert!(!queue.is_behind(0) && queue.is_behind(2));
        queue.push(0, 0, 1000, 'a');
        queue.push(1, 0, 1000, 'b');
        assert_eq!(queue.pop(|_| 1), Some((1, 'b')));
    }

    #[test]
    fn volumes_that_may_not_are_passed_by() {
        let mut queue = FairQueue::default();
        queue.push(0, 0, 1, 'a');
        queue.push(1, 0, 1, 'b');
        assert_eq!(queue.pop_where(|_| 1, |volume| volume == 1), Some((1, 'b')));
        assert_eq!(queue.pop_where(|_| 1, |volume| volume == 1), None);
        assert!(queue.has(0) && !queue.has(1) && !queue.is_empty());
    }

    proptest! {
        /// Invariants 1 and 2: served in proportion to weights while both wait, and never idle.
        #[test]
        fn shares_are_by_weight(
            weights in proptest::collection::vec(1u32..1000, 2..5),
            costs in proptest::collection::vec(1u64..100_000, 50..300),
        ) {
            let mut queue = FairQueue::default();
            for volume in 0..weights.len() {
                for (at, cost) in costs.iter().enumerate() {
                    queue.push(volume, at as u64 % 3, *cost, *cost);
                }
            }
            let largest = *costs.iter().max().unwrap() as f64;
            let mut had = vec![0.0; weights.len()];
            loop {
                let Some((volume, cost)) = queue.pop(|volume| weights[volume]) else {
                    prop_assert!(false, "something waits, and nothing is next");
                    unreachable!();
                };
                had[volume] += cost as f64;
                if !queue.has(volume) {
                    break;
                }
                for one in 0..weights.len() {
                    for other in 0..one {
                        let share = |volume: usize| had[volume] / f64::from(weights[volume]);
                        let most = largest / f64::from(weights[one]) + largest / f64::from(weights[other]);
                        prop_assert!((share(one) - share(other)).abs() <= most + 1.0);
                    }
                }
            }
        }

        /// Everything that was pushed comes out once, each client's requests in their order.
        #[test]
        fn nothing_is_lost(pushes in proptest::collection::vec((0usize..4, 0u64..3, 1u64..9000), 0..200)) {
            let mut queue = FairQueue::default();
            for (at, (volume, client, cost)) in pushes.iter().enumerate() {
                queue.push(*volume, *client, *cost, (*volume, *client, at));
            }
            let mut seen = Vec::new();
            while let Some((volume, request)) = queue.pop(|volume| volume as u32 + 1) {
                prop_assert_eq!(volume, request.0);
                seen.push(request);
            }
            prop_assert_eq!(seen.len(), pushes.len());
            for one in 0..seen.len() {
                for other in 0..one {
                    let same = seen[one].0 == seen[other].0 && seen[one].1 == seen[other].1;
                    prop_assert!(!same || seen[one].2 > seen[other].2);
                }
            }
        }
    }
}
