//! Proofs of hosts and of controllers, over real connections.
//!
//! The host's private key in Diffie-Hellman is 1: its public value is the generator, and the key
//! that both ends share is the controller's public value.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use wattle_export::nbd::Limits;
use wattle_export::nvme::NvmeSecrets;

use super::host::{HOST, Host, MOMENT, Rig, SECRET, with_guarded_target};
use crate::support::within;

/// The controller's secret in the test: 32 times 8.
const CONTROLLER_SECRET: &str = "DHHC-1:00:CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgnCjZ2:";
const PROOF_REQUIRED: u16 = 0x191;
const AGREES: [u8; 16] = [1, 4, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const FAILS: [u8; 16] = [0, 0xf1, 0, 0, 3, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0];

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn offer(groups: &[u8]) -> Vec<u8> {
    let mut offer = vec![0; 72];
    (offer[4], offer[7], offer[8], offer[10], offer[12]) = (3, 1, 1, 1, 1);
    offer[11] = groups.len() as u8;
    offer[42..42 + groups.len()].copy_from_slice(groups);
    offer
}

impl Host {
    /// The success or failure that the host fetches in the end, and the proof of the controller
    /// that it would be right with; it asks for one if it has the key.
    async fn prove_in(
        &mut self,
        subsystem: &str,
        groups: &[u8],
        controller: Option<&[u8]>,
    ) -> (Vec<u8>, Vec<u8>) {
        self.send_proof(&offer(groups)).await.unwrap();
        let challenge = self.fetch_proof().await.unwrap();
        assert_eq!((challenge[1], challenge[6], challenge[8]), (1, 32, 1));
        let length = usize::from(u16::from_le_bytes([challenge[10], challenge[11]]));
        let shared = &challenge[48..48 + length];
        let augmented = |value: &[u8]| mac(&Sha256::digest(shared), &[value]);
        let transaction: &[u8] = &[3, 0, 0];
        let parts: [&[u8]; 7] = [
            &augmented(&challenge[16..48]),
            &challenge[12..16],
            transaction,
            b"HostHost",
            HOST.as_bytes(),
            &[0],
            subsystem.as_bytes(),
        ];
        let mut reply = vec![1, 2, 0, 0, 3, 0, 32, 0, controller.is_some().into(), 0];
        reply.extend((length as u16).to_le_bytes());
        reply.extend([6, 0, 0, 0]);
        reply.extend(mac(&[7; 32], &parts));
        reply.extend([0x42; 32]);
        reply.extend(vec![0; length - 1]);
        reply.push(2);
        self.send_proof(&reply).await.unwrap();
        let parts: [&[u8]; 7] = [
            &augmented(&[0x42; 32]),
            &[6, 0, 0, 0],
            transaction,
            b"Controller",
            subsystem.as_bytes(),
            &[0],
            HOST.as_bytes(),
        ];
        (self.fetch_proof().await.unwrap(), mac(controller.unwrap_or(&[]), &parts))
    }
}

impl Rig {
    async fn to_prove(&self) -> Host {
        let mut host = Host::dial(&self.core, self.ports[0], 0).await;
        host.connect(0, u16::MAX, self.subsystem.nqn(), 31, 0).await.unwrap();
        assert!(host.must_prove);
        host
    }
}

fn guarded(secrets: &str, test: impl AsyncFnOnce(Rig)) {
    let secrets = NvmeSecrets::parse(&format!("{HOST} {secrets}")).unwrap();
    with_guarded_target(2, Limits::default(), Some(secrets), test);
}

#[test]
fn a_host_proves_its_name_in_every_group() {
    guarded(SECRET, async |rig| {
        let nqn = rig.subsystem.nqn();
        for group in 1..=5 {
            let mut host = rig.to_prove().await;
            let (success, _) = host.prove_in(nqn, &[0, group], None).await;
            assert_eq!((success[1], success[8]), (3, 0), "group {group}");
            host.enable().await;
        }
        // It asks for a proof, and there is no secret for that.
        let mut host = rig.to_prove().await;
        let (failure, _) = host.prove_in(nqn, &[2], Some(&[8; 32])).await;
        assert_eq!((failure[1], failure[7]), (0xf0, 2));
        assert_eq!(host.identify(1, 0).await.unwrap_err() & 0xfff, PROOF_REQUIRED);
    });
}

#[test]
fn a_controller_proves_its_name_and_the_host_has_to_agree() {
    guarded(&format!("{SECRET} {CONTROLLER_SECRET}"), async |rig| {
        let nqn = rig.subsystem.nqn();
        for group in 1..=5 {
            let mut host = rig.to_prove().await;
            let (success, proof) = host.prove_in(nqn, &[group, 0], Some(&[8; 32])).await;
            assert_eq!((success[1], success[8]), (3, 1), "group {group}");
            assert_eq!(success[16..48], proof, "group {group}");
            assert_eq!(host.identify(1, 0).await.unwrap_err() & 0xfff, PROOF_REQUIRED);
            host.send_proof(&AGREES).await.unwrap();
            host.enable().await;
            assert!(host.identify(1, 0).await.is_ok());
        }
        // A host with another secret of the controller goes.
        let mut host = rig.to_prove().await;
        let (success, proof) = host.prove_in(nqn, &[2], Some(&[9; 32])).await;
        assert_ne!(success[16..48], proof);
        host.send_proof(&FAILS).await.unwrap();
        assert!(within(&rig.core, MOMENT, host.receive()).await.expect("it is closed").is_none());
    });
}

/// They all want the largest group, and go on with new connections while others wait.
#[test]
fn strangers_that_have_the_target_compute_hold_up_no_other() {
    guarded(SECRET, async |rig| {
        let nqn = rig.subsystem.nqn();
        let mut crowd = Vec::new();
        for _ in 0..100 {
            let mut stranger = rig.to_prove().await;
            let message = offer(&[5]);
            let mut entry = stranger.command(0x7f);
            entry[4..8].copy_from_slice(&[5, 0, 0, 0]);
            entry[32..36].copy_from_slice(&(message.len() as u32).to_le_bytes());
            (entry[39], entry[41], entry[42], entry[43]) = (1, 1, 1, 0xe9);
            stranger.submit(&entry, &message).await;
            crowd.push(stranger);
        }
        let mut host = rig.to_prove().await;
        let proved = within(&rig.core, Duration::from_secs(8), host.prove_in(nqn, &[2], None)).await;
        assert_eq!(proved.expect("its turn comes").0[1], 3);
        host.enable().await;
    });
}
