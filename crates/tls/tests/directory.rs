//! Directories of certificates: what is taken, what is refused, and what each side says when both
//! meet.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};
use tempfile::TempDir;
use wattle_tls::{ClientTls, ServerTls, TlsClients, TlsFault};

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name)
}

/// A directory with these files of the test's certificates, by the names that they get.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, from)| put(dir.path(), name, &fs::read(certificate(from)).unwrap()));
    dir
}

fn put(dir: &Path, name: &str, content: &[u8]) {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

const CA: (&str, &str) = ("ca-cert.pem", "ca.pem");
const SERVER: [(&str, &str); 2] = [("server-cert.pem", "server.pem"), ("server-key.pem", "server.key")];
const CLIENT: [(&str, &str); 2] = [("client-cert.pem", "client.pem"), ("client-key.pem", "client.key")];

fn whole() -> TempDir {
    directory(&[&[CA][..], &SERVER, &CLIENT].concat())
}

fn server(dir: &Path) -> Arc<ServerConfig> {
    ServerTls::open(dir, TlsClients::Certified).unwrap().current().0
}

/// A server that shows a certificate which this side would not show.
fn careless(name: &str) -> Arc<ServerConfig> {
    let cert = CertificateDer::from_pem_file(certificate(&format!("{name}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(certificate(&format!("{name}.key"))).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_single_cert(vec![cert], key).unwrap())
}

/// What client and server say when they meet; the client after it has asked for something.
fn meet(server: Arc<ServerConfig>, client: &ClientTls) -> [Result<(), TlsFault>; 2] {
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(client.config.clone(), name).unwrap();
    let server = ServerConnection::new(server).unwrap();
    let mut sides: [Connection; 2] = [client.into(), server.into()];
    let mut said = [Ok(()), Ok(())];
    for _ in 0..10 {
        for (from, to) in [(0, 1), (1, 0)] {
            let mut bytes = Vec::new();
            while sides[from].wants_write() {
                sides[from].write_tls(&mut bytes).unwrap();
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() && said[to].is_ok() {
                sides[to].read_tls(&mut rest).unwrap();
                said[to] = sides[to].process_new_packets().map(drop).map_err(|error| TlsFault::of(&error));
            }
        }
    }
    if said.iter().all(Result::is_ok) {
        assert!(sides.iter().all(|side| !side.is_handshaking()));
    }
    said
}

#[test]
fn both_sides_prove_what_they_are() {
    let dir = whole();
    let client = ClientTls::open(Some(dir.path()), true).unwrap();
    assert!(client.shows_certificate);
    assert_eq!(meet(server(dir.path()), &client), [Ok(()), Ok(())]);
    // Trusts, and shows nothing.
    let bare = directory(&[CA]);
    let client = ClientTls::open(Some(bare.path()), true).unwrap();
    assert!(!client.shows_certificate);
    let said = meet(server(dir.path()), &client);
    assert_eq!(said, [Err(TlsFault::CertificateWanted), Err(TlsFault::NoCertificate)]);
    let any = directory(&SERVER);
    let any = ServerTls::open(any.path(), TlsClients::Any).unwrap();
    assert_eq!(meet(any.current().0, &client), [Ok(()), Ok(())]);
}

#[test]
fn strangers_are_told_apart() {
    let dir = whole();
    let pair = |name: &'static str, of: &'static str| [(name, of)];
    let stranger =
        [CA, pair("client-cert.pem", "stranger.pem")[0], pair("client-key.pem", "stranger.key")[0]];
    let stranger = directory(&stranger);
    let stranger = ClientTls::open(Some(stranger.path()), true).unwrap();
    let said = meet(server(dir.path()), &stranger);
    assert_eq!(said, [Err(TlsFault::CertificateRefused), Err(TlsFault::UnknownAuthority)]);
    let server_as_client =
        [CA, pair("client-cert.pem", "server.pem")[0], pair("client-key.pem", "server.key")[0]];
    let server_as_client = directory(&server_as_client);
    let server_as_client = ClientTls::open(Some(server_as_client.path()), true).unwrap();
    assert_eq!(meet(server(dir.path()), &server_as_client)[1], Err(TlsFault::WrongPurpose));

    let client = ClientTls::open(Some(dir.path()), true).unwrap();
    for (name, fault) in [
        ("expired", TlsFault::Expired),
        ("early", TlsFault::NotYetValid),
        ("elsewhere", TlsFault::WrongName),
        ("client", TlsFault::WrongPurpose),
    ] {
        assert_eq!(meet(careless(name), &client)[0], Err(fault), "{name}");
        assert!(!fault.next().is_empty() && !fault.text().is_empty());
    }
    let other = directory(&[("ca-cert.pem", "other-ca.pem")]);
    let other = ClientTls::open(Some(other.path()), true).unwrap();
    assert_eq!(meet(careless("server"), &other)[0], Err(TlsFault::UnknownAuthority));
    let blind = ClientTls::open(None, false).unwrap();
    for name in ["expired", "elsewhere", "server"] {
        assert_eq!(meet(careless(name), &blind), [Ok(()), Ok(())], "{name}");
    }
}

/// The file, what is wrong with it, and what to do.
fn refused<T>(opened: Result<T, wattle_tls::TlsFileError>) -> (String, String) {
    let error = opened.err().expect("it is refused");
    let name = error.path().file_name().unwrap().to_string_lossy().into_owned();
    assert!(!error.next().is_empty());
    (name, error.why())
}

#[test]
fn what_is_missing_or_does_not_fit_is_named() {
    let open = |files: &[(&str, &str)], clients| ServerTls::open(directory(files).path(), clients);
    let certified = |files: &[(&str, &str)]| refused(open(files, TlsClients::Certified));
    assert_eq!(certified(&SERVER).0, "ca-cert.pem");
    assert_eq!(certified(&[CA, SERVER[1]]).0, "server-cert.pem");
    assert_eq!(certified(&[CA, SERVER[0]]).0, "server-key.pem");
    let other = certified(&[CA, SERVER[0], ("server-key.pem", "client.key")]);
    assert!(other.0 == "server-key.pem" && other.1.contains("it is not the key of"), "{other:?}");
    let expired = certified(&[CA, ("server-cert.pem", "expired.pem"), ("server-key.pem", "expired.key")]);
    assert!(expired.1.contains("it expired at 2025-01-01T00:00:00Z"), "{expired:?}");
    let no_list = certified(&[CA, SERVER[0], SERVER[1], ("ca-crl.pem", "ca.pem")]);
    assert_eq!(no_list, ("ca-crl.pem".into(), "it holds no list of revoked certificates".into()));
    let unused = refused(open(&[SERVER[0], SERVER[1], ("ca-crl.pem", "ca.pem")], TlsClients::Any));
    assert_eq!(unused.0, "ca-crl.pem");

    let client = |files: &[(&str, &str)]| refused(ClientTls::open(Some(directory(files).path()), true));
    assert_eq!(client(&[]).0, "ca-cert.pem");
    assert_eq!(client(&[CA, CLIENT[0]]).0, "client-key.pem");
    assert_eq!(client(&[CA, CLIENT[1]]).0, "client-cert.pem");
    assert_eq!(client(&[CA, ("ca-crl.pem", "ca.pem")]).0, "ca-crl.pem");

    let dir = whole();
    fs::set_permissions(dir.path().join("client-key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(dir.path().join("server-key.pem"), fs::Permissions::from_mode(0o604)).unwrap();
    assert!(refused(ClientTls::open(Some(dir.path()), true)).1.contains("mode 0644"));
    assert!(refused(ServerTls::open(dir.path(), TlsClients::Certified)).1.contains("mode 0604"));
}

#[test]
fn files_that_are_renewed_are_shown() {
    let dir = whole();
    let server = ServerTls::open(dir.path(), TlsClients::Certified).unwrap();
    let client = ClientTls::open(Some(dir.path()), true).unwrap();
    let before = server.current().0;
    assert!(Arc::ptr_eq(&before, &server.current().0), "nothing has changed");
    // One after the other: in between they do not fit.
    put(dir.path(), "server-cert.pem", &fs::read(certificate("elsewhere.pem")).unwrap());
    let (still, told) = server.current();
    assert!(Arc::ptr_eq(&before, &still) && told.is_some());
    assert!(server.current().1.is_none(), "it is told once");
    put(dir.path(), "server-key.pem", &fs::read(certificate("elsewhere.key")).unwrap());
    let (renewed, told) = server.current();
    assert!(told.is_none());
    assert_eq!(meet(renewed, &client)[0], Err(TlsFault::WrongName), "it is the other certificate");
}

/// Runs openssl in a directory.
fn openssl(dir: &Path, args: &[&str]) {
    let run = Command::new("openssl").args(args).current_dir(dir).stdin(Stdio::null()).output().unwrap();
    assert!(run.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&run.stderr));
}

/// An authority with a server and two clients, one of them on a list of revoked ones that holds
/// until `crl_end`.
fn revoking_authority(dir: &Path, crl_end: &str) {
    fs::write(
        dir.join("ca.cnf"),
        "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ncertificate=ca-cert.pem\n\
         private_key=ca-key.pem\ndefault_md=sha256\npolicy=p\ndefault_days=30\ncrlnumber=crlnumber\ncrl_extensions=c\n\
         unique_subject=no\n[p]\ncommonName=supplied\n[c]\nauthorityKeyIdentifier=keyid\n\
         [s]\nsubjectAltName=DNS:localhost\nextendedKeyUsage=serverAuth\n[k]\nextendedKeyUsage=clientAuth\n\
         [a]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n\
         [req]\ndistinguished_name=n\n[n]\n",
    )
    .unwrap();
    fs::write(dir.join("index"), "").unwrap();
    fs::write(dir.join("serial"), "01\n").unwrap();
    fs::write(dir.join("crlnumber"), "01\n").unwrap();
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-config", "ca.cnf"];
    let own = ["req", "-x509", "-days", "30", "-subj", "/CN=authority", "-extensions", "a"];
    openssl(dir, &[&own[..], &curve, &["-keyout", "ca-key.pem", "-out", "ca-cert.pem"]].concat());
    for (name, kind) in [("server", "s"), ("client", "k"), ("revoked", "k")] {
        let (key, request) = (format!("{name}-key.pem"), format!("{name}.csr"));
        let subject = format!("/CN={name}");
        openssl(
            dir,
            &[&["req", "-new", "-subj", &subject, "-keyout", &key, "-out", &request][..], &curve].concat(),
        );
        let cert = format!("{name}-cert.pem");
        openssl(
            dir,
            &[
                "ca",
                "-batch",
                "-config",
                "ca.cnf",
                "-notext",
                "-extensions",
                kind,
                "-in",
                &request,
                "-out",
                &cert,
            ],
        );
        fs::set_permissions(dir.join(key), fs::Permissions::from_mode(0o600)).unwrap();
    }
    openssl(dir, &["ca", "-config", "ca.cnf", "-revoke", "revoked-cert.pem"]);
    openssl(dir, &["ca", "-config", "ca.cnf", "-gencrl", "-crl_nextupdate", crl_end, "-out", "ca-crl.pem"]);
}

#[test]
fn a_client_that_was_revoked_is_not_heard() {
    let mut version = Command::new("openssl");
    if version.arg("version").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("CI").is_none(), "openssl is not installed, and this is CI");
        eprintln!("SKIPPED: openssl is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    revoking_authority(dir.path(), "21000101000000Z");
    let config = server(dir.path());
    let client = ClientTls::open(Some(dir.path()), true).unwrap();
    assert_eq!(meet(config.clone(), &client), [Ok(()), Ok(())]);
    let own = tempfile::tempdir().unwrap();
    for (name, from) in [
        ("ca-cert.pem", "ca-cert.pem"),
        ("client-cert.pem", "revoked-cert.pem"),
        ("client-key.pem", "revoked-key.pem"),
    ] {
        let mut content = Vec::new();
        fs::File::open(dir.path().join(from)).unwrap().read_to_end(&mut content).unwrap();
        put(own.path(), name, &content);
    }
    let revoked = ClientTls::open(Some(own.path()), true).unwrap();
    let said = meet(config, &revoked);
    assert_eq!(said, [Err(TlsFault::CertificateRefused), Err(TlsFault::Revoked)]);

    // A list that was to be renewed long ago vouches for no certificate.
    openssl(
        dir.path(),
        &[
            "ca",
            "-config",
            "ca.cnf",
            "-gencrl",
            "-crl_lastupdate",
            "20200101000000Z",
            "-crl_nextupdate",
            "20200201000000Z",
            "-out",
            "ca-crl.pem",
        ],
    );
    let trusting = directory(&[]);
    put(trusting.path(), "ca-cert.pem", &fs::read(dir.path().join("ca-cert.pem")).unwrap());
    for name in ["client-cert.pem", "client-key.pem"] {
        put(trusting.path(), name, &fs::read(dir.path().join(name)).unwrap());
    }
    let client = ClientTls::open(Some(trusting.path()), true).unwrap();
    assert_eq!(meet(server(dir.path()), &client)[1], Err(TlsFault::RevocationUnknown));
}
