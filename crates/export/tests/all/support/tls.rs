//! Certificates of tests, and URIs that name them.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use wattle_export::nbd::Uri;

/// A certificate or key.
pub fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/certificates").join(name)
}

/// A directory with an authority, and with certificates and keys of these names.
pub fn certificates(ca: &str, server: Option<&str>, client: Option<&str>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, from: &str| {
        let path = dir.path().join(name);
        fs::copy(certificate(from), &path).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    };
    put("ca-cert.pem", ca);
    for (side, name) in [("server", server), ("client", client)] {
        let Some(name) = name else { continue };
        put(&format!("{side}-cert.pem"), &format!("{name}.pem"));
        put(&format!("{side}-key.pem"), &format!("{name}.key"));
    }
    dir
}

/// With everything that either side needs.
pub fn whole() -> TempDir {
    certificates("ca.pem", Some("server"), Some("client"))
}

/// The export `disk` of a server, with the certificates of a directory and more of a query.
pub fn uri(socket: &Path, dir: &TempDir, more: &str) -> Uri {
    let (socket, dir) = (socket.display(), dir.path().display());
    format!("nbds+unix:///disk?socket={socket}&tls-certificates={dir}{more}").parse().unwrap()
}
