//! Work on a mounted file system that a seed determines.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use super::{pattern, program, run};

/// Copies an image; what is empty takes no space.
pub fn copy(from: &Path, to: &Path) {
    run(program("cp").arg("--sparse=always").arg(from).arg(to)).unwrap();
}

/// Numbers that a seed determines.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// What a program does that saves files and cares that they last.
pub struct Work {
    at: PathBuf,
    pub dice: Dice,
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
    made: u64,
}

impl Work {
    pub fn new(at: &Path, seed: u64) -> Self {
        let dice = Dice::new(seed);
        Self { at: at.to_owned(), dice, files: Vec::new(), directories: vec![at.to_owned()], made: 0 }
    }

    fn name(&mut self) -> PathBuf {
        self.made += 1;
        let directory = self.dice.below(self.directories.len() as u64) as usize;
        let long = "n".repeat(self.dice.below(60) as usize);
        self.directories[directory].join(format!("{}{long}", self.made))
    }

    fn file(&mut self) -> PathBuf {
        let ix = self.dice.below(self.files.len() as u64) as usize;
        self.files[ix].clone()
    }

    pub fn step(&mut self) {
        let kind = if self.files.len() < 4 { 0 } else { self.dice.below(12) };
        match kind {
            0..=2 => {
                let name = self.name();
                let len = self.dice.below(60_000) as usize;
                fs::write(&name, pattern(self.made, len)).unwrap();
                self.files.push(name);
            }
            3 | 4 => {
                let (name, offset) = (self.file(), self.dice.below(400_000));
                let file = OpenOptions::new().write(true).open(name).unwrap();
                let len = 1 + self.dice.below(20_000) as usize;
                file.write_all_at(&pattern(offset, len), offset).unwrap();
            }
            5 => {
                let (name, len) = (self.file(), self.dice.below(50_000));
                OpenOptions::new().write(true).open(name).unwrap().set_len(len).unwrap();
            }
            6 => {
                let ix = self.dice.below(self.files.len() as u64) as usize;
                let to = if self.dice.below(2) == 0 { self.name() } else { self.file() };
                let from = self.files[ix].clone();
                fs::rename(&from, &to).unwrap();
                self.files.retain(|file| *file != from && *file != to);
                self.files.push(to);
            }
            7 => {
                let name = self.file();
                fs::remove_file(&name).unwrap();
                self.files.retain(|file| *file != name);
            }
            8 => {
                let (from, to) = (self.file(), self.name());
                fs::hard_link(from, &to).unwrap();
                self.files.push(to);
            }
            9 => {
                let name = self.name();
                fs::create_dir(&name).unwrap();
                self.directories.push(name);
            }
            10 => {
                let (name, len) = (self.name(), 1 + self.dice.below(200) as usize);
                symlink("t".repeat(len), name).unwrap();
            }
            _ => {
                let (name, offset) = (self.file(), self.dice.below(30) * 1000);
                let what = if self.dice.below(2) == 0 { "--punch-hole" } else { "--keep-size" };
                let mut fallocate = program("fallocate");
                fallocate.arg(what).args(["-o", &offset.to_string(), "-l", "20000"]).arg(name);
                // A file in blocks of the old kind has no such ranges.
                let _ = fallocate.output();
            }
        }
        if self.dice.below(2) == 0 && !self.files.is_empty() {
            File::open(self.file()).unwrap().sync_all().unwrap();
        }
    }

    /// Something lasts now.
    pub fn sync(&mut self) {
        let name = self.at.join("last");
        let file = File::create(&name).unwrap();
        file.write_all_at(&self.made.to_le_bytes(), 0).unwrap();
        file.sync_all().unwrap();
    }
}
