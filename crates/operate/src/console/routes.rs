//! What is answered at which path.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::Method;
use serde::Serialize;
use serde_json::{Value, json};
use wattle_control::{Code, Problem};
use wattle_server::protocol::report::ScrubReport;
use wattle_server::protocol::{ErrorReport, SCHEMA_VERSION};
use wattle_server::socket::client::Servers;

use super::assets::{self, ConsoleAsset};
use super::orders;
use super::poller::Looker;
use super::verdict::{self, JudgedArray};
use super::view;
use crate::http::{HttpFuture, HttpReply, HttpRequest, HttpSite};
use crate::scrub_files::{ScrubFiles, to_be_named};

/// What the page may do in a browser.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file below its version never changes.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// What is older is looked at again for `/healthz`.
const HEALTH_AGE_MAX: Duration = Duration::from_secs(1);

/// The page's site.
#[derive(Clone)]
pub struct ConsoleSite {
    known: Arc<Looker>,
    version: Arc<str>,
    takes_orders: bool,
    /// Where the kernel shows drives.
    sys: PathBuf,
    audit: Arc<Mutex<Audit>>,
}

impl std::fmt::Debug for ConsoleSite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsoleSite").field("known", &self.known).finish_non_exhaustive()
    }
}

/// The last audit, which all viewers share.
#[derive(Default)]
struct Audit {
    is_running: bool,
    last: Option<Result<Value, Problem>>,
}

#[derive(Serialize)]
struct Scrubs<'a> {
    schema_version: u32,
    arrays: Vec<ScrubsOf<'a>>,
}

#[derive(Serialize)]
struct ScrubsOf<'a> {
    name: &'a str,
    uuid: Option<&'a str>,
    server: &'a str,
    scrubs: &'a [ScrubReport],
    files: Option<ScrubFiles>,
    naming: bool,
}

impl ConsoleSite {
    /// A site that shows what is known.
    pub(super) fn new(known: Arc<Looker>, takes_orders: bool, sys: PathBuf) -> Self {
        Self { known, version: assets::version().into(), takes_orders, sys, audit: Arc::default() }
    }

    async fn reply(self, request: HttpRequest) -> HttpReply {
        let reads = matches!(request.method, Method::GET | Method::HEAD);
        match (request.path.as_str(), reads) {
            ("/", true) => self.page(),
            ("/events", true) => self.events(&request),
            ("/healthz", true) => blocking(move || self.health()).await,
            ("/api/v1/status", true) => {
                blocking(move || HttpReply::json(200, &self.known.documents.status())).await
            }
            ("/api/v1/why", true) => {
                blocking(move || or_problem(self.known.documents.why(request.query("array")))).await
            }
            ("/api/v1/scrubs", true) => blocking(move || self.scrubs(&self.known.ask())).await,
            ("/api/v1/history", true) => self.history(),
            ("/api/v1/audit", true) => self.audit(&request),
            ("/api/v1/orders", false) if request.method == Method::POST => self.order(request).await,
            ("/api/v1/orders", _) => HttpReply::text(405, "orders are posted").with("allow", "POST"),
            (path, true) => match ConsoleAsset::at(path) {
                Some(asset) => self.asset(asset, &request),
                None => HttpReply::text(404, "nothing is here"),
            },
            (_, false) => HttpReply::text(405, "this is only read").with("allow", "GET, HEAD"),
        }
    }

    fn page(&self) -> HttpReply {
        let (headline, detail) = self.known.headline();
        let html = assets::page(&self.version, &headline, &detail);
        HttpReply::new(200, "text/html; charset=utf-8", html)
            .with("content-security-policy", POLICY)
            .with("cache-control", "no-cache")
    }

