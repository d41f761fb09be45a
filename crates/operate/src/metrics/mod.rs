//! What servers report, in OpenMetrics and in Prometheus' text format.
//!
//! [`MetricsSite`] answers scrapes of what a [`ReportSource`] tells; [`render`] is the text of it,
//! a function of that and of the names that were given before. Of arrays there are two sets of
//! names: those that node_exporter has for md (`node_md_*`, `device="md_NAME"`), so that dashboards
//! and rules that exist fit, and wattle's own.
//!
//! A server that does not answer is a metric (`wattle_server_up` is 0), not a scrape that fails.

mod arrays;
mod drives;
mod exposition;
mod names;
mod site;
mod source;

pub use arrays::render;
pub use exposition::TextFormat;
pub use names::{GivenNames, md_device_name};
pub use site::{MetricsSite, metrics_server};
pub use source::{AlertFigures, MachineReport, ReportSource, ServerSight};
