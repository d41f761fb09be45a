//! What is checked of every request before a site sees it.
//!
//! A page in a browser can send requests to any address: to one of this machine by its name (DNS
//! rebinding: a name of another's that stands for this machine), or across sites (a form that posts
//! here). So the host has to be an address or a name of this machine, and what changes anything has
//! to come from this site or from no page at all.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{Method, Uri};

use super::message::{HttpPeer, HttpReply};
use super::token::Token;

/// A longer path names nothing here.
const PATH_BYTES_MAX: usize = 2048;

/// Parts of a query that are looked at; the rest of what a header may hold.
const QUERY_PARTS_MAX: usize = 64;

/// What a server requires of requests.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub(super) token: Option<Token>,
    /// Reading needs the token too.
    pub(super) token_on_reads: bool,
    /// Names of this machine, in small letters.
    pub(super) names: Vec<String>,
    pub(super) is_tls: bool,
}

/// Whether a request only reads.
pub(super) fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

impl Guard {
    /// Whether the request carries the token, or why it is not answered.
    pub(super) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: HttpPeer,
    ) -> Result<bool, HttpReply> {
        if !matches!(*method, Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::DELETE) {
            return Err(
                HttpReply::text(405, "no such method here").with("allow", "GET, HEAD, POST, PUT, DELETE")
            );
        }
        let is_authorized = self.is_authorized(headers);
        let host = host(uri, headers)?;
        // A request that carries the secret was made by a program that has it, not by a page.
        if peer != HttpPeer::Unix && !is_authorized {
            match host {
                None => return Err(HttpReply::text(400, "the header Host is missing")),
                Some(host) if !self.is_ours(host) => {
                    return Err(HttpReply::text(
                        421,
                        "this host is not served here; use the address, or name it: --host",
                    ));
                }
                Some(_) => {}
            }
        }
        if !reads(method) && self.is_cross_site(host, headers) {
            return Err(HttpReply::text(403, "a page of another site may not do this"));
        }
        let needs_token = self.token.is_some() && (self.token_on_reads || !reads(method));
        if needs_token && !is_authorized {
            return Err(
                HttpReply::text(401, "the token is missing or wrong").with("www-authenticate", "Bearer")
            );
        }
        Ok(is_authorized)
    }

    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return false };
        let Some(value) = only(headers, &AUTHORIZATION) else { return false };
        let (scheme, given) = value.split_once(' ').unwrap_or((value, ""));
        scheme.eq_ignore_ascii_case("bearer") && token.is(given.trim_start().as_bytes())
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
        let bare = name.strip_suffix('.').unwrap_or(&name);
        literal.parse::<IpAddr>().is_ok() || bare == "localhost" || self.names.iter().any(|own| own == bare)
    }

    fn is_cross_site(&self, host: Option<&str>, headers: &HeaderMap) -> bool {
        let fetched = only(headers, &HeaderName::from_static("sec-fetch-site"));
        if fetched.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
            return true;
        }
        if headers.get_all(ORIGIN).iter().count() == 0 {
            return false;
        }
        let scheme = if self.is_tls { "https://" } else { "http://" };
        let from = only(headers, &ORIGIN).and_then(|origin| origin.strip_prefix(scheme));
        match (from, host) {
            (Some(from), Some(host)) => !from.eq_ignore_ascii_case(host),
            _ => true,
        }
    }
}

/// The value of a header that is there once, and text.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

/// The host that a request is for. A target that names another one than the header is none's.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Option<&'a str>, HttpReply> {
    let count = headers.get_all(HOST).iter().count();
    let header = only(headers, &HOST);
    if count > 1 || (count == 1 && header.is_none()) {
        return Err(HttpReply::text(400, "the header Host is there twice, or is no text"));
    }
    match (uri.authority(), header) {
        (Some(target), Some(header)) if !target.as_str().eq_ignore_ascii_case(header) => {
            Err(HttpReply::text(400, "the target names another host than the header Host"))
        }
        (Some(target), None) => Ok(Some(target.as_str())),
        (_, header) => Ok(header),
    }
}

fn without_port(host: &str) -> &str {
    let port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, digits)) if port(digits) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

/// The path of a target, decoded and normal; `None` if it is not: what has a `..`, an empty part
/// or a control character was made to be read differently by two readers.
pub(super) fn normal_path(raw: &str) -> Option<String> {
    if raw.len() > PATH_BYTES_MAX || !raw.starts_with('/') {
        return None;
    }
    let path = decoded(raw, false)?;
    let is_bad = |c: char| c.is_control() || c == '\\';
    let parts = path.strip_prefix('/')?;
    let parts = parts.strip_suffix('/').unwrap_or(parts);
    let is_normal = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(is_bad);
    (parts.is_empty() && path == "/" || !parts.is_empty() && parts.split('/').all(is_normal)).then_some(path)
}

/// The parts of a query; those that cannot be decoded are left out.
pub(super) fn query(raw: Option<&str>) -> Vec<(String, String)> {
    let parts = raw.unwrap_or("").split('&').filter(|part| !part.is_empty()).take(QUERY_PARTS_MAX);
    let pair = |part: &str| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        Some((decoded(key, true)?, decoded(value, true)?))
    };
    parts.filter_map(pair).collect()
}

