//! `wattle ls` and `wattle get`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;

use super::{Engine, Force, Json, KeyArgs, MapArgs, OverlayArgs, name_text};

/// Where the files are.
#[derive(Debug, Clone, Args)]
pub struct FilesOn {
    /// Files or block devices, in any order, others among them.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// The volume, by name or UUID; needed if several hold file systems.
    #[arg(long, short = 'V', value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Of btrfs, another subvolume than a mount would show; 5 has all others.
    #[arg(long, value_name = "ID")]
    pub subvolume: Option<u64>,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub overlay: OverlayArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub engine: Engine,
}

impl FilesOn {
    /// What is read beside the members: maps, keys, headers and backups.
    pub fn read_beside(&self) -> Vec<PathBuf> {
        read_beside(&self.overlay, &self.maps.keys, &self.maps.maps)
    }
}

/// What a command with these options reads beside its members.
pub fn read_beside(overlay: &OverlayArgs, keys: &KeyArgs, maps: &[OsString]) -> Vec<PathBuf> {
    let plain = [&overlay.backup_files, &keys.passphrases, &keys.key_files, &keys.volume_keys];
    // Of `MEMBER=FILE` either may have further `=` in it.
    let named = maps.iter().chain(&keys.headers).flat_map(|named| {
        let bytes = named.as_bytes();
        let cuts = (0..bytes.len()).filter(|&at| bytes[at] == b'=');
        cuts.map(|at| PathBuf::from(OsStr::from_bytes(&bytes[at + 1..])))
    });
    plain.into_iter().flatten().cloned().chain(named).collect()
}

/// Lists files of the file system on a volume, without mounting it.
///
/// Reads ext2, ext3, ext4, XFS, btrfs, NTFS, HFS+, exFAT and FAT, as any user. Writes nothing to
/// members.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  wattle ls disk*.img                           what is in the root directory
  wattle ls disk*.img --path /home -lR          all below a directory, with attributes
  wattle ls disk*.img -R --json | jq '.entries[] | select(.size_bytes > 1e9) | .path'")]
pub struct LsArgs {
    #[command(flatten)]
    pub on: FilesOn,
    /// The directory or file, from the root of the file system.
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub path: OsString,
    /// Permissions, links, owner, group, size and time of change, too.
    #[arg(long, short)]
    pub long: bool,
    /// Everything below, too.
    #[arg(long, short = 'R')]
    pub recursive: bool,
    #[command(flatten)]
    pub json: Json,
}

/// Copies files out of the file system on a volume, without mounting it.
///
/// Reads ext2, ext3, ext4, XFS, btrfs, NTFS, HFS+, exFAT and FAT, as any user, and writes nothing
/// to members. What comes out keeps its holes, permissions, times and links, and its owner if root
/// does it, which also makes device files. What does not come out is listed with the reason, and
/// the exit status is 1 then.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  wattle get disk*.img --path /home/anna --to rescued
  wattle get disk*.img --to rescued --checksums rescued.sha256
  wattle get disk*.img --to rescued --resume    goes on after the disk was full
  wattle get disk*.img --path /etc/fstab --to -
  wattle get disk*.img --path /home --to - > home.tar    as a tar archive")]
pub struct GetArgs {
    #[command(flatten)]
    pub on: FilesOn,
    /// The file, or the directory with everything below, from the root of the file system.
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub path: OsString,
    /// The directory to put it into, made if it is not there; - writes a file's bytes, or of a
    /// directory a tar archive, to the standard output, and -.tar an archive of either. What reads
    /// a file's bytes may close its end early, as head does; of an archive that is an error.
    #[arg(long, value_name = "DIR", allow_hyphen_values = true)]
    pub to: OsString,
    /// Write the SHA-256 of every file that came out here, for `sha256sum -c` in DIR.
    #[arg(long, value_name = "FILE")]
    pub checksums: Option<OsString>,
    /// Write what came out, and what did not and why, here: every file, what copies among the
    /// members lack, what of the file system is not shown, and the reason of the exit status. As
    /// JSON if FILE ends in .json. A file that is there is replaced with --overwrite and --resume
    /// only.
    #[arg(long, value_name = "FILE")]
    pub report: Option<OsString>,
    /// Go on where it stopped: what is there already and is the same stays, told by size and time,
    /// or by content with --checksums.
    #[arg(long)]
    pub resume: bool,
    /// Keep what can be read of a damaged file as NAME.partial, with zeros for the rest.
    #[arg(long)]
    pub partial: bool,
    /// Replace files that are there already, each once what replaces it is whole.
    #[arg(long)]
    pub overwrite: bool,
    /// Extended attributes too: access control lists, labels, capabilities. What cannot be given
    /// there, or by this user, is listed.
    #[arg(long)]
    pub xattrs: bool,
    #[command(flatten)]
    pub json: Json,
}
