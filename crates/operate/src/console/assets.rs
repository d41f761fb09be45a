//! The files of the page, which are part of the program.

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct ConsoleAsset {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub content_type: &'static str,
    /// All of it.
    pub bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! assets {
    ($($name:literal, $type:ident;)*) => {
        /// All of them.
        pub const ASSETS: &[ConsoleAsset] = &[$(
            ConsoleAsset { name: $name, content_type: $type, bytes: include_bytes!(concat!("page/", $name)) },
        )*];
    };
}

assets! {
    "index.html", HTML;
    "style.css", CSS;
    "icon.svg", SVG;
    "app.js", JS;
    "feed.js", JS;
    "text.js", JS;
    "arrays.js", JS;
    "members.js", JS;
    "stack.js", JS;
    "charts.js", JS;
    "log.js", JS;
    "orders.js", JS;
    "vendor/htm-preact.js", JS;
}

/// What stands in the page for the version of its files.
const VERSION_MARK: &str = "VERSION";

/// What stands in the page for the verdict, as it is without scripts.
const VERDICT_MARK: &str = "<!--verdict-->";

impl ConsoleAsset {
    /// The file of a path below `/a/VERSION/`: it never changes, since its version would. The page
    /// itself is none of them.
    #[must_use]
    pub fn at(path: &str) -> Option<&'static Self> {
        let name = path.strip_prefix("/a/")?.strip_prefix(&version())?.strip_prefix('/')?;
        ASSETS.iter().find(|asset| asset.name == name && asset.name != PAGE)
    }
}

/// The name of the page itself.
const PAGE: &str = "index.html";

/// Tells one set of files from another: FNV-1a, 64 bits.
#[must_use]
pub fn version() -> String {
    let bytes = ASSETS.iter().flat_map(|asset| asset.bytes);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The page, with what is to be seen before any script runs.
#[must_use]
pub fn page(version: &str, headline: &str, detail: &str) -> String {
    let html = ASSETS.iter().find(|asset| asset.name == PAGE).map_or(&[][..], |asset| asset.bytes);
    let verdict = format!("<h1>{}</h1><p>{}</p>", escaped(headline), escaped(detail));
    String::from_utf8_lossy(html).replace(VERSION_MARK, version).replace(VERDICT_MARK, &verdict)
}

fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    /// All that a browser loads.
    const BYTES_MAX: usize = 100_000;

    #[test]
    fn the_page_is_small() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn what_others_wrote_is_as_they_published_it() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console/page/vendor");
        let sums = std::fs::read_to_string(dir.join("SHA256SUMS")).unwrap();
        let sums: BTreeMap<&str, &str> =
            sums.lines().map(|line| line.split_once("  ").map(|(sum, name)| (name, sum)).unwrap()).collect();
        let mut files = 0;
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if matches!(name.as_str(), "SHA256SUMS" | "README") {
                continue;
            }
            use sha2::Digest;
            let digest = sha2::Sha256::digest(std::fs::read(&path).unwrap());
            let sum: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(sums.get(name.as_str()), Some(&sum.as_str()), "{name}");
            files += 1;
        }
        assert_eq!(files, sums.len(), "a file of SHA256SUMS is not there");
    }

    #[test]
    fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
        for asset in ASSETS.iter().filter(|asset| !asset.name.starts_with("vendor/")) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            for url in ["http://", "https://", "//cdn", "@import", "eval(", "new Function", "innerHTML"] {
                let names_a_space = text.replace("http://www.w3.org/2000/svg", "");
                assert!(!names_a_space.contains(url), "{} has {url}", asset.name);
            }
        }
        let html = page("v", "", "");
        for tag in html.split("<script").skip(1) {
            assert!(tag.trim_start().split('>').next().unwrap().contains("src="), "an inline script");
        }
        assert!(!html.contains("<style") && !html.contains("style=") && !html.contains("onclick"));
    }

    /// Every module that a module imports, and every file that the page names, is there.
    #[test]
    fn all_that_is_named_is_served() {
        let (mut named, version) = (0, version());
        for asset in ASSETS.iter().filter(|asset| !asset.name.starts_with("vendor/")) {
            let text = String::from_utf8_lossy(asset.bytes);
            let imports = text.split("from './").skip(1).map(|rest| rest.split('\'').next().unwrap());
            let sources = text.split("=\"/a/VERSION/").skip(1).map(|rest| rest.split('"').next().unwrap());
            for name in imports.chain(sources) {
                let path = format!("/a/{version}/{name}");
                assert!(ConsoleAsset::at(&path).is_some(), "{} names {name}", asset.name);
                named += 1;
            }
        }
        assert!(named >= 15, "only {named} names were found");
    }

    #[test]
    fn paths_lead_to_files_of_this_version_only() {
        let version = version();
        assert!(ConsoleAsset::at(&format!("/a/{version}/app.js")).is_some());
        for path in ["/a/0000000000000000/app.js", "/app.js", "/a/", "/a//app.js", "/a/app.js"] {
            assert!(ConsoleAsset::at(path).is_none(), "{path}");
        }
        for name in
            ["", "index.html", "../app.js", "vendor/../app.js", "vendor/", "vendor/SHA256SUMS", "/etc/passwd"]
        {
            assert!(ConsoleAsset::at(&format!("/a/{version}/{name}")).is_none(), "{name}");
        }
    }

    #[test]
    fn what_servers_say_is_no_markup() {
        let page = page("v", "<script>alert(1)</script>", "a & \"b\"");
        assert!(
            page.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && page.contains("a &amp; &quot;b&quot;")
        );
        assert!(!page.contains(VERSION_MARK) && !page.contains(VERDICT_MARK));
    }
}
