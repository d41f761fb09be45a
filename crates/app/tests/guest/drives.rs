//! What drives say of themselves: QEMU's NVMe and ATA drives, asked by the real smartctl.

use std::fs::File;
use std::path::PathBuf;

use serde_json::Value;

use crate::judge::Guest;
use crate::programs::programs;

/// `NVM Subsystem Reliability degraded`, a bit of the critical warning in the SMART log.
const RELIABILITY_DEGRADED: &str = "smart_critical_warning=4";

pub fn say_of_themselves(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let disk = |kind: &str, nth: u32, properties: &str| -> PathBuf {
        let path = scratch.path().join(format!("disk{nth}"));
        File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("scratch space");
        format!("{kind}:{}{properties}", path.display()).into()
    };
    let disks =
        [disk("nvme", 0, ""), disk("nvme", 1, &format!(",{RELIABILITY_DEGRADED}")), disk("ata", 2, "")];
    let files = programs(scratch.path(), &[]);
    let text = guest.text_with("drives", &files, &disks, &[("GUEST_MEM", "2048")]);
    let lines = |mark: &str| -> Vec<String> {
        let of = |line: &str| line.strip_prefix(mark).map(str::to_owned);
        text.lines().filter_map(of).collect()
    };

    let status: Value = serde_json::from_str(&lines("STATUS ")[0]).expect("status is JSON");
    let ours = status["arrays"][0]["smart"].as_array().expect("every member's drive");
    let theirs = lines("DRIVE ");
    assert_eq!((theirs.len(), ours.len()), (3, 3), "{text}");
    let of = |name: &str| ours.iter().find(|one| one["drive"] == name).expect("each drive is below a member");
    for said in &theirs {
        let (name, said) = said.split_once(' ').expect("a drive and what it said");
        let said: Value = serde_json::from_str(said).expect("smartctl writes JSON");
        let health = &of(name)["health"];
        for (own, pointer) in [
            ("protocol", "/device/protocol"),
            ("model", "/model_name"),
            ("serial", "/serial_number"),
            ("is_healthy", "/smart_status/passed"),
            ("power_on_hours", "/power_on_time/hours"),
            ("temperature_celsius", "/temperature/current"),
        ] {
            let theirs =
                said.pointer(pointer).unwrap_or_else(|| panic!("{name}: smartctl has no {pointer}: {said}"));
            assert_eq!(&health[own], theirs, "{name}: {own}");
        }
    }
    assert_eq!(of("/dev/nvme1n1")["health"]["is_healthy"], false, "{ours:?}");
    assert_eq!(of("/dev/sda")["health"]["is_healthy"], true, "{ours:?}");

    let told = lines("TOLD ");
    let failing: Vec<&String> = told.iter().filter(|line| line.starts_with("SmartFailing ")).collect();
    assert_eq!(failing.len(), 1, "{text}");
    assert!(failing[0].contains("nvme1n1"), "{text}");
    assert!(lines("SHOWN ").iter().any(|line| line.contains("nvme1n1") && line.contains("fail")), "{text}");
}
