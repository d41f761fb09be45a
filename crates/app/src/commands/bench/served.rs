//! Benchmarks of an array that another process serves, over its NBD export as any client: what the
//! server, the socket and the array come to together. Each job has a connection of its own.

use std::sync::Arc;

use wattle_control::{Code, Problem, shell_word};
use wattle_engine::CounterTotals;
use wattle_engine::VolumeError;
use wattle_export::NbdAddress;
use wattle_export::nbd::limits::REQUEST_BYTES_MAX;
use wattle_export::nbd::{Client, ClientError};
use wattle_modelled::{
    Board, Load, LoadError, LoadTarget as Goal, Requests, RunningJob, Yardstick, start_jobs,
};
use wattle_rt::{Buf, BufMut, Core};
use wattle_server::exports::parse_uri;
use wattle_server::protocol::report::{self, Counters};

use super::condition::Condition;
use super::report::{BenchReport, BenchedArrayReport};
use super::{CORES_MAX, check_may_write, rounds};
use crate::cli::BenchArgs;
use crate::commands::plans::RowPlanReport;
use crate::members;
use crate::target::ServedTarget;

/// # Errors
/// It would be written over, cannot be reached, or a request failed.
pub fn run(args: &BenchArgs, load: &Load, target: &ServedTarget) -> Result<BenchReport, Problem> {
    let before = target.array();
    if load.read_part() < 1.0 {
        check_may_write(args, &before.name, before.read_only)?;
    }
    if load.bs_bytes > u64::from(REQUEST_BYTES_MAX) {
        return Err(Problem::new(
            Code::Usage,
            format!("--bs {}: longer than a request over NBD can be", load.bs_bytes),
            format!("servers take at most {REQUEST_BYTES_MAX} bytes"),
            "ask for smaller requests",
        ));
    }
    let uri = before.exports.iter().find_map(|uri| parse_uri(uri));
    let secured = before.exports.iter().any(|uri| uri.starts_with("nbds://"));
    let (address, export) = uri.ok_or_else(|| match secured {
        true => unreachable(before, "it has no NBD export without TLS (--export nbd=unix:PATH is one)"),
        false => unreachable(before, "it has no NBD export"),
    })?;
    let (cores, warmed, measured) = members::run(&args.engine, CORES_MAX, async |core| {
        let first = Client::connect(&core, &address, &export).await;
        let size_bytes = first.map_err(|error| unreachable(before, &error.to_string()))?.size_bytes();
        let volume = ServedVolume { address, export, size_bytes };
        let (warmed, measured) = rounds(&core, args, &volume, load, Yardstick::Updates, false).await?;
        Ok((core.cores(), warmed, measured))
    })?;
    let after = target.look()?;
    let condition = Condition::of_report(before).and(Condition::of_report(&after));
    let plans =
        before.cache.map(|_| RowPlanReport::between(&totals(&before.counters), &totals(&after.counters)));
    let array = BenchedArrayReport::of_served(before, cores);
    Ok(BenchReport::new(array, condition, load, Yardstick::Updates, &warmed, &measured, plans))
}

fn unreachable(array: &report::ArrayReport, why: &str) -> Problem {
    Problem::new(
        Code::ServerFailed,
        format!("{} cannot be reached", array.name),
        why,
        format!("`wattle status {}` shows where clients connect", shell_word(&array.name)),
    )
}

fn totals(counters: &Counters) -> CounterTotals {
    CounterTotals {
        rows_full: counters.rows_full,
        rows_reconstruct: counters.rows_reconstruct,
        rows_read_modify: counters.rows_read_modify,
        rows_degraded: counters.rows_degraded,
        pre_reads: counters.pre_reads,
        merged: counters.merged,
        ..CounterTotals::default()
    }
}

/// An export, for each job to connect to.
#[derive(Clone)]
struct ServedVolume {
    address: NbdAddress,
    export: String,
    size_bytes: u64,
}

impl Goal for ServedVolume {
    type Opened = Connection;

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    async fn open(&self, core: &Core) -> Result<Connection, VolumeError> {
        Client::connect(core, &self.address, &self.export).await.map(Connection).map_err(read_error)
    }

    fn start(&self, load: &Load, core: &Core, board: &Arc<Board>) -> Result<Vec<RunningJob>, LoadError> {
        start_jobs(load, core, self, board)
    }
}

struct Connection(Client);

impl Requests for Connection {
    async fn read(&self, at: u64, buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        // Longer ones were refused before anything began.
        match self.0.read(at, u32::try_from(buf.len()).unwrap_or(u32::MAX)).await {
            Ok(data) => (Ok(()), data),
            Err(error) => (Err(read_error(error)), buf),
        }
    }

    async fn write(&self, at: u64, data: Buf) -> Result<(), VolumeError> {
        self.0.write(at, data, 0).await.map_err(write_error)
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.0.flush().await.map_err(write_error)
    }
}

fn read_error(error: ClientError) -> VolumeError {
    known(error).unwrap_or(VolumeError::Unreadable)
}

fn write_error(error: ClientError) -> VolumeError {
    known(error).unwrap_or(VolumeError::WriteFailed)
}

/// What the protocol's error numbers stand for; a server that is gone has stopped the array as far
/// as a client can see.
fn known(error: ClientError) -> Option<VolumeError> {
    match error {
        ClientError::Failed(1) => Some(VolumeError::ReadOnly),
        ClientError::Failed(22) => Some(VolumeError::OutOfRange),
        ClientError::Failed(28) => Some(VolumeError::NoSpace),
        ClientError::Failed(108) => Some(VolumeError::Stopped),
        ClientError::Failed(_) => None,
        _ => Some(VolumeError::Stopped),
    }
}
