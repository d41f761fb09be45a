//! How a machine's arrays reach the people that operate them.
//!
//! [`http`] is the server and the client that everything else here uses. [`metrics`] renders what
//! servers report for Prometheus. [`alerts`] decides what has to be told, keeps what was told, and
//! delivers it. [`console`] is the page. [`smart`] asks drives about themselves, [`snmp`] answers
//! an SNMP agent. [`config`] reads what a service shall run. [`scrub_files`] is how files
//! are named that lie where a check found something.
//!
//! **Invariants.**
//! 1. What is told of an array comes from its server's control socket: nothing here touches a
//!    member, and a fault here costs no request of a client.
//! 2. Everything that a peer can make a process hold is bounded: connections, headers, bodies,
//!    time.
//! 3. Nothing here reads arguments or the environment, prints, or knows of terminals.

pub mod alerts;
pub mod config;
pub mod console;
pub mod http;
pub mod metrics;
mod redundancy;
pub mod scrub_files;
pub mod smart;
pub mod snmp;