fn decoded(raw: &str, is_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' if is_query => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(token: bool, names: &[&str]) -> Guard {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "0123456789abcdef").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Guard {
            token: token.then(|| Token::read(&path).unwrap()),
            token_on_reads: false,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            is_tls: false,
        }
    }

    fn status(guard: &Guard, method: &Method, uri: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let checked = guard.check(method, &uri.parse().unwrap(), &map, HttpPeer::Loopback);
        checked.map_or_else(|reply| reply.status(), |_| 200)
    }

    #[test]
    fn hosts_are_addresses_and_names_of_this_machine() {
        let guard = guard(false, &["nas", "nas.home.arpa"]);
        let of = |host| status(&guard, &Method::GET, "/metrics", &[("host", host)]);
        for ours in [
            "127.0.0.1",
            "127.0.0.1:9110",
            "[::1]:9110",
            "[::1]",
            "localhost:9110",
            "NAS",
            "nas.home.arpa.:80",
        ] {
            assert_eq!(of(ours), 200, "{ours}");
        }
        for other in
            ["evil.example", "evil.example:9110", "nas.evil.example", "127.0.0.1.evil.example", "", ":80"]
        {
            assert_eq!(of(other), 421, "{other}");
        }
        assert_eq!(status(&guard, &Method::GET, "/", &[]), 400);
        assert_eq!(status(&guard, &Method::GET, "/", &[("host", "nas"), ("host", "evil.example")]), 400);
        assert_eq!(status(&guard, &Method::GET, "http://nas/", &[("host", "evil.example")]), 400);
        assert_eq!(status(&guard, &Method::GET, "http://evil.example/", &[]), 421);
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let guard = guard(false, &[]);
        let of = |headers: &[(&'static str, &str)]| {
            let host = [("host", "127.0.0.1:9110")];
            status(&guard, &Method::POST, "/api", &[&host[..], headers].concat())
        };
        assert_eq!(of(&[]), 200);
        assert_eq!(of(&[("origin", "http://127.0.0.1:9110")]), 200);
        assert_eq!(of(&[("sec-fetch-site", "same-origin")]), 200);
        for origin in [
            "null",
            "http://evil.example",
            "https://127.0.0.1:9110",
            "http://127.0.0.1:9111",
            "127.0.0.1:9110",
        ] {
            assert_eq!(of(&[("origin", origin)]), 403, "{origin}");
        }
        assert_eq!(of(&[("sec-fetch-site", "cross-site")]), 403);
        assert_eq!(of(&[("sec-fetch-site", "same-site")]), 403);
        assert_eq!(of(&[("origin", "http://127.0.0.1:9110"), ("origin", "http://evil.example")]), 403);
        assert_eq!(status(&guard, &Method::TRACE, "/", &[("host", "127.0.0.1")]), 405);
        assert_eq!(status(&guard, &Method::CONNECT, "a:1", &[("host", "127.0.0.1")]), 405);
    }

    #[test]
    fn a_token_is_needed_for_what_it_guards() {
        let mut guard = guard(true, &[]);
        let host = ("host", "127.0.0.1");
        let right = ("authorization", "Bearer 0123456789abcdef");
        assert_eq!(status(&guard, &Method::GET, "/", &[host]), 200);
        assert_eq!(status(&guard, &Method::POST, "/", &[host]), 401);
        assert_eq!(status(&guard, &Method::POST, "/", &[host, right]), 200);
        assert_eq!(
            status(&guard, &Method::POST, "/", &[host, ("authorization", "bearer 0123456789abcdef")]),
            200
        );
        guard.token_on_reads = true;
        for wrong in [
            "Bearer 0123456789abcdeg",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer",
            "Bearer ",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert_eq!(status(&guard, &Method::GET, "/", &[host, ("authorization", wrong)]), 401, "{wrong}");
        }
        assert_eq!(status(&guard, &Method::GET, "/", &[host, right, right]), 401);
        assert_eq!(status(&guard, &Method::GET, "/", &[right, ("host", "a.name.of.ours")]), 200);
    }

    #[test]
    fn paths_are_normal_or_none() {
        for (raw, path) in [("/", "/"), ("/metrics", "/metrics"), ("/a/", "/a/"), ("/a%20b/%c3%a4", "/a b/ä")]
        {
            assert_eq!(normal_path(raw).as_deref(), Some(path));
        }
        for bad in [
            "",
            "*",
            "metrics",
            "//",
            "/a//b",
            "/../etc/passwd",
            "/a/..",
            "/.",
            "/%2e%2e/x",
            "/a/%2e",
            "/%2f",
            "/a%2f..%2fb",
            "/%00",
            "/a%0ab",
            "/\\x",
            "/%",
            "/%4",
            "/%zz",
            "/%ff",
        ] {
            assert_eq!(normal_path(bad), None, "{bad}");
        }
        assert_eq!(normal_path(&format!("/{}", "x".repeat(PATH_BYTES_MAX))), None);
        let parts = [("a", "1 2"), ("b", ""), ("c", "&")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(query(Some("a=1+2&b&c=%26&d=%ff&")), parts);
    }
}
