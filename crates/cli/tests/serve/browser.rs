//! Headless Chromium, controlled through a pipe with the DevTools protocol: tests load and inspect
//! pages, and use mouse and keyboard.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use heaptide_fixtures::skips::skip;
use serde_json::{Value, json};

use crate::harness::clean;
use crate::programs::is_installed;

/// The maximum wait for a reply or a state of the page, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(30);

/// Sizes of a window.
pub const DESKTOP: (u32, u32) = (1440, 900);
pub const PHONE: (u32, u32) = (390, 844);
pub const WIDE: (u32, u32) = (1920, 1080);

/// Script of every page: `layoutShift` returns how far its layout has moved without user input, in
/// the unit of Cumulative Layout Shift.
const SHIFTS: &str = "
let shift = 0;
const add = (list) => list.forEach((one) => { if (!one.hadRecentInput) shift += one.value; });
const watch = new PerformanceObserver((list) => add(list.getEntries()));
watch.observe({ type: 'layout-shift', buffered: true });
const frame = () => new Promise((done) => requestAnimationFrame(done));
window.layoutShift = async () => {
  // The browser reports a shift after the frame that shows it.
  for (let i = 0; i < 3; i += 1) await frame();
  add(watch.takeRecords());
  return shift;
};
";

/// A browser with one page.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: Receiver<Value>,
    session: Option<String>,
    requests: u64,
    /// Errors and warnings of the console, exceptions, and resources that failed to load.
    problems: Vec<Value>,
}

