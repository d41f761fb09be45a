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
    /// Does more kinds of things than every file system has: clones, attributes, exchanges, crowded
    /// directories, files of many pieces.
    varied: bool,
    /// Makes subvolumes.
    pub subvolumes: bool,
    /// Open, and without a name.
    nameless: Vec<File>,
}

impl Work {
    pub fn new(at: &Path, seed: u64) -> Self {
        let dice = Dice::new(seed);
        let directories = vec![at.to_owned()];
        let (files, nameless) = Default::default();
        Self {
            at: at.to_owned(),
            dice,
            files,
            directories,
            made: 0,
            varied: false,
            subvolumes: false,
            nameless,
        }
    }

    /// As [`Work::new`], with what only some file systems have.
    pub fn varied(at: &Path, seed: u64) -> Self {
        Self { varied: true, ..Self::new(at, seed) }
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
        let kind = if self.files.len() < 4 { 0 } else { self.dice.below(if self.varied { 23 } else { 12 }) };
        match kind {
            12.. => self.varied_step(kind),
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
                if self.within(fs::rename(&from, &to)) {
                    self.files.retain(|file| *file != from && *file != to);
                    self.files.push(to);
                }
            }
            7 => {
                let name = self.file();
                fs::remove_file(&name).unwrap();
                self.files.retain(|file| *file != name);
            }
            8 => {
                let (from, to) = (self.file(), self.name());
                if self.within(fs::hard_link(from, &to)) {
                    self.files.push(to);
                }
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

    /// Whether something could be done that cannot be done from one subvolume to another.
    fn within(&self, done: std::io::Result<()>) -> bool {
        match done {
            Err(error) if self.subvolumes && error.kind() == std::io::ErrorKind::CrossesDevices => false,
            done => {
                done.unwrap();
                true
            }
        }
    }

    fn varied_step(&mut self, kind: u64) {
        match kind {
            12 => {
                let (name, from) = (self.name(), self.dice.below(1000));
                let many = 1 + self.dice.below(400);
                fs::create_dir(&name).unwrap();
                (0..many).for_each(|ix| drop(File::create(name.join(format!("{}{ix}", from + ix)))));
                let few = self.dice.below(many);
                (0..few).for_each(|ix| drop(fs::remove_file(name.join(format!("{}{ix}", from + ix)))));
                self.directories.push(name);
            }
            13 | 14 => {
                let (name, many) = (self.file(), 1 + self.dice.below(30));
                let value = pattern(many, self.dice.below(900) as usize);
                for ix in 0..many {
                    let attribute = format!("user.{}-{}", ix, "a".repeat(self.dice.below(30) as usize));
                    // The space for lists of attributes ends at some time.
                    let _ = rustix::fs::lsetxattr(&name, attribute, &value, rustix::fs::XattrFlags::empty());
                }
                for ix in 0..self.dice.below(many) {
                    let _ = rustix::fs::lremovexattr(&name, format!("user.{ix}-"));
                }
            }
            15 => {
                let (from, to) = (self.file(), self.file());
                let blocks = || program("xfs_io");
                let (at, len) = (self.dice.below(20) * 4096, (1 + self.dice.below(8)) * 4096);
                let reflink = format!("reflink {} {at} {} {len}", from.display(), self.dice.below(20) * 4096);
                let _ = blocks().args(["-c", &reflink]).arg(to).output();
            }
            16 => {
                let name = self.file();
                let file = OpenOptions::new().write(true).open(name).unwrap();
                for piece in 0..20 + self.dice.below(200) {
                    file.write_all_at(&pattern(piece, 4096), piece * 8192).unwrap();
                }
                file.sync_data().unwrap();
                if self.dice.below(2) == 0 {
                    file.set_len(self.dice.below(100) * 4096).unwrap();
                }
            }
            17 => {
                use rustix::fs::{CWD, RenameFlags, renameat_with};
                let (one, other) = (self.file(), self.file());
                let _ = renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
            }
            18 if self.dice.below(20) == 0 => {
                // Whole forks change their owners, as when files are defragmented.
                let (one, other) = (self.name(), self.name());
                for (name, step) in [(&one, 8192), (&other, 12_288)] {
                    let file = File::create(name).unwrap();
                    (0..100).for_each(|ix| file.write_all_at(&pattern(ix, 4096), ix * step).unwrap());
                    file.set_len(100 * 12_288).unwrap();
                    file.sync_all().unwrap();
                }
                let swap = format!("swapext {}", other.display());
                let _ = program("xfs_io").args(["-c", &swap]).arg(&one).output();
                self.files.extend([one, other]);
            }
            18 => {
                let name = self.name();
                let mut file = OpenOptions::new();
                let file = file.read(true).write(true).create(true).truncate(true).open(&name).unwrap();
                file.write_all_at(&pattern(1, 30_000), 0).unwrap();
                fs::remove_file(name).unwrap();
                self.nameless.push(file);
                if self.nameless.len() > 20 {
                    self.nameless.clear();
                }
            }
            20 => {
                let ix = self.dice.below(self.directories.len() as u64) as usize;
                File::open(&self.directories[ix]).unwrap().sync_all().unwrap();
            }
            21 => {
                // What is in it is flushed under one name, and then it has another.
                let (before, after) = (self.name(), self.name());
                if self.subvolumes {
                    run(program("btrfs").args(["-q", "subvolume", "create"]).arg(&before)).unwrap();
                } else {
                    fs::create_dir(&before).unwrap();
                }
                let many = 1 + self.dice.below(6);
                for ix in 0..many {
                    fs::write(before.join(ix.to_string()), pattern(ix, 3000)).unwrap();
                }
                let sync = |name: &Path| File::open(name).unwrap().sync_all().unwrap();
                sync(&before.join("0"));
                fs::rename(&before, &after).unwrap();
                if self.dice.below(2) == 0 {
                    fs::remove_file(after.join("0")).unwrap();
                    sync(&after);
                } else {
                    let to = self.name();
                    self.within(fs::rename(after.join("0"), to));
                    (1..many).for_each(|ix| sync(&after.join(ix.to_string())));
                }
                self.directories.push(after);
            }
            22 => {
                // A file with many names, most of which lie apart from what is flushed.
                let (crowded, names) = (self.name(), self.dice.below(300));
                fs::create_dir(&crowded).unwrap();
                let file = crowded.join("file");
                fs::write(&file, pattern(names, 5000)).unwrap();
                for ix in 0..names {
                    let name = format!("{ix:03}-{}", "n".repeat(226));
                    fs::hard_link(&file, crowded.join(name)).unwrap();
                }
                run(program("sync").arg("-f").arg(&self.at)).unwrap();
                let file = OpenOptions::new().write(true).open(file).unwrap();
                file.write_all_at(&pattern(self.made, 100), 0).unwrap();
                file.sync_all().unwrap();
            }
            _ => {
                let (name, len) = (self.name(), 1 + self.dice.below(1000) as usize);
                symlink("t".repeat(len), name).unwrap();
            }
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
