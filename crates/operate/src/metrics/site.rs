//! The page of metrics.

use std::sync::{Arc, Mutex, PoisonError};

use super::arrays::render;
use super::exposition::TextFormat;
use super::names::GivenNames;
use super::source::{AlertFigures, MachineReport, ReportSource};
use crate::http::{HttpFuture, HttpReply, HttpRequest, HttpServer, HttpSettings, HttpSite, Method};
use crate::smart::DriveWatch;
use wattle_control::Problem;

/// What alerts have come to, whenever it is asked.
type AlertsNow = dyn Fn() -> AlertFigures + Send + Sync;

/// Answers `/metrics`, and `/healthz` where nothing is to be told but that it runs.
pub struct MetricsSite {
    source: Arc<ReportSource>,
    drives: Option<Arc<DriveWatch>>,
    alerts: Option<Arc<AlertsNow>>,
    names: Arc<Mutex<GivenNames>>,
}

impl MetricsSite {
    /// Of what these servers tell.
    #[must_use]
    pub fn new(source: ReportSource) -> Self {
        Self { source: Arc::new(source), drives: None, alerts: None, names: Arc::default() }
    }

    /// And of what drives say of themselves.
    #[must_use]
    pub fn with_drives(mut self, drives: Arc<DriveWatch>) -> Self {
        self.drives = Some(drives);
        self
    }

    /// And of alerts.
    #[must_use]
    pub fn with_alerts(mut self, alerts: impl Fn() -> AlertFigures + Send + Sync + 'static) -> Self {
        self.alerts = Some(Arc::new(alerts));
        self
    }
}

impl HttpSite for MetricsSite {
    fn answer(&self, request: HttpRequest) -> HttpFuture {
        let reads = matches!(request.method, Method::GET | Method::HEAD);
        let format = TextFormat::accepted(request.header("accept"));
        let (source, drives, alerts) = (self.source.clone(), self.drives.clone(), self.alerts.clone());
        let names = self.names.clone();
        Box::pin(async move {
            match request.path.as_str() {
                _ if !reads => HttpReply::text(405, "metrics are only read").with("allow", "GET, HEAD"),
                "/metrics" => {
                    let text = tokio::task::spawn_blocking(move || {
                        let servers = source.look();
                        let drives = drives
                            .map(|watch| {
                                watch.known(servers.iter().filter_map(|sight| sight.report.as_ref()))
                            })
                            .unwrap_or_default();
                        let alerts = alerts.map(|alerts| alerts());
                        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
                        render(&MachineReport { servers, alerts, drives }, &mut names, format)
                    });
                    match text.await {
                        Ok(text) => HttpReply::new(200, format.content_type(), text),
                        Err(_) => HttpReply::text(500, "the scrape was not completed"),
                    }
                }
                "/healthz" => HttpReply::text(200, "ok"),
                "/" => HttpReply::text(200, "metrics are at /metrics"),
                _ => HttpReply::text(404, "metrics are at /metrics"),
            }
        })
    }
}

/// A server of metrics that listens.
///
/// # Errors
/// As [`HttpServer::listen`].
pub fn metrics_server(settings: HttpSettings, site: MetricsSite) -> Result<HttpServer, Problem> {
    HttpServer::listen(settings, site)
}
