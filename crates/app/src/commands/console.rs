//! `wattle console`: the page of what is served.

use serde_json::Value;
use wattle_control::members::MemberAccess;
use wattle_control::{Code, Problem};
use wattle_operate::console::{Console, ConsoleDocuments};
use wattle_operate::http::{HttpAddress, HttpServer, HttpSettings, Token};
use wattle_rt::BackendChoice;
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::Servers;

use super::{audit, status, why};
use crate::cli::{ConsoleArgs, Engine};
use crate::environment::runtime_dir;
use crate::{members, output};

/// The documents of the other commands.
struct Documents {
    access: MemberAccess,
    dir: RuntimeDir,
}

impl ConsoleDocuments for Documents {
    fn status(&self) -> Value {
        status::document(&self.dir)
    }

    fn why(&self, array: Option<&str>) -> Result<Value, Problem> {
        why::document(&self.dir, array)
    }

    /// Of this machine, and of the members of what is served.
    fn audit(&self) -> Result<Value, Problem> {
        let servers = Servers::ask(&self.dir);
        let members = servers.arrays().flat_map(|(_, array)| &array.members);
        // What is made up or lies across a network is no member that another process can look at.
        let local = members.filter_map(|member| member.member.clone()).filter(|name| name.starts_with('/'));
        audit::document(&self.access, &local.collect::<Vec<_>>())
    }
}

/// # Errors
/// It cannot listen, or the token cannot be used.
pub fn run(access: &MemberAccess, args: &ConsoleArgs) -> Result<(), Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let address: HttpAddress = args.listen.parse()?;
    let token = args.token_file.as_deref().map(Token::read).transpose()?;
    if !address.is_local() {
        return Err(Problem::new(
            Code::ListenUnprotected,
            format!("{address} can be reached from other machines"),
            "the page speaks no TLS, so what it shows and the token could be read on the way",
            "listen at 127.0.0.1 and forward the port: `ssh -L 8288:127.0.0.1:8288 HOST`",
        ));
    }
    let documents = Documents { access: access.clone(), dir: dir.clone() };
    let console = Console::start(dir, Box::new(documents), token.is_some())?;
    let settings = HttpSettings {
        token,
        names: args.hosts.clone(),
        limits: Console::limits(),
        ..HttpSettings::at(address)
    };
    let engine = Engine { cores: Some(1), backend: BackendChoice::Syscall };
    let server = HttpServer::listen(settings, console.site())?;
    members::run(&engine, 1, async |core| {
        let running = server.start()?;
        output::ready(&[match running.address() {
            HttpAddress::Tcp(address) => format!("http://{address}/"),
            unix => unix.to_string(),
        }]);
        let ended = core.terminated().await;
        // Viewers' replies end first: the server waits for what is being answered.
        drop(console);
        running.stop();
        ended.map(|_| ()).map_err(|error| {
            Problem::new(
                Code::ConsoleFailed,
                format!("signals cannot be waited for: {error}"),
                "without them there is no orderly end",
                "the system's limits say why",
            )
        })
    })
}
