//! A real headless Chromium, spoken to over a pair of pipes in its DevTools protocol: one JSON
//! object after the other, each ended by a zero byte.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Room, require, tool};

/// Debian's package of the same name: Chromium without a window system.
const BROWSER: &str = "chromium-headless-shell";

/// A browser and its one page.
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    calls: u64,
    /// What the page reported and was not looked at yet.
    pub events: Vec<Value>,
}

impl Browser {
    /// `None` where no browser is installed, which was said.
    pub fn start(room: &Room) -> Option<Self> {
        if !require(BROWSER) {
            return None;
        }
        let (input, output) = (room.name("to-browser"), room.name("from-browser"));
        tool("mkfifo", [&input, &output]);
        let command = format!(
            "exec {BROWSER} --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --lang=en-GB \
             --no-first-run --user-data-dir='{}' --remote-debugging-pipe 3< '{input}' 4> '{output}'",
            room.name("profile")
        );
        let log = File::create(room.path("browser.log")).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).env("TZ", "UTC");
        let child = shell.spawn().unwrap();
        // In the order in which the shell opens them.
        let to = fs::OpenOptions::new().write(true).open(&input).unwrap();
        let from = BufReader::new(File::open(&output).unwrap());
        let mut browser = Self { child, to, from, session: None, calls: 0, events: Vec::new() };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Calls a method and waits for its result.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser ended during {method}");
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// A screen of this size, light or dark.
    pub fn screen(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Goes to a page and waits until it is loaded.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
        self.wait(
            "the page is loaded",
            "document.readyState === 'complete' && location.href !== 'about:blank'",
        );
    }

    /// What an expression comes to.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", &params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result:#}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true; how long that took.
    #[track_caller]
    pub fn wait(&mut self, what: &str, expression: &str) -> Duration {
        let begun = Instant::now();
        while self.eval(expression) != json!(true) {
            assert!(begun.elapsed() < Duration::from_secs(20), "not within 20 s: {what}: {:#}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
        begun.elapsed()
    }

    /// All that can be read.
    #[track_caller]
    pub fn text(&mut self) -> String {
        self.eval("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// A picture of what is seen, or of all of the page.
    pub fn picture(&mut self, file: &std::path::Path, whole: bool) {
        let params = json!({ "format": "png", "captureBeyondViewport": whole });
        let picture = self.call("Page.captureScreenshot", &params);
        let base64 = picture["data"].as_str().unwrap();
        let mut decode = Command::new("base64")
            .arg("-d")
            .stdin(Stdio::piped())
            .stdout(File::create(file).unwrap())
            .spawn()
            .unwrap();
        decode.stdin.take().unwrap().write_all(base64.as_bytes()).unwrap();
        assert!(decode.wait().unwrap().success());
    }

    /// Presses a key, as a person would.
    pub fn press(&mut self, key: &str, code: u32) {
        let params = |kind| json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": if key == "Enter" { "\r" } else { "" } });
        self.call("Input.dispatchKeyEvent", &params("keyDown"));
        self.call("Input.dispatchKeyEvent", &params("keyUp"));
    }

    /// The addresses that the page asked for, and what its console said that is an error.
    pub fn heard(&mut self) -> (Vec<String>, Vec<String>) {
        // What happened until now arrives before this answer.
        self.eval("1");
        let (mut asked, mut errors) = (Vec::new(), Vec::new());
        for event in self.events.drain(..) {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Network.requestWillBeSent" => {
                    asked.push(params["request"]["url"].as_str().unwrap().to_owned());
                }
                "Runtime.exceptionThrown" => errors.push(params.to_string()),
                "Runtime.consoleAPICalled" if params["type"] == "error" || params["type"] == "warning" => {
                    errors.push(params.to_string());
                }
                "Log.entryAdded" => errors.push(params["entry"]["text"].to_string()),
                _ => {}
            }
        }
        (asked, errors)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Mostly it ends by itself once its pipes are closed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