    fn asset(&self, asset: &'static ConsoleAsset, request: &HttpRequest) -> HttpReply {
        let tag = format!("\"{}\"", self.version);
        let known =
            request.header("if-none-match").is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag));
        let reply = match known {
            true => HttpReply::new(304, asset.content_type, &[][..]),
            false => HttpReply::new(200, asset.content_type, asset.bytes),
        };
        reply.with("etag", &tag).with("cache-control", FOR_EVER)
    }

    fn events(&self, request: &HttpRequest) -> HttpReply {
        if request.method == Method::HEAD {
            return HttpReply::new(200, "text/event-stream", &[][..]);
        }
        let known = self.known.clone();
        HttpReply::stream("text/event-stream", move || known.view())
    }

    fn health(&self) -> HttpReply {
        let servers = self.known.looked(HEALTH_AGE_MAX).unwrap_or_else(|| self.known.ask());
        let arrays: Vec<_> =
            servers.arrays().map(|(_, array)| (array, verdict::of_array(array, Vec::new()))).collect();
        let judged: Vec<_> =
            arrays.iter().map(|(array, verdict)| JudgedArray { name: &array.name, verdict }).collect();
        let volumes = servers.reports().map(|server| server.volumes.len()).sum();
        let said = verdict::of_machine(&judged, servers.silent.len(), servers.dead.len(), volumes);
        let status = if said.check_status == 0 { 200 } else { 503 };
        let body = json!({
            "schema_version": SCHEMA_VERSION, "status": said.check_status, "standing": said.standing,
            "headline": said.headline,
        });
        HttpReply::json(status, &body)
    }

    fn scrubs(&self, servers: &Servers) -> HttpReply {
        self.known.want_files();
        let of = servers.reports().flat_map(|server| {
            server.arrays.iter().map(|array| {
                let files = self.known.scrub_files(&view::key(&server.server, array), array);
                ScrubsOf {
                    name: &array.name,
                    uuid: array.uuid.as_deref(),
                    server: &server.server,
                    scrubs: &array.scrubs,
                    naming: files.is_none() && to_be_named(array).is_some(),
                    files,
                }
            })
        });
        HttpReply::json(200, &Scrubs { schema_version: SCHEMA_VERSION, arrays: of.collect() })
    }

    fn history(&self) -> HttpReply {
        HttpReply::json(200, &json!({ "schema_version": SCHEMA_VERSION, "arrays": self.known.history() }))
    }

    /// The last audit; with `run`, another one begins, beside the requests.
    fn audit(&self, request: &HttpRequest) -> HttpReply {
        let mut audit = self.audit.lock().unwrap_or_else(PoisonError::into_inner);
        // A page of another site could make drives spin up.
        let is_ours = request.header("sec-fetch-site").is_none_or(|site| site == "same-origin");
        if request.query("run").is_some() && is_ours && !audit.is_running {
            audit.is_running = true;
            let site = self.clone();
            tokio::task::spawn_blocking(move || {
                let found = site.known.documents.audit();
                let mut audit = site.audit.lock().unwrap_or_else(PoisonError::into_inner);
                *audit = Audit { is_running: false, last: Some(found) };
            });
        }
        match (&audit.last, audit.is_running) {
            (_, true) => HttpReply::json(202, &json!({ "schema_version": SCHEMA_VERSION, "running": true })),
            (None, false) => {
                HttpReply::json(404, &json!({ "schema_version": SCHEMA_VERSION, "running": false }))
            }
            (Some(Ok(report)), false) => HttpReply::json(200, report),
            (Some(Err(problem)), false) => HttpReply::problem(problem),
        }
    }

    async fn order(self, request: HttpRequest) -> HttpReply {
        if !self.takes_orders {
            let problem = Problem::new(
                Code::ConsoleReadOnly,
                "this page only shows",
                "it was started without a token, so it takes no orders",
                "start it with --token-file FILE, or run the command yourself",
            );
            return refused(403, &problem);
        }
        // The server of pages has looked at it already: this is the second lock.
        if !request.is_authorized {
            return HttpReply::text(401, "the token is missing or wrong").with("www-authenticate", "Bearer");
        }
        blocking(move || {
            let carried_out = orders::parse(&request.body).and_then(|order| {
                // A name may stand for another array a moment later: it is looked up now.
                let servers = Servers::ask(&self.known.dir);
                let planned = orders::plan(&servers, &order, &self.sys)?;
                orders::carry_out(planned, order.confirm.as_deref())
            });
            self.known.hurry();
            or_problem(carried_out)
        })
        .await
    }
}

impl HttpSite for ConsoleSite {
    fn answer(&self, request: HttpRequest) -> HttpFuture {
        Box::pin(self.clone().reply(request))
    }
}

/// What waits for other processes waits beside the server's thread.
async fn blocking(work: impl FnOnce() -> HttpReply + Send + 'static) -> HttpReply {
    let reply = tokio::task::spawn_blocking(work).await;
    reply.unwrap_or_else(|_| HttpReply::text(500, "the answer could not be made"))
}

fn or_problem(result: Result<impl Serialize, Problem>) -> HttpReply {
    match result {
        Ok(value) => HttpReply::json(200, &value),
        Err(problem) => HttpReply::problem(&problem),
    }
}

fn refused(status: u16, problem: &Problem) -> HttpReply {
    HttpReply::json(status, &ErrorReport::from(problem))
}
