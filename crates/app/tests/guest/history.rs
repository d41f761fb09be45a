//! Writes to an array that is served, and what they leave there for certain.

use crate::client::Range;
use crate::pattern::Pattern;
use crate::server::Server;

/// Writes that are sent before a kill, and how many of them are acknowledged when it comes.
const WRITES: u64 = 160;
const ACKNOWLEDGED: usize = 50;

/// What was written to an array, and in what order.
pub struct History {
    /// Number of the case: seeds come from it.
    pub k: usize,
    pub sectors: u64,
    pub pattern: Pattern,
}

impl History {
    /// Some ranges in the first quarter, flushed.
    pub fn write(&mut self, server: &Server) {
        let writes = Pattern::scattered(50_000 + self.k as u64, self.sectors / 4, 128);
        server.connect().write_all(&writes.as_writes());
        self.pattern.extend(&writes);
    }

    /// Many writes at once in the first half; the server is killed before they are done.
    pub fn write_and_kill(&mut self, server: Server) {
        let step = self.sectors / 2 / WRITES;
        let writes: Vec<Range> = (0..WRITES)
            .map(|number| {
                // In an order that is not that of the array, whole blocks and parts of them.
                let place = number * 37 % WRITES;
                let count = [8, 16, 1, step, 5, 32][number as usize % 6].min(step);
                Range {
                    seed: 60_000 + self.k as u64,
                    start: place * step + number % 3,
                    count: count.min(step - 2),
                }
            })
            .collect();
        let kill = server.killer();
        let done = server.connect().write_until(&writes, ACKNOWLEDGED, kill);
        server.gone();
        for (write, done) in writes.iter().zip(done) {
            if done {
                self.pattern.written(write.seed, write.start, write.count);
            } else {
                self.pattern.in_flight(write.seed, write.start, write.count);
            }
        }
    }
}
