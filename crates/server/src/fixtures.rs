//! Reports made up for tests.

use crate::protocol::report::{
    ArrayReport, Counters, Health, JobStatus, MemberReport, RequestsReport, SeatState,
};

/// A whole array on members of these names.
pub fn array(name: &str, level: &str, members: &[&str]) -> ArrayReport {
    let member = |(slot, name): (u16, &&str)| MemberReport {
        slot,
        member: Some((*name).to_owned()),
        state: SeatState::InSync,
        ..MemberReport::default()
    };
    ArrayReport {
        name: name.to_owned(),
        uuid: Some("d4456855:878c1153:a132709f:86ddf6a8".to_owned()),
        level: level.to_owned(),
        layout: Some("left-symmetric".to_owned()),
        chunk_bytes: Some(64 << 10),
        size_bytes: 21 << 20,
        io_min_bytes: 0,
        io_opt_bytes: 0,
        health: Health::Good,
        slots: format!("[{}]", "U".repeat(members.len())),
        state: "clean".to_owned(),
        synced: true,
        read_only: false,
        blank: false,
        exports: Vec::new(),
        notes: Vec::new(),
        degraded: 0,
        redundancy_left: Some(1),
        members: (0..).zip(members).map(member).collect(),
        replacements: Vec::new(),
        spares: Vec::new(),
        metadata: Some("1.2".to_owned()),
        layout_code: Some(2),
        member_bytes: Some(7 << 20),
        consistency: Some("bitmap".to_owned()),
        bitmap: None,
        record: None,
        sync: None,
        paused: false,
        scrubs: Vec::new(),
        settings: std::collections::BTreeMap::new(),
        events: Vec::new(),
        counters: Counters::default(),
        requests: RequestsReport::default(),
        cache: None,
        tuning: Vec::new(),
        recorded: None,
    }
}

/// Background work that is so far.
pub fn sync(action: &str, done_bytes: u64, total_bytes: u64) -> JobStatus {
    JobStatus {
        action: action.to_owned(),
        members: Vec::new(),
        done_bytes,
        total_bytes,
        speed_bytes_per_sec: 26_691 << 10,
        remaining_secs: Some(34),
        paused: false,
        limited_by: None,
        mismatch_sectors: 0,
    }
}
