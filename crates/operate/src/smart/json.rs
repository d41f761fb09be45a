//! The JSON of smartctl, as far as it is used.
//!
//! Every field is looked for and none has to be there: drives, bridges and versions differ.

use serde_json::Value;
use wattle_control::{Code, Problem};

use super::DriveHealth;

/// A command line that is not understood, and a device that cannot be opened.
const NOT_ASKED: u64 = 0b11;

/// What the drive said, from what smartctl wrote.
///
/// # Errors
/// It is no JSON of smartctl, or the drive could not be asked: then with smartctl's own words.
pub fn parse(drive: &str, text: &[u8]) -> Result<DriveHealth, Problem> {
    let json: Value = serde_json::from_slice(text).map_err(|error| {
        not_asked(
            drive,
            format!("smartctl did not answer in JSON: {error}"),
            "smartctl 7.0 or later is needed",
        )
    })?;
    let exit = number(&json, "/smartctl/exit_status").unwrap_or(0);
    let has_model = json.pointer("/model_name").is_some() || json.pointer("/scsi_model_name").is_some();
    if exit & NOT_ASKED != 0 && !has_model {
        let messages = json.pointer("/smartctl/messages").and_then(Value::as_array);
        let said = messages.into_iter().flatten().filter_map(|message| message.get("string")?.as_str());
        let said = said.collect::<Vec<_>>().join("; ");
        let why = if said.is_empty() { "smartctl did not say why".to_owned() } else { said };
        return Err(not_asked(drive, why, "run it as root, and try `smartctl -a` with the drive"));
    }
    let text = |path: &str| json.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let errors = |op: &str| number(&json, &format!("/scsi_error_counter_log/{op}/total_uncorrected_errors"));
    let scsi_errors = [errors("read"), errors("write"), errors("verify")];
    let scsi_errors = scsi_errors.iter().any(Option::is_some).then(|| scsi_errors.iter().flatten().sum());
    let nvme = |name: &str| number(&json, &format!("/nvme_smart_health_information_log/{name}"));
    Ok(DriveHealth {
        drive: drive.to_owned(),
        protocol: text("/device/protocol"),
        model: text("/model_name").or_else(|| text("/scsi_model_name")),
        serial: text("/serial_number"),
        wwn: wwn(&json).or_else(|| text("/logical_unit_id")),
        is_healthy: json.pointer("/smart_status/passed").and_then(Value::as_bool),
        power_on_hours: number(&json, "/power_on_time/hours").or_else(|| nvme("power_on_hours")),
        temperature_celsius: json.pointer("/temperature/current").and_then(Value::as_i64),
        reallocated: attribute(&json, 5).or_else(|| number(&json, "/scsi_grown_defect_list")),
        pending: attribute(&json, 197).or_else(|| number(&json, "/scsi_pending_defects/count")),
        offline_uncorrectable: attribute(&json, 198),
        crc_errors: attribute(&json, 199),
        uncorrected_errors: attribute(&json, 187).or(scsi_errors).or_else(|| nvme("media_errors")),
        spare_percent: nvme("available_spare").and_then(|value| value.try_into().ok()),
        used_percent: nvme("percentage_used")
            .or_else(|| number(&json, "/scsi_percentage_used_endurance_indicator"))
            .and_then(|value| value.try_into().ok()),
        erc_read_deciseconds: erc(&json),
        asked_secs: number(&json, "/local_time/time_t"),
    })
}

/// Drives that do not limit their tries say so, or have no figure.
fn erc(json: &Value) -> Option<u32> {
    let read = json.pointer("/ata_sct_erc/read")?;
    match read.get("enabled").and_then(Value::as_bool) {
        Some(false) => Some(0),
        _ => read.get("deciseconds")?.as_u64()?.try_into().ok(),
    }
}

fn number(json: &Value, path: &str) -> Option<u64> {
    json.pointer(path).and_then(Value::as_u64)
}

