//! `wattle console`.

use std::path::PathBuf;

use clap::Args;

use super::Runtime;

/// Shows the arrays being served as a page in a browser, live, until Ctrl-C.
///
/// The page is part of the program and asks nothing of any other machine. It only shows, unless
/// there is a token: then it also takes orders, each of which shows its command and asks.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle console                                then open http://127.0.0.1:8288/
  wattle console --listen unix:/tmp/console.sock
  wattle console --token-file token             takes orders that carry the token")]
pub struct ConsoleArgs {
    /// 127.0.0.1:PORT, [::1]:PORT or unix:PATH; port 0 lets the system choose.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8288")]
    pub listen: String,
    /// Take orders that carry the token of this file, which its owner alone can read.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A name of this machine by which browsers may ask, beside its own and its addresses; may be
    /// given several times.
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
    #[command(flatten)]
    pub runtime: Runtime,
}
