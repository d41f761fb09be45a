//! Backups of texts before they are replaced: one file each, as vgcfgrestore and
//! `wattle vg restore` read them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use wattle_control::lvm::plan::Before;
use wattle_control::{Code, Problem};
use wattle_rt::Core;

/// More is no text of LVM2's.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Where a text is saved: in the directory asked for, or else in `backups`.
///
/// # Errors
/// There is no directory for it.
pub fn path(asked: Option<&Path>, backups: Option<&Path>, before: &Before) -> Result<PathBuf, Problem> {
    let dir = asked.or(backups).ok_or_else(|| {
        Problem::new(
            Code::BackupNotWritten,
            format!("there is no place for a backup of {}", before.name),
            "this user has no home, and no state directory is set; nothing was changed",
            "name one with --backup-dir DIR",
        )
    })?;
    let id = before.id.to_string();
    let name: String =
        before.name.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
    Ok(dir.join(format!("{name}_{:05}-{}.vg", before.seqno, &id[..6])))
}

/// Saves a text, durably.
///
/// # Errors
/// It cannot be written.
pub fn save(path: &Path, before: &Before, why: &str) -> Result<(), Problem> {
    write(path, &commented(before, why)).map_err(|error| not_written(path, &error))
}

/// A text with a comment of one line before it, whatever the names in that hold.
fn commented(before: &Before, why: &str) -> Vec<u8> {
    let comment = format!("# {} at sequence number {}, before `wattle {why}`", before.name, before.seqno);
    let shown = comment.chars().filter(|c| !c.is_control());
    let mut text = shown.chain("\n\n".chars()).collect::<String>().into_bytes();
    text.extend(&before.text);
    text
}

/// The same beside a core whose clients are not to wait for the disk that backups go to. It may be
/// one of theirs.
///
/// # Errors
/// It cannot be written.
pub async fn save_beside(core: &Core, path: &Path, before: &Before, why: &str) -> Result<(), Problem> {
    let saving = (path.to_owned(), before.clone(), why.to_owned());
    let saved = core.offload(move || save(&saving.0, &saving.1, &saving.2)).await;
    saved.unwrap_or_else(|error| Err(not_written(path, &error)))
}

fn not_written(path: &Path, error: &dyn std::error::Error) -> Problem {
    Problem::new(
        Code::BackupNotWritten,
        format!("{}: {error}", path.display()),
        "the text that is about to be replaced is saved first; nothing was changed",
        "make room or permissions there, or name another directory with --backup-dir DIR",
    )
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Of this process alone: another command may save the same text at this moment.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let saved = file.write_all(text).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, path));
    if let Err(error) = saved {
        // What is left of it takes room where there may be none.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    File::open(dir)?.sync_all()
}

/// Reads a backup.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    let text = fs::metadata(path).and_then(|metadata| match metadata.len() {
        // A drive has no length here and no end that memory could hold.
        _ if !metadata.is_file() => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
        0..=FILE_BYTES_MAX => fs::read(path),
        _ => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
    });
    text.map_err(|error| {
        Problem::new(
            Code::NotFound,
            format!("{}: {error}", path.display()),
            "the backup cannot be read",
            "see the backup directory: `wattle vg restore --help` says where",
        )
    })
}

#[cfg(test)]
mod tests {
    use wattle_format::lvm::{Id, Stamp, Vg};

    use super::*;

    /// A name of a member may have any character.
    #[test]
    fn a_backup_can_be_read_whatever_the_command_named() {
        let stamp = Stamp { description: String::new(), host: "h".to_owned(), time: 1 };
        let vg = Vg::new("data", Id::from_random([7; 32]), 8);
        let before = Before { name: vg.name.clone(), id: vg.id, seqno: 1, text: vg.to_text(&stamp) };
        for why in ["lv move data --from n\nb.img", "pv resize a\r\u{85}\u{7f}b", "vg rename data"] {
            let text = commented(&before, why);
            assert_eq!(Vg::parse(&text).map(|vg| vg.id), Ok(vg.id), "{why:?}");
        }
    }
}
