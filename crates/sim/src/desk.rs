//! What operators and auditors of an array have at hand.

use wattle_rt::Device;

use crate::client::SharedHistory;
use crate::metadata::MetadataModel;
use crate::site::SitePlan;
use crate::watch;

/// What an operator has at hand.
#[derive(Clone)]
pub struct Desk {
    /// The drives from outside.
    pub plan: SitePlan,
    /// The drives as members, by number.
    pub drives: Vec<Device>,
    /// Which metadata the array has.
    pub metadata: MetadataModel,
    /// Where events are told.
    pub truth: SharedHistory,
    /// Which drives the records count out.
    pub watch: watch::SharedWatch,
}
