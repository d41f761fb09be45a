//! What operators and auditors of an array have at hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use wattle_rt::Device;

use crate::client::SharedHistory;
use crate::metadata::MetadataModel;
use crate::site::SitePlan;
use crate::watch;
use crate::wire::Wire;

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
    /// The ways to drives that lie across a network, by slot.
    pub wires: BTreeMap<u16, Arc<Wire>>,
    /// Slots of those whose member an operator failed.
    pub ordered: Arc<Mutex<BTreeSet<u16>>>,
    /// Slots whose member the array neither had nor took back when it was started: a crash came
    /// while it was written down that the member is back, or others came back after it left. Only
    /// an order takes it in.
    pub unknown: Arc<Mutex<BTreeSet<u16>>>,
    /// Orders are not remembered: a planted bug.
    pub forgets_orders: bool,
    /// Which drives the records count out.
    pub watch: watch::SharedWatch,
}
