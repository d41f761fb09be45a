//! The JSON area of LUKS2. Numbers of more than 32 bits are strings in it, binary is base64, and
//! objects stand under their numbers as names.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{LuksDigest, LuksError, LuksKdf, LuksSegment, LuksSlot, damaged, limits};

/// What the JSON says.
pub(super) struct Parts {
    pub slots: Vec<LuksSlot>,
    pub digests: Vec<LuksDigest>,
    pub segments: Vec<LuksSegment>,
    pub tokens: Vec<String>,
    pub allows_discards: bool,
    pub requirements: Vec<String>,
}

#[derive(Deserialize)]
struct Root {
    keyslots: BTreeMap<String, Slot>,
    #[serde(default)]
    tokens: BTreeMap<String, Token>,
    segments: BTreeMap<String, Segment>,
    digests: BTreeMap<String, KeyDigest>,
    config: Config,
}

#[derive(Deserialize)]
struct Slot {
    #[serde(rename = "type")]
    kind: String,
    key_size: u32,
    area: Area,
    kdf: Option<Kdf>,
    af: Option<Split>,
    priority: Option<u8>,
}

#[derive(Deserialize)]
struct Area {
    offset: String,
    size: String,
    encryption: Option<String>,
    key_size: Option<u32>,
}

#[derive(Deserialize)]
struct Kdf {
    #[serde(rename = "type")]
    kind: String,
    salt: String,
    hash: Option<String>,
    iterations: Option<u32>,
    time: Option<u32>,
    memory: Option<u32>,
    cpus: Option<u32>,
}

#[derive(Deserialize)]
struct Split {
    stripes: u32,
    hash: String,
}

#[derive(Deserialize)]
struct Token {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Segment {
    #[serde(rename = "type")]
    kind: String,
    offset: String,
    size: String,
    iv_tweak: Option<String>,
    encryption: Option<String>,
    sector_size: Option<u32>,
    integrity: Option<Integrity>,
    #[serde(default)]
    flags: Vec<String>,
}

#[derive(Deserialize)]
struct Integrity {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct KeyDigest {
    keyslots: Vec<String>,
    segments: Vec<String>,
    hash: String,
    iterations: u32,
    salt: String,
    digest: String,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    requirements: Requirements,
}

#[derive(Deserialize, Default)]
struct Requirements {
    #[serde(default)]
    mandatory: Vec<String>,
}

/// Reads a JSON area up to its first zero byte.
pub(super) fn parse(area: &[u8]) -> Result<Parts, LuksError> {
    let root: Root = serde_json::from_slice(area).map_err(|error| damaged(format!("its JSON: {error}")))?;
    let mut slots = Vec::new();
    for (name, slot) in root.keyslots {
        let id = number(&name)?;
        // What a re-encryption keeps of its progress holds no key.
        if slot.kind == "luks2" && id < limits::SLOTS {
            slots.push(slot.read(id).ok_or_else(|| damaged(format!("key slot {id}")))?);
        }
    }
    slots.sort_by_key(|slot| slot.id);
    let digests = root.digests.into_iter();
    let digests = digests.map(|(name, digest)| {
        let read = digest.read();
        read.ok_or_else(|| damaged(format!("digest {name}")))
    });
    // The copies that a re-encryption keeps of what there was are marked as backups.
    let segments = root.segments.into_iter();
    let segments = segments.filter(|(_, segment)| !segment.flags.iter().any(|flag| is_backup(flag)));
    let segments = segments.map(|(name, segment)| {
        let read = number(&name).ok().and_then(|id| segment.read(id));
        read.ok_or_else(|| damaged(format!("segment {name}")))
    });
    let mut segments = segments.collect::<Result<Vec<_>, _>>()?;
    segments.sort_by_key(|segment| segment.offset_bytes);
    Ok(Parts {
        slots,
        digests: digests.collect::<Result<_, _>>()?,
        segments,
        tokens: root.tokens.into_values().map(|token| token.kind).collect(),
        allows_discards: root.config.flags.iter().any(|flag| flag == "allow-discards"),
        requirements: root.config.requirements.mandatory,
    })
}

fn is_backup(flag: &str) -> bool {
    flag.starts_with("backup-")
}

impl Slot {
    fn read(self, id: u32) -> Option<LuksSlot> {
        let (kdf, split) = (self.kdf?, self.af?);
        let start: u64 = self.area.offset.parse().ok()?;
        Some(LuksSlot {
            id,
            key_bytes: self.key_size,
            area: start..start.checked_add(self.area.size.parse().ok()?)?,
            cipher: self.area.encryption?,
            cipher_key_bytes: self.area.key_size?,
            kdf: kdf.read()?,
            stripes: split.stripes,
            split_hash: split.hash,
            priority: self.priority.unwrap_or(1),
            out_of_bounds: None,
        })
    }
}

impl Kdf {
    fn read(self) -> Option<LuksKdf> {
        let salt = STANDARD.decode(self.salt).ok()?;
        Some(match self.kind.as_str() {
            "pbkdf2" => LuksKdf::Pbkdf2 { hash: self.hash?, iterations: self.iterations?, salt },
            "argon2i" | "argon2id" => LuksKdf::Argon2 {
                is_id: self.kind == "argon2id",
                time: self.time?,
                memory_kib: self.memory?,
                lanes: self.cpus?,
                salt,
            },
            // It is shown to people.
            kind if kind.len() > 64 || kind.chars().any(char::is_control) => return None,
            _ => LuksKdf::Unknown { name: self.kind },
        })
    }
}

impl Segment {
    fn read(self, id: u32) -> Option<LuksSegment> {
        Some(LuksSegment {
            id,
            offset_bytes: self.offset.parse().ok()?,
            len_bytes: match self.size.as_str() {
                "dynamic" => None,
                size => Some(size.parse().ok()?),
            },
            iv_tweak: self.iv_tweak.map_or(Some(0), |tweak| tweak.parse().ok())?,
            cipher: match self.kind.as_str() {
                "crypt" => self.encryption?,
                _ => String::new(),
            },
            sector_bytes: self.sector_size.unwrap_or(512),
            integrity: self.integrity.map(|integrity| integrity.kind),
            kind: self.kind,
        })
    }
}

impl KeyDigest {
    fn read(self) -> Option<LuksDigest> {
        let numbers =
            |names: Vec<String>| names.iter().map(|name| name.parse().ok()).collect::<Option<Vec<u32>>>();
        Some(LuksDigest {
            slots: numbers(self.keyslots)?,
            segments: numbers(self.segments)?,
            hash: self.hash,
            iterations: self.iterations,
            salt: STANDARD.decode(self.salt).ok()?,
            value: STANDARD.decode(self.digest).ok()?,
        })
    }
}

fn number(name: &str) -> Result<u32, LuksError> {
    // There is one way to write a number, so that there are no more objects than numbers.
    let number = name.parse().ok().filter(|number: &u32| number.to_string() == name);
    number.ok_or_else(|| damaged(format!("`{}` where a number belongs", name.escape_debug())))
}
