//! Disks for virtual machines: the vhost-user protocol with virtio's block device, over the
//! engine's volumes.
//!
//! A hypervisor connects to a volume's socket and shares its guest's memory; the guest's requests
//! are taken out of rings there and completed there, and no other process touches them. `message`
//! is what is said over the socket, `session` one conversation, `disk` what conversations share,
//! `memory` what of a guest is shared, `ring` how requests lie in it, `request` what they ask for,
//! `queue` what carries them out, and `device` what a guest is told of its disk.

mod device;
mod disk;
pub(crate) mod fuzzing;
mod memory;
pub(crate) mod message;
mod queue;
mod request;
mod ring;
mod server;
mod session;

pub use memory::OutsideMemory;
pub use message::MessageFault;
pub use queue::QueueFault;
pub use request::NotARequest;
pub use ring::RingFault;
pub use server::{SocketError, VhostServer, socket_of};
pub use session::SessionFault;
