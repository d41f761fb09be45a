//! What an order to a server says of the map of a copy.

use serde::{Deserialize, Serialize};
use wattle_control::members::MapChoice;
use wattle_rt::path_of_text;

/// The map of a member that is taken, which is a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapOrder {
    /// This file, absolute: the server has another working directory. Its path as text
    /// ([`wattle_rt::text_of_path`]).
    At(String),
    /// None, whatever lies beside the member.
    Without,
}

impl From<MapOrder> for MapChoice {
    fn from(order: MapOrder) -> Self {
        match order {
            MapOrder::At(path) => Self::At(path_of_text(&path).into_owned()),
            MapOrder::Without => Self::Without,
        }
    }
}
