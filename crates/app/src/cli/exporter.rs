//! `wattle exporter` and `wattle snmp`, and how anything listens for HTTP.

use std::path::PathBuf;

use clap::Args;
use wattle_operate::http::HttpAddress;
use wattle_operate::snmp::{DEFAULT_BASE, ObjectId};

use super::Runtime;

/// Serves the metrics of every server of this machine to Prometheus, at /metrics.
///
/// OpenMetrics, or Prometheus' text format, with node_exporter's names for md arrays beside
/// wattle's own: docs/metrics.md lists them. A server that does not answer is a metric
/// (wattle_server_up), not a scrape that fails.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle exporter
  wattle exporter --listen unix:/run/user/1000/metrics.sock
  wattle exporter --listen 0.0.0.0:9934 --tls-cert cert.pem --tls-key key.pem --token-file token")]
pub struct ExporterArgs {
    /// Where to listen: IP:PORT, with [] around IPv6, or unix:PATH.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9934", value_parser = parse_address)]
    pub listen: HttpAddress,
    #[command(flatten)]
    pub security: HttpArgs,
    /// The program that asks drives about themselves (wattle_drive_*), or none.
    #[arg(long, value_name = "PROGRAM", default_value = "smartctl")]
    pub smartctl: PathBuf,
    #[command(flatten)]
    pub runtime: Runtime,
}

/// Answers an SNMP agent of net-snmp about arrays, members and volumes.
///
/// It speaks the agent's protocol (pass_persist) on standard input and output; the agent starts it.
/// The tables are described in contrib/snmp/WATTLE-MIB.txt.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle snmp                                   in snmpd.conf: pass_persist OID /usr/bin/wattle snmp
  wattle snmp --base .1.3.6.1.4.1.99999.1")]
pub struct SnmpArgs {
    /// The object identifier below which the tables are.
    #[arg(long, value_name = "OID", default_value = DEFAULT_BASE)]
    pub base: ObjectId,
    #[command(flatten)]
    pub runtime: Runtime,
}

/// How anything that listens for HTTP is protected.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "HTTP")]
pub struct HttpArgs {
    /// Speak TLS with this certificate, a PEM file, followed by those that lead to its authority.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate, a PEM file that others cannot read.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Hear only clients with a certificate of these authorities.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// Require the token in this file (mode 0600), as `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Listen beyond this machine also without TLS and authentication.
    #[arg(long)]
    pub insecure: bool,
    /// A name of this machine that requests may be for, beside its host name and addresses; may be
    /// given several times.
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
}

/// # Errors
/// It is no address.
pub fn parse_address(text: &str) -> Result<HttpAddress, String> {
    text.parse().map_err(|problem: wattle_control::Problem| problem.why)
}
