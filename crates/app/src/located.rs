//! Where the members of a server are for another process: it names them as it was told, relative
//! to its own directory.

use std::fs;
use std::path::{Path, PathBuf};

use wattle_control::MemberAddress;
use wattle_rt::text_of_path;

/// Where a member of the server `pid` can be opened, if it is a file or device of this machine.
///
/// # Errors
/// It is none, or cannot be found.
pub fn on_this_machine(pid: u32, name: &str) -> Result<String, String> {
    match name.parse() {
        Ok(MemberAddress::Remote) => Err(format!("{name} lies across a network")),
        _ => of_server(pid, name),
    }
}

/// Where a member of the server `pid` can be opened, across a network too.
///
/// # Errors
/// Why it cannot be.
pub fn of_server(pid: u32, name: &str) -> Result<String, String> {
    located(name, || fs::read_link(format!("/proc/{pid}/cwd")).ok())
}

fn located(name: &str, directory: impl Fn() -> Option<PathBuf>) -> Result<String, String> {
    let whole = |path: &Path| {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        let unknown = || format!("{name} is named relative to the server's directory, which cannot be read");
        Ok::<_, String>(directory().ok_or_else(unknown)?.join(path))
    };
    let path = match name.parse() {
        Ok(MemberAddress::Path(path)) => path,
        Ok(MemberAddress::Paths(paths)) => {
            let paths = paths.iter().map(|path| whole(path).map(text_of_path));
            return Ok(paths.collect::<Result<Vec<_>, _>>()?.join("|"));
        }
        Ok(MemberAddress::Remote) => return Ok(name.to_owned()),
        _ => return Err(format!("{name} is made up, and only its server has it")),
    };
    whole(&path).map(text_of_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_name_is_meant_from_the_directory_of_the_server() {
        let here = |name: &str| located(name, || Some(PathBuf::from("/srv/nas")));
        for (name, path) in [
            ("/dev/sda", "/dev/sda"),
            ("d0", "/srv/nas/d0"),
            ("../d0", "/srv/nas/../d0"),
            ("a|/dev/b", "/srv/nas/a|/dev/b"),
            ("nbd://host/disk", "nbd://host/disk"),
        ] {
            assert_eq!(here(name).as_deref(), Ok(path));
        }
        for name in ["mem:64M", "null:1G", "model:x25m"] {
            assert!(here(name).unwrap_err().starts_with(name));
        }
        assert!(on_this_machine(1, "nbd://host/disk").is_err());
        assert!(located("d0", || None).unwrap_err().contains("cannot be read"));
        assert_eq!(located("/dev/sda", || None).as_deref(), Ok("/dev/sda"));
        let own = std::env::current_dir().unwrap();
        assert_eq!(of_server(std::process::id(), "d0"), Ok(text_of_path(own.join("d0"))));
    }
}
