//! A world in virtual time: simulated drives, cores stepped on one thread, power cuts and faults,
//! all from one seed.
//!
//! What a drive promises: a sector write is atomic; a completed write is durable once it was forced
//! (FUA) or a flush that was submitted after its completion has completed. Until then a power cut
//! leaves any version of the sector, each sector on its own. A sector of a write in flight lands,
//! does not, or (by chance) becomes unreadable.
//!
//! Tasks connect to each other by streams with bounded buffers ([`SimWorld::endpoint`]). A core has
//! as many operations in flight as a ring has room for.

mod backend;
mod control;
mod drive;
mod net;
mod service;
mod world;

pub use control::{DriveControl, WriteRecord};
pub use drive::{DriveConfig, DriveSnapshot};
pub use net::SimEndpoint;
pub use service::DriveTotals;
pub use world::{RunOutcome, SimWorld, WorldConfig};
