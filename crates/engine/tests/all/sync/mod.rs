//! Resync, recovery, replacement, check and repair, and the clean cache beside them, against slow
//! oracles, in virtual time.

mod cache;
mod check;
mod crash;
mod fill;
mod later;
mod repairs;
mod scarce;
mod speed;
mod stall;
mod world;
