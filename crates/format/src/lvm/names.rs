//! What VGs and LVs may be called: lvm(8).

/// Names become part of device names, which end here.
const MAX_BYTES: usize = 127;
/// So long are the names of a VG and an LV together, for the same reason.
const BOTH_BYTES_MAX: usize = 125;
const RESERVED: [&str; 2] = ["snapshot", "pvmove"];
/// Marks of LVs that are part of another.
const RESERVED_PARTS: [&str; 17] = [
    "_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_imeta", "_iorig", "_mimage", "_mlog", "_pmspare",
    "_rimage", "_rmeta", "_tdata", "_tmeta", "_vdata", "_vorigin", "_wcorig",
];

/// Why something cannot be called so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or too long.
    #[error("a name has 1 to {MAX_BYTES} characters")]
    Length,
    /// Something else than LVM2 allows.
    #[error("names are made of a-z, A-Z, 0-9, +, _, . and -, do not start with -, and are not . or ..")]
    Characters,
    /// The names of a VG and an LV are too long together.
    #[error("the names of a group and a volume have at most {BOTH_BYTES_MAX} characters together")]
    Both,
    /// LVM2 uses it itself.
    #[error("LVM2 calls parts of volumes so")]
    Reserved,
}

/// Whether a VG can have this name.
pub fn check_vg_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() || name.len() > MAX_BYTES {
        return Err(NameError::Length);
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+_.-".contains(&byte);
    if name.starts_with('-') || name == "." || name == ".." || !name.bytes().all(allowed) {
        return Err(NameError::Characters);
    }
    Ok(())
}

/// Whether an operator's LV can have this name.
pub fn check_lv_name(name: &str) -> Result<(), NameError> {
    check_vg_name(name)?;
    if RESERVED.iter().any(|reserved| name.starts_with(reserved))
        || RESERVED_PARTS.iter().any(|part| name.contains(part))
    {
        return Err(NameError::Reserved);
    }
    Ok(())
}

/// Whether an LV, a hidden one too, can have its name in a VG of this name. LVM2 writes no text of
/// a VG with one that cannot.
pub fn check_names_together(vg: &str, lv: &str) -> Result<(), NameError> {
    if vg.len() + lv.len() > BOTH_BYTES_MAX { Err(NameError::Both) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_used() {
        for name in ["a", "a+b.c-d_E9", "...", &"x".repeat(127)] {
            assert_eq!(check_lv_name(name), Ok(()), "{name}");
        }
        let rows = [
            ("", NameError::Length),
            (&"x".repeat(128), NameError::Length),
            ("-a", NameError::Characters),
            ("..", NameError::Characters),
            ("a/b", NameError::Characters),
            ("é", NameError::Characters),
            ("snapshot1", NameError::Reserved),
            ("pvmove0", NameError::Reserved),
            ("a_rimage_0", NameError::Reserved),
            ("a_cvol", NameError::Reserved),
        ];
        for (name, error) in rows {
            assert_eq!(check_lv_name(name), Err(error), "{name}");
        }
        assert_eq!(check_vg_name("pvmove0"), Ok(()));
        let name = "x".repeat(70);
        assert_eq!(check_names_together(&name, &name[..55]), Ok(()));
        assert_eq!(check_names_together(&name, &name[..56]), Err(NameError::Both));
    }
}
