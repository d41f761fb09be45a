//! Figures in virtual time: what the production engine makes of modelled drives.
//!
//! Nothing here depends on the machine it runs on. A drive has limits
//! ([`LimitedDrive`](site::LimitedDrive)), processors cost nothing, and equal set-ups give equal
//! figures, so what is measured is the schedule: which operations the engine asks for, in which
//! order, and what waits for what. `sim figures` prints the tables of [`tables`];
//! `tests/figures.rs` holds the engine to its bounds.
//!
//! `wattle_modelled` does the measuring; [`site`] has the drives and arrays, [`load`] what clients
//! ask for, [`limits`] what the drives could do at best.

pub mod costs;
pub mod jobs;
pub mod layers;
pub mod limits;
pub mod load;
pub mod path;
pub mod site;
pub mod tables;

pub use load::{AccessPattern, FigureLoad};
pub use site::{FigureSetup, LimitedDrive};
