//! Resync, recovery, replacement, check and repair against slow oracles, in virtual time.

mod check;
mod crash;
mod fill;
mod later;
mod speed;
mod stall;
mod world;
