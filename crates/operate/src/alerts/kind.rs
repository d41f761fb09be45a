//! What alerts are called, and how urgent they are.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How urgent it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertSeverity {
    /// To know.
    Info,
    /// To be looked at.
    Warning,
    /// Data, or what protects it, is at stake.
    Critical,
}

impl AlertSeverity {
    /// As settings and JSON have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for AlertSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

macro_rules! kinds {
    ($($name:ident: $severity:ident, $doc:literal;)*) => {
        /// What an alert is about: mdadm's twelve events under their names, and what mdadm does not
        /// tell.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum AlertKind {
            $(
                #[doc = $doc]
                $name,
            )*
        }

        impl AlertKind {
            /// All of them.
            pub const ALL: &'static [AlertKind] = &[$(AlertKind::$name),*];

            /// Its name. Of [`AlertKind::RebuildNN`] the part that is done takes the place of `NN`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(AlertKind::$name => stringify!($name)),* }
            }

            /// How urgent it is, if nothing makes it more so.
            #[must_use]
            pub fn severity(self) -> AlertSeverity {
                match self { $(AlertKind::$name => AlertSeverity::$severity),* }
            }
        }
    };
}

kinds! {
    Fail: Critical, "A member failed.";
    FailSpare: Critical, "A member failed that was being filled, or a spare.";
    DegradedArray: Critical, "An array lacks members.";
    SparesMissing: Warning, "An array has fewer spares than mdadm.conf says.";
    DeviceDisappeared: Critical, "A server ended without being stopped, or does not answer.";
    SpareActive: Info, "A member that was being filled is in sync.";
    NewArray: Info, "An array was not seen before.";
    MoveSpare: Info, "A spare went from one array to another.";
    RebuildStarted: Info, "Resync or recovery, check or repair started.";
    RebuildNN: Info, "Background work is so far.";
    RebuildFinished: Info, "Background work ended.";
    TestMessage: Info, "A test of the channels.";
    MemberSlow: Warning, "A member answers much later than the others.";
    MismatchFound: Warning, "The last check found what does not agree, or cannot be read.";
    ScrubFinished: Info, "A check or repair ended.";
    ScrubOverdue: Warning, "The last whole check is too long ago.";
    BadBlocksGrew: Warning, "A member has more bad blocks than before.";
    SmartFailing: Critical, "A drive says of itself that it fails.";
    VolumeFull: Warning, "A file system on a volume is nearly full.";
    RemoteAway: Critical, "A member across a network does not answer.";
    RemoteBack: Info, "A member across a network answers again.";
    WriteHoleRisk: Warning, "A degraded array is written without a log: a crash now can lose data.";
    Recovered: Info, "What an alert was about is over.";
}

impl fmt::Display for AlertKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no alert of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKind;

impl FromStr for AlertKind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let known = Self::ALL.iter().find(|kind| kind.name().eq_ignore_ascii_case(name));
        known.copied().ok_or(UnknownKind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs that were written for mdadm compare them.
    #[test]
    fn the_twelve_events_of_mdadm_have_their_names() {
        let twelve = [
            "DeviceDisappeared",
            "RebuildStarted",
            "RebuildNN",
            "RebuildFinished",
            "Fail",
            "FailSpare",
            "SpareActive",
            "NewArray",
            "DegradedArray",
            "MoveSpare",
            "SparesMissing",
            "TestMessage",
        ];
        for name in twelve {
            assert_eq!(name.parse::<AlertKind>().unwrap().name(), name);
        }
        assert_eq!("Failed".parse::<AlertKind>(), Err(UnknownKind));
    }

    #[test]
    fn names_are_those_of_json() {
        for kind in AlertKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
