//! What operators and auditors of an array have at hand.

use wattle_rt::Device;

use crate::books::Books;
use crate::client::SharedHistory;
use crate::site::SitePlan;
use crate::watch;

/// What an operator has at hand.
#[derive(Clone)]
pub struct Desk {
    /// The drives from outside.
    pub plan: SitePlan,
    /// The drives as members, by number.
    pub drives: Vec<Device>,
    /// Which books are kept.
    pub books: Books,
    /// Where events are told.
    pub truth: SharedHistory,
    /// Which drives the records count out.
    pub watch: watch::SharedWatch,
}