/// What an ATA attribute counts: the number that its text begins with. The raw value may hold
/// further fields of the maker's above it; smartctl knows drives and leaves these out of the text.
fn attribute(json: &Value, id: u64) -> Option<u64> {
    let table = json.pointer("/ata_smart_attributes/table")?.as_array()?;
    let row = table.iter().find(|row| row.get("id").and_then(Value::as_u64) == Some(id))?;
    let text = row.pointer("/raw/string").and_then(Value::as_str);
    let digits = text.map(|text| text.chars().take_while(char::is_ascii_digit).collect::<String>());
    digits.and_then(|digits| digits.parse().ok()).or_else(|| row.pointer("/raw/value")?.as_u64())
}

/// As udev and the kernel write it: 16 hexadecimal digits.
fn wwn(json: &Value) -> Option<String> {
    let part = |name: &str| number(json, &format!("/wwn/{name}"));
    let (naa, oui, id) = (part("naa")?, part("oui")?, part("id")?);
    Some(format!("0x{naa:x}{oui:06x}{id:09x}"))
}

pub(super) fn not_asked(drive: &str, why: impl Into<String>, next: &str) -> Problem {
    Problem::new(Code::DriveNotAsked, format!("{drive} could not be asked about itself"), why, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> DriveHealth {
        let path = format!("{}/tests/smartctl/{name}.json", env!("CARGO_MANIFEST_DIR"));
        parse("/dev/sdx", &std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn a_failing_ata_drive_is_told_in_figures() {
        let drive = fixture("ata-failing");
        assert_eq!(drive.is_healthy, Some(false));
        assert_eq!(
            (drive.reallocated, drive.pending, drive.offline_uncorrectable),
            (Some(1975), Some(8), Some(0))
        );
        assert_eq!((drive.crc_errors, drive.power_on_hours), (Some(3), Some(65592)));
        assert_eq!(drive.temperature_celsius, Some(25));
        assert_eq!(drive.wwn.as_deref(), Some("0x5000cca37fc9a228"));
        assert_eq!((drive.erc_read_deciseconds, drive.asked_secs), (Some(70), Some(1_637_039_918)));
        assert_eq!(drive.protocol.as_deref(), Some("ATA"));
    }

    #[test]
    fn sas_and_nvme_have_words_of_their_own() {
        let sas = fixture("sas");
        assert_eq!(
            (sas.is_healthy, sas.reallocated, sas.uncorrected_errors),
            (Some(true), Some(56), Some(2))
        );
        assert_eq!((sas.power_on_hours, sas.temperature_celsius), (Some(43549), Some(34)));
        assert_eq!(
            (sas.model.as_deref(), sas.wwn.as_deref()),
            (Some("MAKER SAS4000"), Some("0x5000c50012345678"))
        );
        let nvme = fixture("nvme");
        assert_eq!(
            (nvme.spare_percent, nvme.used_percent, nvme.uncorrected_errors),
            (Some(98), Some(103), Some(4))
        );
        assert_eq!((nvme.is_healthy, nvme.power_on_hours), (Some(false), Some(2401)));
        assert_eq!((nvme.crc_errors, nvme.erc_read_deciseconds), (None, None));
    }

    #[test]
    fn a_drive_that_was_not_asked_is_a_problem_in_smartctls_words() {
        let text = br#"{"smartctl":{"exit_status":2,"messages":[{"string":"Smartctl open device: /dev/sdx failed: Permission denied","severity":"error"}]}}"#;
        let problem = parse("/dev/sdx", text).unwrap_err();
        assert_eq!(problem.code, Code::DriveNotAsked);
        assert!(problem.why.contains("Permission denied"));
        for bad in [&b""[..], b"smartctl: not found", b"[1", b"\xff"] {
            assert_eq!(parse("/dev/sdx", bad).unwrap_err().code, Code::DriveNotAsked);
        }
        for odd in [&b"{}"[..], b"[]", b"1", br#"{"ata_smart_attributes":{"table":[1,{"id":5}]},"wwn":7}"#] {
            let drive = parse("/dev/sdx", odd).unwrap();
            assert_eq!(drive, DriveHealth { drive: "/dev/sdx".to_owned(), ..DriveHealth::default() });
        }
    }
}
