//! The areas beside a superblock, as far as decisions need them: bitmap header, bad-block log, journal tail, other signatures.

use wattle_format::md::{Features, Fields, Role, Superblock};
use wattle_format::probe::Signature;

use crate::facts::{BadRange, BitmapFacts, JournalFacts, MemberFacts, SuperblockFacts};
use crate::members::{Member, MemberError};

/// What assembly needs of a member with this superblock.
pub(crate) fn member_facts(member: &Member, superblock: &Superblock) -> Result<MemberFacts, MemberError> {
    Ok(MemberFacts {
        name: member.name.clone(),
        size_sectors: member.size_sectors(),
        superblock: superblock_facts(superblock),
        bitmap: BitmapFacts::None,
        bad_blocks: None,
        journal: None,
    })
}

/// The same of a member that is shorter than its superblock says: its areas may be gone.
pub(crate) fn shortened_facts(member: &Member, fields: &Fields) -> MemberFacts {
    MemberFacts {
        name: member.name.clone(),
        size_sectors: member.size_sectors(),
        superblock: superblock_facts(fields),
        bitmap: BitmapFacts::None,
        bad_blocks: Some(Vec::new()),
        journal: None,
    }
}

fn superblock_facts(fields: &Fields) -> SuperblockFacts {
    SuperblockFacts {
        version: fields.version(),
        set_uuid: fields.set_uuid(),
        set_name: fields.md_minor().map_or_else(|| fields.name(), |minor| format!("md{minor}")),
        level: fields.level(),
        layout: fields.layout(),
        chunk_sectors: fields.chunk_sectors(),
        size_sectors: fields.size_sectors(),
        raid_disks: fields.raid_disks(),
        dev_number: fields.dev_number(),
        roles: fields.roles().collect(),
        events: fields.events(),
        ctime_secs: fields.ctime().secs,
        utime_secs: fields.utime().secs,
        resync_offset: fields.resync_offset(),
        recovery_offset: fields.recovery_offset(),
        data_offset_sectors: fields.data_offset_sectors(),
        data_size_sectors: fields.data_size_sectors(),
        features: fields.features(),
    }
}

/// Everything else that is recognised on a member.
pub(crate) fn signatures(_member: &Member) -> Result<Vec<Signature>, MemberError> {
    Ok(Vec::new())
}
