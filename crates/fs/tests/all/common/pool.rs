//! Images of the devices of one btrfs, made by mkfs.btrfs and written by the kernel.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use wattle_fs::{Error, FileSystem, ReadAt};

use super::{Image, image, program, run, unmount};

/// The images of the devices, in the order of their numbers.
pub struct Pool {
    pub dir: TempDir,
    pub devices: Vec<PathBuf>,
}

/// Loop devices, detached in the end.
struct Loops(Vec<String>);

impl Loops {
    /// `None`, said loudly, where there are none to be had.
    fn attach(images: &[&Path]) -> Option<Self> {
        let mut loops = Self(Vec::new());
        for image in images {
            let output = program("losetup").args(["-f", "--show"]).arg(image).output().ok()?;
            if !output.status.success() {
                eprintln!("SKIPPED: losetup: {}", String::from_utf8_lossy(&output.stderr));
                return None;
            }
            loops.0.push(String::from_utf8(output.stdout).unwrap().trim().to_owned());
        }
        Some(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        // What the kernel knows of them by their names would be wrong for the next that have these.
        let _ = program("btrfs").args(["device", "scan", "--forget"]).args(&self.0).output();
        for name in &self.0 {
            let _ = program("losetup").args(["-d", name]).output();
        }
    }
}

impl Pool {
    /// Runs mkfs.btrfs on so many devices of `sizes` MiB. `None`, said loudly, if it is not there.
    pub fn make(options: &[&str], sizes: &[u64]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let device = |(ix, size): (usize, &u64)| image(&dir, &format!("device-{}", ix + 1), size << 20);
        let devices: Vec<PathBuf> = sizes.iter().enumerate().map(device).collect();
        run(program("mkfs.btrfs").args(["-q", "-f", "-L", "pool"]).args(options).args(&devices))?;
        Some(Self { dir, devices })
    }

    /// Mounts those of its devices, lets `change` work on it with the names of the loop devices,
    /// and unmounts it. `None`, said loudly, where that is not possible.
    pub fn mounted(
        &self,
        which: &[usize],
        options: &str,
        change: impl FnOnce(&Path, &[String]),
    ) -> Option<()> {
        let images: Vec<&Path> = which.iter().map(|&ix| &*self.devices[ix]).collect();
        mounted(&images, options, change)
    }

    /// Mounts all of its devices.
    pub fn filled(&self, options: &str, change: impl FnOnce(&Path)) -> Option<()> {
        let all: Vec<usize> = (0..self.devices.len()).collect();
        self.mounted(&all, options, |at, _| change(at))
    }

    pub fn open(&self, which: &[usize]) -> Result<Box<dyn FileSystem>, Error> {
        let readers = which.iter().map(|&ix| Box::new(Image::open(&self.devices[ix])) as Box<dyn ReadAt>);
        wattle_fs::open_devices(readers.collect(), None)
    }

    /// Opens all but `missing`, with the devices in `rotten` damaged at random places: `seed` says
    /// at which.
    pub fn open_rotten(
        &self,
        missing: &[usize],
        rotten: &[usize],
        seed: u64,
    ) -> Result<Box<dyn FileSystem>, Error> {
        let here = (0..self.devices.len()).filter(|ix| !missing.contains(ix));
        let readers = here.map(|ix| {
            let image = Image::open(&self.devices[ix]);
            match rotten.contains(&ix) {
                true => Box::new(Rotten { image, seed: seed * 31 + ix as u64 }) as Box<dyn ReadAt>,
                false => Box::new(image),
            }
        });
        wattle_fs::open_devices(readers.collect(), None)
    }

    /// Keeps a copy of a device as it is now.
    pub fn keep(&self, ix: usize, name: &str) -> PathBuf {
        let to = self.dir.path().join(name);
        run(program("cp").args(["--sparse=always"]).arg(&self.devices[ix]).arg(&to)).unwrap();
        to
    }
}

/// Mounts a btrfs on these images.
pub fn mounted(images: &[&Path], options: &str, change: impl FnOnce(&Path, &[String])) -> Option<()> {
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            unmount(self.0);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let loops = Loops::attach(images)?;
    // Those that are not part of it yet have nothing to tell.
    let _ = program("btrfs").args(["device", "scan"]).args(&loops.0).output().ok()?;
    let options = if options.is_empty() { "defaults" } else { options };
    let mut mount = program("mount");
    mount.args(["-t", "btrfs", "-o", options]).arg(&loops.0[0]).arg(dir.path());
    let mount = mount.output().ok()?;
    if !mount.status.success() {
        eprintln!("SKIPPED: mount: {}", String::from_utf8_lossy(&mount.stderr));
        return None;
    }
    let unmount = Unmount(dir.path());
    change(dir.path(), &loops.0);
    drop(unmount);
    Some(())
}

/// A device of which every third block of 4 KiB or so is wrong, but for the superblocks.
struct Rotten {
    image: Image,
    seed: u64,
}

impl ReadAt for Rotten {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, into)?;
        let end = offset + into.len() as u64;
        for block in offset / 4096..end.div_ceil(4096) {
            let random = (block ^ self.seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let at = block * 4096 + random % 4096;
            let is_superblock = [16, 16 << 10].contains(&block);
            if random >> 40 & 0xff < 80 && !is_superblock && (offset..end).contains(&at) {
                into[(at - offset) as usize] ^= 1 + (random >> 50) as u8 % 255;
            }
        }
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.image.size_bytes()
    }
}

/// Every file below the root with what it holds, as far as it can be read, by path.
pub fn files(fs: &dyn FileSystem) -> Vec<(String, Result<Vec<u8>, String>)> {
    let (mut found, mut waiting) = (Vec::new(), vec![(String::new(), fs.root())]);
    while let Some((path, directory)) = waiting.pop() {
        let listed = fs.list(directory, &mut |entry| {
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            match fs.metadata(entry.node) {
                Ok(metadata) if metadata.kind == wattle_fs::FileKind::Directory => {
                    waiting.push((path, entry.node));
                }
                Ok(metadata) => {
                    let mut bytes = vec![0; metadata.size_bytes as usize];
                    let read = fs.read(entry.node, 0..u64::MAX, &mut |offset, data| {
                        bytes[offset as usize..offset as usize + data.len()].copy_from_slice(data);
                        Ok(())
                    });
                    found.push((path, read.map(|()| bytes).map_err(|error| error.to_string())));
                }
                Err(error) => found.push((path, Err(error.to_string()))),
            }
            Ok(())
        });
        if let Err(error) = listed {
            found.push((format!("{path}/"), Err(error.to_string())));
        }
    }
    found.sort();
    found
}

/// Writes over a part of an image.
pub fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

/// Sets of so many of `count` things.
pub fn sets(count: usize, of: usize) -> Vec<Vec<usize>> {
    let is_set = |bits: &u32| bits.count_ones() as usize == of;
    let sets = (0..1_u32 << count).filter(is_set);
    sets.map(|bits| (0..count).filter(|ix| bits >> ix & 1 == 1).collect()).collect()
}

/// What a directory holds: names and contents, as [`files`] has them.
pub fn contents(root: &Path) -> Vec<(String, Result<Vec<u8>, String>)> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = waiting.pop() {
        for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => waiting.push(path),
                false => {
                    let name = format!("/{}", path.strip_prefix(root).unwrap().display());
                    found.push((name, Ok(fs::read(&path).unwrap())));
                }
            }
        }
    }
    found.sort();
    found
}
