//! Headers of LUKS as cryptsetup makes them, and as damage leaves them.

use crate::common::{LUKS1, LUKS2_JSON};
use wattle_format::fuzzing::luks_header;
use wattle_format::luks::{HeaderSource, LuksError, LuksHeader, LuksKdf, SECOND_AT, read};

fn parse(device: &[u8]) -> Result<LuksHeader, LuksError> {
    read(&mut |at, len| device.get(at as usize..at as usize + len).map(<[u8]>::to_vec))
}

/// The same JSON with something else in it.
fn changed(from: &str, to: &str) -> Result<LuksHeader, LuksError> {
    let json = std::str::from_utf8(LUKS2_JSON).unwrap();
    assert!(json.contains(from), "{json}");
    parse(&luks_header(json.replacen(from, to, 1).as_bytes()))
}

#[test]
fn a_first_version_is_read() {
    let header = parse(LUKS1).unwrap();
    let [slot] = &header.slots[..] else { panic!("{header:?}") };
    assert_eq!((header.version, slot.id, slot.key_bytes, slot.stripes), (1, 0, 64, 4000));
    assert_eq!((slot.area.start, slot.area.end - slot.area.start), (4096, 256_000));
    assert!(matches!(&slot.kdf, LuksKdf::Pbkdf2 { hash, iterations: 1000, .. } if hash == "sha256"));
    assert_eq!(header.segments[0].cipher, "aes-xts-plain64");
    assert_eq!(header.segments[0].sector_bytes, 512);
    assert_eq!(header.digests[0].value.len(), 20);
}

#[test]
fn a_second_version_is_read() {
    let header = parse(&luks_header(LUKS2_JSON)).unwrap();
    assert_eq!((header.version, header.source), (2, HeaderSource::First));
    let [slot] = &header.slots[..] else { panic!("{header:?}") };
    assert_eq!(slot.area, 32_768..32_768 + 258_048);
    assert_eq!((slot.kdf.name(), slot.kdf.memory_bytes()), ("argon2id", 4 << 20));
    assert_eq!((header.segments[0].offset_bytes, header.segments[0].len_bytes), (16 << 20, None));
    assert_eq!(header.segments[0].sector_bytes, 4096);
}

#[test]
fn what_cannot_be_carried_out_is_damage() {
    let damages = [
        ("\"key_size\":64", "\"key_size\":0"),
        ("\"stripes\":4000", "\"stripes\":0"),
        ("\"stripes\":4000", "\"stripes\":4294967295"),
        ("\"size\":\"258048\"", "\"size\":\"1000\""),
        ("\"offset\":\"32768\"", "\"offset\":\"18446744073709551615\""),
        ("\"time\":4", "\"time\":0"),
        ("\"memory\":4096", "\"memory\":1"),
        ("\"cpus\":2", "\"cpus\":0"),
        ("\"cpus\":2", "\"cpus\":4294967295"),
        ("\"iterations\":1000", "\"iterations\":4294967295"),
        ("\"sector_size\":4096", "\"sector_size\":8192"),
        ("\"sector_size\":4096", "\"sector_size\":520"),
        ("\"digest\":\"xg1u", "\"digest\":\"!!!!"),
        ("\"keyslots\":{\"0\"", "\"keyslots\":{\"zero\""),
        ("\"config\":", "\"other\":"),
    ];
    for (from, to) in damages {
        assert!(matches!(changed(from, to), Err(LuksError::Damaged(_))), "{from} -> {to}");
    }
    assert_eq!(parse(&[0; 8192]), Err(LuksError::NotLuks));
    let mut third = *LUKS1;
    third[7] = 3;
    assert_eq!(parse(&third), Err(LuksError::UnknownVersion(3)));
    assert!(parse(&LUKS1[..500]).is_err());
}

/// A slot that a later program made says nothing against the others, and nothing is wrong with the
/// header: it is no damage, for which a backup of the header would be restored.
#[test]
fn a_slot_beyond_what_is_carried_out_is_left_out() {
    let longer = changed("\"key_size\":64", "\"key_size\":96").unwrap_err();
    assert_eq!(
        longer.to_string(),
        "its LUKS header is damaged: key slot 0: its area is too small for its key"
    );
    let json = std::str::from_utf8(LUKS2_JSON).unwrap();
    let larger = json.replace("\"size\":\"258048\"", "\"size\":\"516096\"");
    for (from, to, why) in [
        ("\"key_size\":64", "\"key_size\":96", "its key has 96 bytes"),
        ("\"time\":4", "\"time\":4294967295", "Argon2 4294967295 times over 4096 KiB in 2 lanes"),
        ("\"cpus\":2", "\"cpus\":65", "Argon2 4 times over 4096 KiB in 65 lanes"),
        ("\"type\":\"argon2id\"", "\"type\":\"scrypt\"", "the key derivation `scrypt` is not known"),
    ] {
        assert!(larger.contains(from), "{larger}");
        let header = parse(&luks_header(larger.replacen(from, to, 1).as_bytes())).unwrap();
        assert_eq!(header.slots[0].out_of_bounds.as_deref(), Some(why));
    }
    assert_eq!(parse(&luks_header(larger.as_bytes())).unwrap().slots[0].out_of_bounds, None);
}

/// A header that was copied to another place is none: it says where it lies.
#[test]
fn of_two_headers_the_newer_valid_one_counts() {
    let first = luks_header(LUKS2_JSON);
    let mut device = first.clone();
    device.extend(first.clone());
    device[0x4000..0x4006].copy_from_slice(b"SKUL\xba\xbe");
    assert_eq!(parse(&device).unwrap().source, HeaderSource::First);
    device[0] = 0;
    assert_eq!(parse(&device), Err(LuksError::NotLuks), "the second says that it lies at 0");
    assert_eq!(SECOND_AT[0], 0x4000);
}
