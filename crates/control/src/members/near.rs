//! Which memory node of the machine drives are attached to.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How many layers of the kernel's own (md, device mapper) are looked through.
const LAYERS_MAX: usize = 8;

/// The memory node that most of these paths are attached to, files by the drive that they lie on;
/// `None` where nothing tells. `sys` is where sysfs is.
pub(super) fn memory_node<'a>(sys: &Path, paths: impl Iterator<Item = &'a Path>) -> Option<usize> {
    let nodes: Vec<_> = paths.filter_map(|path| node_of(sys, path)).collect();
    let votes = |node: usize| nodes.iter().filter(|&&other| other == node).count();
    nodes.iter().copied().max_by_key(|&node| (votes(node), std::cmp::Reverse(node)))
}

fn node_of(sys: &Path, path: &Path) -> Option<usize> {
    let metadata = fs::metadata(path).ok()?;
    let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let name = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    node_of_block(&sys.join("dev/block").join(name).canonicalize().ok()?, sys, LAYERS_MAX)
}

/// That of a directory of a block device: where it hangs on a bus, or else what it is made of does.
fn node_of_block(directory: &Path, sys: &Path, layers: usize) -> Option<usize> {
    let on_bus = directory.ancestors().take_while(|above| *above != sys).find_map(|above| {
        // -1 where the bus does not know.
        fs::read_to_string(above.join("numa_node")).ok()?.trim().parse::<usize>().ok()
    });
    let below = |entry: fs::DirEntry| -> Option<PathBuf> { entry.path().canonicalize().ok() };
    on_bus.or_else(|| {
        let mut made_of = fs::read_dir(directory.join("slaves")).ok()?.flatten().filter_map(below);
        made_of.find_map(|below| node_of_block(&below, sys, layers.checked_sub(1)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A sysfs in which two names lead to drives on two nodes, and one to a map of the second.
    #[test]
    fn a_drive_is_where_its_bus_is() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        let file = tempfile::NamedTempFile::new_in(sys).unwrap();
        let device = fs::metadata(file.path()).unwrap().dev();
        let name = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let (first, map) =
            (sys.join("devices/pci0/0000:01/nvme/nvme0/nvme0n1"), sys.join("devices/virtual/block/dm-0"));
        fs::create_dir_all(first.join("nvme0n1p1")).unwrap();
        fs::create_dir_all(map.join("slaves")).unwrap();
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        symlink(first.join("nvme0n1p1"), map.join("slaves/nvme0n1p1")).unwrap();
        let link = sys.join("dev/block").join(name);
        let asked = || memory_node(sys, [file.path(), Path::new("/none")].into_iter());
        assert_eq!(asked(), None, "the system knows no such device");
        for at in [first.join("nvme0n1p1"), map] {
            symlink(&at, &link).unwrap();
            fs::write(sys.join("devices/pci0/0000:01/numa_node"), "-1\n").unwrap();
            assert_eq!(asked(), None, "the bus does not know");
            fs::write(sys.join("devices/pci0/0000:01/numa_node"), "1\n").unwrap();
            assert_eq!(asked(), Some(1), "{}", at.display());
            fs::remove_file(&link).unwrap();
        }
    }
}
