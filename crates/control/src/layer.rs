//! What runs of a stack: arrays and maps, each on what lies below.

use wattle_engine::{ArrayHandle, MappedHandle};
use wattle_rt::Core;

use crate::problem::{Code, Problem};

/// A layer that runs.
#[derive(Debug)]
pub(crate) enum Layer {
    /// An array: of md, of one drive as it is, or under a logical volume.
    Array(ArrayHandle),
    /// A map.
    Mapped(MappedHandle),
}

impl Layer {
    /// Stops it.
    ///
    /// # Errors
    /// A [`Problem`]: an array could not be recorded clean.
    pub async fn stop(&self, core: &Core) -> Result<(), Problem> {
        let array = match self {
            Self::Mapped(mapped) => {
                mapped.stop(core).await;
                return Ok(());
            }
            Self::Array(array) => array,
        };
        array.stop(core).await.map_err(|error| {
            Problem::new(
                Code::VolumeFailed,
                format!("{}: stopping it: {error}", array.volume().name()),
                "it could not be recorded clean",
                "see what is wrong with its members (`wattle scan`)",
            )
        })
    }
}