impl Browser {
    /// Starts the browser with its files below `place`; none if Chromium is not installed.
    pub fn start(place: &Path) -> Option<Browser> {
        if !is_installed("chromium") {
            skip("chromium");
            return None;
        }
        // Chromium reads commands from descriptor 3 and writes replies to 4.
        let script = "exec chromium \"$@\" --remote-debugging-pipe 3<&0 4>&1 </dev/null >/dev/null";
        let mut command = clean(Command::new("sh"));
        command.args(["-c", script, "sh", "--headless", "--no-sandbox", "--disable-gpu"]);
        command.args(["--disable-dev-shm-usage", "--force-device-scale-factor=1"]);
        command.arg(format!("--user-data-dir={}", place.join("browser").display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("chromium");
        let input = child.stdin.take().expect("its input");
        let answers = child.stdout.take().expect("its answers");
        let (sender, output) = channel();
        thread::spawn(move || {
            for answer in BufReader::new(answers).split(0).map_while(Result::ok) {
                let answer = serde_json::from_slice(&answer).expect("JSON");
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
        let problems = Vec::new();
        let mut browser = Browser { child, input, output, session: None, requests: 0, problems };
        let page = browser.command("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.command("Target.attachToTarget", &target);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.command(domain, &json!({}));
        }
        let source = format!("{{ {SHIFTS} }}");
        browser.command("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": source }));
        Some(browser)
    }

    /// Sends a command and returns its result.
    fn command(&mut self, method: &str, parameters: &Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        let mut command = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        write!(self.input, "{command}\0").and_then(|()| self.input.flush()).expect("a command");
        loop {
            let answer = self.output.recv_timeout(PATIENCE);
            let mut answer = answer.unwrap_or_else(|_| panic!("no answer to {command}"));
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{command}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.note(answer);
        }
    }

    /// Stores an event that reports a problem.
    fn note(&mut self, event: Value) {
        let parameters = &event["params"];
        let is_problem = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                ["error", "warning", "assert"].contains(&parameters["type"].as_str().unwrap_or(""))
            }
            Some("Log.entryAdded") => {
                let level = parameters["entry"]["level"].as_str().unwrap_or("");
                ["error", "warning"].contains(&level)
            }
            _ => false,
        };
        if is_problem {
            self.problems.push(event);
        }
    }

    /// Opens a page in a window of this size, and waits until it is drawn.
    pub fn open(&mut self, address: &str, (width, height): (u32, u32)) {
        let is_phone = width < 600;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": is_phone });
        self.command("Emulation.setDeviceMetricsOverride", &size);
        self.command("Page.navigate", &json!({ "url": "about:blank" }));
        self.command("Page.navigate", &json!({ "url": address }));
        self.until(
            "document.readyState === 'complete' && typeof shown === 'object'
             && shown.model !== null && !document.body.hasAttribute('aria-busy')",
        );
    }

    /// Opens a picture that is not a page of Heaptide.
    pub fn open_picture(&mut self, address: &str) {
        self.command("Page.navigate", &json!({ "url": address }));
        self.until("document.readyState === 'complete' && location.href.endsWith('.svg')");
    }

    /// Selects the dark or light colour scheme, from the next page on.
    pub fn theme(&mut self, theme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": theme });
        self.command("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Moves the pointer to a point of the window.
    pub fn point_at(&mut self, x: f64, y: f64) {
        let event = json!({ "type": "mouseMoved", "x": x, "y": y });
        self.command("Input.dispatchMouseEvent", &event);
    }

    /// Loads `page_checks.js` into the page.
    pub fn load_checks(&mut self) {
        self.value(concat!(include_str!("page_checks.js"), "; 0"));
    }

    /// Asserts that a check of the page finds no problem.
    pub fn check(&mut self, call: &str, what: &str) {
        let wrong = self.value(&format!("checks.{call}"));
        assert_eq!(wrong, json!([]), "{what}: {call}");
    }

    /// Returns the value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true,
            "awaitPromise": true });
        let mut answer = self.command("Runtime.evaluate", &parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    pub fn text(&mut self, expression: &str) -> String {
        self.value(expression).as_str().expect("a text").to_owned()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let start = Instant::now();
        let safely = format!(
            "(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"
        );
        while self.value(&safely) != true {
            if start.elapsed() > PATIENCE {
                let text = self.text("document.body.innerText");
                panic!("waited {PATIENCE:?} for {expression}: {:?}\n{text}", self.problems);
            }
            thread::sleep(POLL);
        }
    }

    /// Clicks in the middle of an element, which must be visible there.
    pub fn click(&mut self, selector: &str) {
        let selector = json!(selector);
        let at = self.value(&format!(
            "(() => {{ const one = document.querySelector({selector});
             one.scrollIntoView({{ block: 'center' }});
             const {{ left, top, width, height }} = one.getBoundingClientRect();
             const at = [left + width / 2, top + height / 2];
             const hit = document.elementFromPoint(...at);
             return hit && (one.contains(hit) || hit.contains(one)) ? at : null; }})()"
        ));
        let (Some(x), Some(y)) = (at[0].as_f64(), at[1].as_f64()) else {
            panic!("{selector} is covered or outside of the page: {at}");
        };
        self.click_at(x, y, "left");
    }

    /// Clicks on a point of the window with this button.
    pub fn click_at(&mut self, x: f64, y: f64, button: &str) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 });
            self.command("Input.dispatchMouseEvent", &event);
        }
    }

    /// Drags with the left button between two points of the window.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        let half = ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0);
        let steps = [
            ("mouseMoved", from, 0),
            ("mousePressed", from, 1),
            ("mouseMoved", half, 1),
            ("mouseMoved", to, 1),
            ("mouseReleased", to, 0),
        ];
        for (kind, (x, y), buttons) in steps {
            let button = if kind == "mouseMoved" && buttons == 0 { "none" } else { "left" };
            let event = json!({ "type": kind, "x": x, "y": y, "button": button,
                "buttons": buttons, "clickCount": 1 });
            self.command("Input.dispatchMouseEvent", &event);
        }
    }

    /// Presses a key by its name.
    pub fn key(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        let text = match key {
            "Enter" => "\r",
            one if one.len() == 1 => one,
            _ => "",
        };
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        for kind in [down, "keyUp"] {
            let event = json!({ "type": kind, "key": key, "text": text,
                "windowsVirtualKeyCode": code });
            self.command("Input.dispatchKeyEvent", &event);
        }
    }

    /// Presses an arrow key or Enter while Shift is held.
    pub fn key_with_shift(&mut self, key: &str, code: u32) {
        const SHIFT: u32 = 8;
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": key, "modifiers": SHIFT,
                "windowsVirtualKeyCode": code });
            self.command("Input.dispatchKeyEvent", &event);
        }
    }

    /// Types a text into the focused element.
    pub fn type_text(&mut self, text: &str) {
        self.command("Input.insertText", &json!({ "text": text }));
    }

    /// Writes a screenshot of the window into a PNG file.
    pub fn picture(&mut self, file: &Path) {
        use std::fs;
        let answer = self.command("Page.captureScreenshot", &json!({ "format": "png" }));
        let data = answer["data"].as_str().expect("a picture");
        // Decoded by the browser, to avoid a dependency.
        let bytes = self.value(&format!("Array.from(atob('{data}'), (one) => one.charCodeAt(0))"));
        let bytes = bytes.as_array().expect("bytes").iter();
        let bytes: Vec<u8> = bytes.map(|byte| byte.as_u64().expect("a byte") as u8).collect();
        fs::write(file, bytes).expect("a file");
    }

    /// Asserts that the page is not wider than the window, and that there were no problems.
    pub fn assert_sound(&mut self, what: &str) {
        let wide = self.value(
            "(() => { const room = document.documentElement.clientWidth;
             const over = document.documentElement.scrollWidth;
             const clipped = (one) => one.closest('.scroll, .group, [hidden]') !== null;
             const wide = over <= room ? [] : [...document.body.querySelectorAll('*')]
               .filter((one) => one.getBoundingClientRect().right > room + 1 && !clipped(one))
               .map((one) => `${one.tagName} ${one.id} ${one.className}`).slice(0, 5);
             return [room, over, wide]; })()",
        );
        assert!(wide[1].as_f64() <= wide[0].as_f64(), "{what}: wider than the window: {wide}");
        assert!(self.problems.is_empty(), "{what}: {:?}", self.problems);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may have ended
        let _ = self.child.wait();
    }
}
