//! What two files cannot say at once.

use std::collections::BTreeMap;

use wattle_control::Code;
use wattle_server::exports::{Address, NbdAddress, NvmeAddress, UblkAddress};

use super::{ConfigFault, StackConfig, pattern};
use crate::http::HttpAddress;

/// A name that only one stack may use, and how it is called in a message.
type Claim = (&'static str, String);

/// Everything that is claimed twice, told at the second place.
pub fn clashes(stacks: &[&StackConfig]) -> Vec<ConfigFault> {
    let mut first: BTreeMap<Claim, (&StackConfig, usize)> = BTreeMap::new();
    let mut faults = Vec::new();
    for &stack in stacks {
        for (claim, line) in claims(stack) {
            let Some((other, at)) = first.get(&claim) else {
                first.insert(claim, (stack, line));
                continue;
            };
            let (kind, name) = claim;
            faults.push(ConfigFault {
                file: stack.file.clone(),
                line,
                code: Code::ConfigClash,
                what: format!("the {kind} {name} is named twice"),
                why: format!("{}:{at} has it already", other.file.display()),
                next: "leave it to one of them".to_owned(),
            });
        }
    }
    faults
}

fn claims(stack: &StackConfig) -> Vec<(Claim, usize)> {
    let mut claims = Vec::new();
    let mut claim = |kind, name: String, line| claims.push(((kind, name), line));
    for array in &stack.arrays {
        claim("array", array.value.to_lowercase(), array.line);
    }
    // Where arrays are named, others may be on the same members.
    let members = stack.members.iter().filter(|_| stack.arrays.is_empty() && stack.volumes.is_empty());
    for member in members.chain(&stack.spares) {
        for name in pattern::expand(&member.value) {
            claim("member", pattern::real_name(&name), member.line);
        }
    }
    for export in &stack.exports {
        match &export.value {
            // The system chooses another one for each.
            Address::Nbd(NbdAddress::Tcp { port: 0, .. }) => {}
            Address::NvmeTcp(NvmeAddress { port: 0, .. }) => {}
            Address::Nbd(NbdAddress::Tcp { host, port }) | Address::NvmeTcp(NvmeAddress { host, port }) => {
                claim("address", format!("{host}:{port}"), export.line);
            }
            // Each volume has a socket of its own there.
            Address::VhostUser(_) => {}
            // The kernel numbers them.
            Address::Ublk(UblkAddress { first: None, .. }) => {}
            other => claim("address", other.to_string(), export.line),
        }
    }
    if let Some(metrics) = &stack.metrics {
        let name = match &metrics.value {
            HttpAddress::Tcp(address) => format!("{}:{}", address.ip(), address.port()),
            HttpAddress::Unix(path) => format!("nbd=unix:{}", path.display()),
        };
        claim("address", name, metrics.line);
    }
    claims
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn faults(texts: &[&str]) -> Vec<String> {
        let stack = |(ix, text): (usize, &&str)| {
            StackConfig::parse(Path::new(&format!("{ix}.toml")), text).unwrap_or_else(|f| panic!("{f:?}"))
        };
        let stacks: Vec<_> = texts.iter().enumerate().map(stack).collect();
        clashes(&stacks.iter().collect::<Vec<_>>())
            .iter()
            .map(|fault| format!("{} {}", fault.place(), fault.what))
            .collect()
    }

    #[test]
    fn an_array_an_address_and_a_member_belong_to_one_stack() {
        assert_eq!(
            faults(&["arrays = ['data']", "members = ['/x*']\narrays = ['Data']"]),
            ["1.toml:2 the array data is named twice"]
        );
        let member = "members = ['/nowhere/a', '/nowhere/b']";
        assert_eq!(
            faults(&[member, "members = [\n'/nowhere/c',\n'/nowhere/b']"]),
            ["1.toml:3 the member /nowhere/b is named twice"]
        );
        assert_eq!(
            faults(&["arrays = ['a']\nexports = ['nbd=tcp:[::1]:1']\nmetrics = '[::1]:1'"]),
            ["0.toml:3 the address ::1:1 is named twice"]
        );
        assert_eq!(
            faults(&["arrays = ['a']\nexports = ['fuse=/a']", "arrays = ['b']\nexports = ['fuse=/a']"]),
            ["1.toml:2 the address fuse=/a is named twice"]
        );
    }

    #[test]
    fn two_arrays_may_be_on_the_same_drives_and_the_system_may_choose_ports() {
        let members = "members = ['/nowhere/a']\nexports = ['nbd=tcp:127.0.0.1:0']";
        let of = |array: &str| format!("{members}\narrays = ['{array}']");
        assert_eq!(faults(&[&of("a"), &of("b")]), [""; 0]);
    }
}
