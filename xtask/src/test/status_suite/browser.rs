//! Headless Chromium, driven by its DevTools protocol over a pipe.
//!
//! With `--remote-debugging-pipe` it reads commands from descriptor 3 and answers on 4: JSON texts,
//! each with a NUL behind it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crate::json::{Json, quote};

/// The program, and Debian's package that has it.
pub const CHROMIUM: (&str, &str) = ("chromium", "chromium");
/// How long the browser may take for an answer: the host may have other work.
const PATIENCE: Duration = Duration::from_secs(60);
/// The page's size, in its own pixels.
const SIZE: (u32, u32) = (1280, 1600);

/// A browser with one page.
pub struct Browser {
    child: Child,
    pipe: ChildStdin,
    messages: Receiver<Json>,
    session: Option<String>,
    /// What its console and its exceptions said.
    pub complaints: Vec<String>,
    number: u64,
}

impl Browser {
    /// Starts it with `profile` as the directory for all that it keeps, and opens a page.
    pub fn open(profile: &Path, url: &str) -> Result<Browser, String> {
        // Descriptors 3 and 4 are given by the shell.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >&2", "sh", CHROMIUM.0]).args([
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
        ]);
        command.arg(format!("--user-data-dir={}", profile.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|why| format!("{}: {why}", CHROMIUM.0))?;
        let (Some(pipe), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes to the browser".into());
        };
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for text in BufReader::new(out).split(0).map_while(Result::ok) {
                let message = std::str::from_utf8(&text).ok().and_then(|t| Json::parse(t).ok());
                // Who drives it may be gone.
                let gone = message.is_some_and(|message| sender.send(message).is_err());
                if gone {
                    return;
                }
            }
        });
        let (complaints, session) = (Vec::new(), None);
        let mut browser = Browser { child, pipe, messages, session, complaints, number: 0 };
        let made = browser.ask("Target.createTarget", "{\"url\":\"about:blank\"}")?;
        let target = member(&made, "targetId")?;
        let attach = format!("{{\"targetId\":{},\"flatten\":true}}", quote(&target));
        let attached = browser.ask("Target.attachToTarget", &attach)?;
        browser.session = Some(member(&attached, "sessionId")?);
        browser.ask("Runtime.enable", "{}")?;
        let (width, height) = SIZE;
        let metrics = format!(
            "{{\"width\":{width},\"height\":{height},\"deviceScaleFactor\":1,\"mobile\":false}}"
        );
        browser.ask("Emulation.setDeviceMetricsOverride", &metrics)?;
        browser.ask("Page.navigate", &format!("{{\"url\":{}}}", quote(url)))?;
        Ok(browser)
    }

    /// Sends a command of the protocol and waits for its answer.
    fn ask(&mut self, method: &str, parameters: &str) -> Result<Json, String> {
        self.number += 1;
        let number = self.number;
        let session = self
            .session
            .as_deref()
            .map_or(String::new(), |session| format!(",\"sessionId\":{}", quote(session)));
        let text = format!(
            "{{\"id\":{number},\"method\":\"{method}\",\"params\":{parameters}{session}}}\0"
        );
        self.pipe
            .write_all(text.as_bytes())
            .and_then(|()| self.pipe.flush())
            .map_err(|why| format!("{method}: {why}"))?;
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(message) = self.messages.recv_timeout(left) else {
                return Err(format!("{method}: the browser does not answer"));
            };
            if message.get("id").and_then(Json::number) == Some(number as f64) {
                if let Some(error) = message.get("error") {
                    return Err(format!("{method}: {error:?}"));
                }
                return Ok(message.get("result").cloned().unwrap_or(Json::Null));
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Json) {
        let parameters = message.get("params");
        let kind = parameters.and_then(|all| all.get("type")).and_then(Json::text);
        match message.get("method").and_then(Json::text) {
            Some("Runtime.exceptionThrown") => self.complaints.push(format!("{parameters:?}")),
            Some("Runtime.consoleAPICalled") if matches!(kind, Some("error" | "warning")) => {
                self.complaints.push(format!("{parameters:?}"));
            }
            _ => {}
        }
    }

    /// The value of an expression in the page; of a promise, what it comes to.
    pub fn value(&mut self, expression: &str) -> Result<Json, String> {
        let parameters = format!(
            "{{\"expression\":{},\"awaitPromise\":true,\"returnByValue\":true}}",
            quote(expression)
        );
        let answer = self.ask("Runtime.evaluate", &parameters)?;
        if let Some(exception) = answer.get("exceptionDetails") {
            return Err(format!("{expression}: {exception:?}"));
        }
        let value = answer.get("result").and_then(|result| result.get("value"));
        Ok(value.cloned().unwrap_or(Json::Null))
    }

    /// Waits until an expression is true in the page.
    pub fn until(&mut self, expression: &str) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while self.value(&format!("Boolean({expression})"))? != Json::Bool(true) {
            if Instant::now() > end {
                return Err(format!("the page never has `{expression}`"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Has the page believe that its reader likes it `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) -> Result<(), String> {
        let feature = "{\"name\":\"prefers-color-scheme\",\"value\":";
        let parameters = format!("{{\"features\":[{feature}\"{scheme}\"}}]}}");
        self.ask("Emulation.setEmulatedMedia", &parameters).map(drop)
    }

    /// The page as a picture, in PNG.
    pub fn picture(&mut self) -> Result<Vec<u8>, String> {
        let answer = self.ask("Page.captureScreenshot", "{\"format\":\"png\"}")?;
        from_base64(&member(&answer, "data")?).ok_or("a picture that is no base64".into())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.ask("Browser.close", "{}");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn member(answer: &Json, key: &str) -> Result<String, String> {
    let text = answer.get(key).and_then(Json::text);
    text.map(str::to_string).ok_or(format!("the browser's answer has no {key}"))
}

/// Decodes base64 (RFC 4648 §4).
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        assert_eq!(from_base64("").as_deref(), Some(&b""[..]));
        assert_eq!(from_base64("Zg==").as_deref(), Some(&b"f"[..]));
        assert_eq!(from_base64("Zm9vYmE=").as_deref(), Some(&b"fooba"[..]));
        assert_eq!(from_base64("+/8A").as_deref(), Some(&[0xfb, 0xff, 0][..]));
        assert_eq!(from_base64("a b"), None);
    }
}
