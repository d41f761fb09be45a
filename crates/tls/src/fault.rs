//! What is wrong with a peer, or what it says is wrong with this side.

use rustls::{AlertDescription, CertificateError, Error};
use thiserror::Error as ThisError;

/// Why a handshake or a session failed. The peer is a server for a client, and a client for a
/// server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum TlsFault {
    /// The peer's certificate is not valid any more.
    #[error("the peer's certificate has expired")]
    Expired,
    /// The peer's certificate is not valid yet.
    #[error("the peer's certificate is not valid yet, by this machine's clock")]
    NotYetValid,
    /// The server's certificate is for another host.
    #[error("the peer's certificate is for another host name")]
    WrongName,
    /// No authority that is trusted here signed the peer's certificate.
    #[error("the peer's certificate is not signed by an authority that is trusted here")]
    UnknownAuthority,
    /// The authority has revoked the peer's certificate.
    #[error("the peer's certificate is revoked")]
    Revoked,
    /// The list of revoked certificates does not cover the peer's, or is too old.
    #[error("the list of revoked certificates (ca-crl.pem) is out of date, or of another authority")]
    RevocationUnknown,
    /// The peer's certificate is for the other side of a connection.
    #[error("the peer's certificate is not for this purpose (server or client)")]
    WrongPurpose,
    /// The peer's certificate is damaged, or of a kind that is not known.
    #[error("the peer's certificate cannot be used")]
    BadCertificate,
    /// A client showed no certificate.
    #[error("the peer showed no certificate")]
    NoCertificate,
    /// The server wants a certificate of this side.
    #[error("the server wants a client certificate, and none was shown")]
    CertificateWanted,
    /// The peer does not take the certificate of this side.
    #[error("the peer refuses the certificate of this side")]
    CertificateRefused,
    /// No version, cipher or signature that both know.
    #[error("the peer knows no version or cipher of TLS that this side knows (TLS 1.3)")]
    NothingInCommon,
    /// The peer ended the session with an alert.
    #[error("the peer ended TLS with an alert")]
    Alert,
    /// What came is no TLS, or was changed on the way.
    #[error("what came is no TLS, or was changed on the way")]
    Broken,
}

impl TlsFault {
    /// The fault behind an error.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            Error::InvalidCertRevocationList(_) => Self::RevocationUnknown,
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::PeerIncompatible(_) => Self::NothingInCommon,
            Error::AlertReceived(alert) => Self::of_alert(*alert),
            _ => Self::Broken,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        use CertificateError as E;
        match error {
            E::Expired | E::ExpiredContext { .. } => Self::Expired,
            E::NotValidYet | E::NotValidYetContext { .. } => Self::NotYetValid,
            E::NotValidForName | E::NotValidForNameContext { .. } => Self::WrongName,
            // Another authority of the same name has another key.
            E::UnknownIssuer | E::BadSignature => Self::UnknownAuthority,
            E::Revoked => Self::Revoked,
            E::UnknownRevocationStatus
            | E::ExpiredRevocationList
            | E::ExpiredRevocationListContext { .. } => Self::RevocationUnknown,
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => Self::WrongPurpose,
            _ => Self::BadCertificate,
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        use AlertDescription as A;
        match alert {
            A::CertificateRequired | A::NoCertificate => Self::CertificateWanted,
            A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::AccessDenied => Self::CertificateRefused,
            A::HandshakeFailure | A::ProtocolVersion | A::InsufficientSecurity => Self::NothingInCommon,
            _ => Self::Alert,
        }
    }

    /// What an operator of the client does next.
    #[must_use]
    pub fn next(self) -> &'static str {
        match self {
            Self::Expired => "renew the server's certificate",
            Self::NotYetValid => "set the clock of this machine, or of the one that signed the certificate",
            Self::WrongName => {
                "write the host as the certificate has it (`openssl x509 -noout -ext subjectAltName`), or name it: \
                 ?tls-hostname=NAME"
            }
            Self::UnknownAuthority => {
                "put the certificate of its authority into ca-cert.pem, and name the directory: ?tls-certificates=DIR"
            }
            Self::Revoked => "give the server a new certificate; do not trust this one",
            Self::RevocationUnknown => "bring ca-crl.pem up to date",
            Self::WrongPurpose | Self::BadCertificate => {
                "give the server a certificate for servers (serverAuth)"
            }
            Self::CertificateWanted | Self::NoCertificate => {
                "put client-cert.pem and client-key.pem beside ca-cert.pem, and name the directory: ?tls-certificates=DIR"
            }
            Self::CertificateRefused => {
                "see that client-cert.pem is signed by the authority that the server trusts, and is valid today"
            }
            Self::NothingInCommon | Self::Alert => "see the server's log: it ended the handshake",
            Self::Broken => "see that this is the NBD server, and what lies between here and there",
        }
    }

    /// The same as [`ToString`], without an allocation.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Expired => "the server's certificate has expired",
            Self::NotYetValid => "the server's certificate is not valid yet",
            Self::WrongName => "the server's certificate is for another host name",
            Self::UnknownAuthority => "the server's certificate is of an unknown authority",
            Self::Revoked => "the server's certificate is revoked",
            Self::RevocationUnknown => "ca-crl.pem is out of date, or of another authority",
            Self::CertificateWanted => "the server wants a client certificate",
            Self::CertificateRefused => "the server refuses the client certificate",
            _ => "the TLS handshake failed",
        }
    }
}
