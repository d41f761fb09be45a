//! What opens encrypted members.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use wattle_control::size::parse_size;

/// Keys. Every key is tried on every encrypted device.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encryption (LUKS)")]
pub struct KeyArgs {
    /// Ask for a passphrase on the terminal. `ls` and `get` do without being told to.
    #[arg(long)]
    pub unlock: bool,
    /// A passphrase: the first line of a file, or of a descriptor (/dev/fd/3, or - for the standard
    /// input). May be given several times.
    #[arg(long = "passphrase-file", value_name = "FILE")]
    pub passphrases: Vec<PathBuf>,
    /// A key file, taken as it is; of Synology NAME.rkey, decoded. Keys of the checksums of
    /// dm-integrity (HMAC), too. May be given several times.
    #[arg(long = "key-file", value_name = "FILE")]
    pub key_files: Vec<PathBuf>,
    /// Where in the key files the key begins, bytes.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "key_files")]
    pub key_file_offset: Option<u64>,
    /// How long the key in the key files is, bytes [default: to the end].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "key_files")]
    pub key_file_size: Option<u64>,
    /// The key that sectors are encrypted with, as `cryptsetup luksDump --dump-volume-key` writes
    /// it.
    #[arg(long = "volume-key-file", value_name = "FILE")]
    pub volume_keys: Vec<PathBuf>,
    /// What the header of an encrypted device is on, if that is not the device. May be given
    /// several times.
    #[arg(long = "header", value_name = "MEMBER=FILE")]
    pub headers: Vec<OsString>,
    /// How much memory opening a key slot may take [default: 2G, or what is available if that is
    /// less].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub unlock_memory: Option<u64>,
}

impl KeyArgs {
    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        self.unlock
            || !self.passphrases.is_empty()
            || !self.key_files.is_empty()
            || !self.volume_keys.is_empty()
    }
}
