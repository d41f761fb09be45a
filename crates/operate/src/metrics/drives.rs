//! What drives said of themselves, as samples.

use super::exposition::{Exposition, Labels};
use crate::smart::DriveHealth;

pub(super) fn drive_samples(all: &mut Exposition, drives: &[DriveHealth]) {
    for drive in drives {
        let labels = Labels::new().with("drive", &drive.drive);
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let info = labels
            .with("model", text(&drive.model))
            .with("serial", text(&drive.serial))
            .with("wwn", text(&drive.wwn))
            .with("protocol", text(&drive.protocol));
        all.add("wattle_drive_info", &info, 1);
        let numbers = [
            ("wattle_drive_healthy", drive.is_healthy.map(i64::from)),
            ("wattle_drive_temperature_celsius", drive.temperature_celsius),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                all.add(name, &labels, value);
            }
        }
        let counts = [
            ("wattle_drive_power_on_hours", drive.power_on_hours),
            ("wattle_drive_reallocated_sectors", drive.reallocated),
            ("wattle_drive_pending_sectors", drive.pending),
            ("wattle_drive_offline_uncorrectable_sectors", drive.offline_uncorrectable),
            ("wattle_drive_crc_errors", drive.crc_errors),
            ("wattle_drive_uncorrected_errors", drive.uncorrected_errors),
            ("wattle_drive_asked_timestamp_seconds", drive.asked_secs),
        ];
        for (name, value) in counts {
            if let Some(value) = value {
                all.add(name, &labels, value);
            }
        }
        let shares = [
            ("wattle_drive_spare_ratio", drive.spare_percent),
            ("wattle_drive_used_ratio", drive.used_percent),
        ];
        for (name, value) in shares {
            if let Some(value) = value {
                all.add(name, &labels, f64::from(value) / 100.0);
            }
        }
        if let Some(tenths) = drive.erc_read_deciseconds {
            all.add("wattle_drive_erc_read_seconds", &labels, f64::from(tenths) / 10.0);
        }
    }
}
