//! Quality of service of what is offered: settings of volumes, and what they do.

use std::rc::Rc;

use wattle_control::{Code, Problem};
use wattle_engine::volume::qos::QosSite;

use super::{Serving, being_stopped};
use crate::exports::Offered;
use crate::protocol::report::VolumeQosReport;
use crate::protocol::why::WhyReport;
use crate::settings::{self, SettingChange};
use crate::{qos, why};

/// The same with limits and a share.
pub(super) fn governed(site: &QosSite, offered: Offered) -> Offered {
    Offered { volume: site.govern(offered.volume), ..offered }
}

impl Serving {
    /// With these settings of volumes, for all that are offered now and later.
    ///
    /// # Errors
    /// A setting names a volume that is not offered.
    pub async fn set_at_start(&mut self, settings: &[String]) -> Result<(), Problem> {
        self.settings = settings.to_vec();
        for (key, value) in settings::parse_all(settings)? {
            if let SettingChange::Qos(Some(name), _) = settings::parse(key, value)? {
                self.offered_as(&name)?;
            }
        }
        for offered in self.offered().iter() {
            self.start_qos(offered).await;
        }
        Ok(())
    }

    /// Sets what was asked for at the start.
    pub(super) async fn start_qos(&self, offered: &Offered) {
        let Some(governed) = offered.volume.governed() else { return };
        let mut limits = governed.limits();
        // They made sense when the server started.
        let mut changes: Vec<_> = settings::parse_all(&self.settings).unwrap_or_default();
        // What is said of one volume holds against what is said of all, wherever it stands.
        changes.sort_by_key(|(key, _)| settings::parts(key).0.is_some());
        for (key, value) in changes {
            if let Ok(SettingChange::Qos(of, change)) = settings::parse(key, value)
                && of.is_none_or(|name| name == offered.name)
            {
                limits = change.made(limits);
            }
        }
        if limits != governed.limits() {
            governed.set(&self.core, limits).await;
        }
    }

    /// Changes a setting of an array or of a volume.
    pub(super) async fn set(&self, name: &str, key: &str, value: &str) -> Result<String, Problem> {
        let SettingChange::Qos(of, change) = settings::parse(key, value)? else {
            return self.find(name)?.set(key, value).await;
        };
        let offered = self.offered_as(of.as_deref().unwrap_or(name))?;
        let governed = offered.volume.governed().ok_or_else(|| being_stopped(name))?;
        governed.set(&self.core, change.made(governed.limits())).await;
        let (_, key) = settings::parts(key);
        Ok(format!("{}: {key} is {value}", offered.name))
    }

    /// What limits and shares do to each volume.
    pub(super) async fn qos(&self) -> Vec<VolumeQosReport> {
        let mut reports = Vec::new();
        for offered in self.offered().iter() {
            if let Some(governed) = offered.volume.governed() {
                reports.extend(qos::report(&offered.name, &governed.status(&self.core).await));
            }
        }
        reports
    }

    /// Nothing is held back any more: of one volume that ends, or of all. What waits is answered
    /// before exports end.
    pub async fn release(&self, name: Option<&str>) {
        for offered in self.offered().iter().filter(|offered| name.is_none_or(|name| name == offered.name)) {
            if let Some(governed) = offered.volume.governed() {
                governed.release(&self.core).await;
            }
        }
    }

    /// A volume that was stopped is no neighbour of others any more.
    pub(super) async fn end_qos(&self, name: &str) {
        let offered = self.offered();
        let stopped = offered.iter().find(|offered| offered.name == name);
        if let Some(governed) = stopped.and_then(|offered| offered.volume.governed()) {
            governed.end(&self.core).await;
        }
    }

    /// Why an array is as it is, with what holds its clients back.
    pub(super) async fn why(&self, name: &str) -> Result<WhyReport, Problem> {
        let served = self.find(name)?;
        let mut report = served.why().await;
        let held = self.qos().await;
        let on_it =
            |of: &&VolumeQosReport| self.find(&of.volume).is_ok_and(|other| Rc::ptr_eq(&other, &served));
        let goals: Vec<_> = held.iter().filter(|of| qos::has_goal(of)).map(|of| of.volume.as_str()).collect();
        let of_volume = |of: &VolumeQosReport| why::of_volume(of, &goals);
        report.decisions.extend(held.iter().filter(on_it).flat_map(of_volume));
        Ok(report)
    }

    /// The volume that is offered under this name, or as the array of this name or UUID.
    pub(super) fn offered_as(&self, name: &str) -> Result<Offered, Problem> {
        let offered = self.offered();
        let found = offered.iter().find(|offered| offered.name == name);
        let array = || {
            let served = self.find(name).ok()?;
            offered.iter().find(|offered| offered.volume.is(&served.handle.volume()))
        };
        // Never another that came, or was left over, in the place of the first.
        let is_sole = |offered: &&Offered| self.sole_volume.as_ref().is_some_and(|it| offered.volume.is(it));
        let only = || offered.iter().find(is_sole).filter(|_| name == self.server);
        found.or_else(array).or_else(only).cloned().ok_or_else(|| {
            let names: Vec<_> = offered.iter().map(|offered| offered.name.as_str()).collect();
            Problem::new(
                Code::ServerNotFound,
                format!("{name} is no volume that clients are offered"),
                format!("that is of volumes, each for itself; offered are {}", names.join(", ")),
                "name one of these",
            )
        })
    }
}
