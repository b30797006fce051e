//! Follows the driver's markers through a session: types the keys, collects the outcomes.

use std::io;
use std::time::{Duration, Instant};

use super::case_file::Case;
use super::driver::{COLUMNS, ROWS};
use super::keys::{self, Step};
use super::outcome::{Outcome, decode_base64};
use super::screen::Screen;
use super::session::{More, Session};

/// Runs the cases in as few sessions as possible: one, and one more after each that hangs.
pub fn run_cases(
    cases: &[&Case],
    limit: Duration,
    mut start: impl FnMut(&[&Case]) -> io::Result<Session>,
) -> io::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    while outcomes.len() < cases.len() {
        let left = &cases[outcomes.len()..];
        let mut player = Player::new(start(left)?, limit);
        let before = outcomes.len();
        for case in left {
            let outcome = player.play(case)?;
            let lost = player.lost;
            outcomes.push(outcome);
            if lost {
                break;
            }
        }
        // A session that doesn't reach its first case won't do so the next time either.
        if player.lost && !player.began {
            let trouble = outcomes[before].clone();
            outcomes.resize(cases.len(), trouble);
        }
    }
    Ok(outcomes)
}

/// One session and the place reached in its stream.
struct Player {
    session: Session,
    limit: Duration,
    /// Start of what no step has consumed.
    taken: usize,
    /// Has any case begun?
    began: bool,
    /// Is the session of no further use?
    lost: bool,
}

/// The screen that a case draws, and how it looked when asked.
struct View {
    screen: Screen,
    /// How far the stream is drawn.
    drawn: usize,
    looks: Vec<String>,
}

impl View {
    fn new(drawn: usize) -> Self {
        Self { screen: Screen::new(ROWS, COLUMNS), drawn, looks: Vec::new() }
    }

    /// Draws the stream up to `end`.
    fn draw(&mut self, stream: &[u8], end: usize) {
        if end > self.drawn {
            self.screen.feed(&stream[self.drawn..end]);
            self.drawn = end;
        }
    }

    /// What is compared.
    fn result(self) -> String {
        match self.looks.is_empty() {
            true => self.screen.text(),
            false => self.looks.join("\n\n"),
        }
    }
}

/// Why something awaited didn't come.
enum Missed {
    /// The session is of no further use.
    Lost(String),
    /// The program ended; the next case can go on.
    Ended(String),
}

impl Player {
    fn new(session: Session, limit: Duration) -> Self {
        Self { session, limit, taken: 0, began: false, lost: false }
    }

    /// Runs one case.
    fn play(&mut self, case: &Case) -> io::Result<Outcome> {
        let mut outcome = Outcome::default();
        if let Err(Missed::Lost(trouble) | Missed::Ended(trouble)) = self.follow(case, &mut outcome)
        {
            self.lost = true;
            let from = self.taken.max(self.session.stream.len().saturating_sub(300));
            let tail = String::from_utf8_lossy(&self.session.stream[from..]);
            outcome.trouble = Some(format!("{trouble}; then only:\n{tail}"));
        }
        Ok(outcome)
    }

    /// Follows the markers of one case.
    fn follow(&mut self, case: &Case, outcome: &mut Outcome) -> Result<(), Missed> {
        let name = &case.name;
        self.line(&format!("@@begin {name}"))?;
        self.began = true;
        let status_mark = format!("\n@@status {name} ");
        if let Some(keys) = &case.keys {
            self.line(&format!("@@keys {name}"))?;
            let steps =
                keys::parse(keys).map_err(|line| Missed::Lost(format!("not a step: {line}")))?;
            let mut view = View::new(self.taken);
            for step in &steps {
                match self.step(step, &mut view, status_mark.as_bytes()) {
                    Err(Missed::Ended(trouble)) => {
                        outcome.trouble = Some(trouble);
                        break;
                    }
                    other => other?,
                }
            }
            let end = self.find(status_mark.as_bytes(), self.taken)?;
            view.draw(&self.session.stream, end);
            outcome.screen = Some(view.result());
        }
        let end = self.find(status_mark.as_bytes(), self.taken)?;
        self.taken = end + status_mark.len();
        let status = self.rest_of_line()?;
        outcome.status = status.parse().ok();
        self.line("@@stdout")?;
        outcome.stdout = self.base64("\n@@stderr")?;
        self.line("@@stderr")?;
        outcome.stderr = self.base64(&format!("\n@@end {name}"))?;
        self.line(&format!("@@end {name}"))
    }

    /// Does one step of the keystrokes.
    fn step(&mut self, step: &Step, view: &mut View, end_mark: &[u8]) -> Result<(), Missed> {
        let deadline = Instant::now() + self.limit;
        loop {
            let stream = &self.session.stream;
            let end = find(stream, end_mark, self.taken);
            match step {
                Step::Send(bytes) => {
                    return self
                        .session
                        .send(bytes)
                        .map_err(|error| Missed::Lost(format!("cannot type: {error}")));
                }
                Step::Expect(bytes) => {
                    let place = find(stream, bytes, self.taken);
                    if let Some(place) = place.filter(|&place| end.is_none_or(|end| place < end)) {
                        self.taken = place + bytes.len();
                        return Ok(());
                    }
                }
                Step::Screen(text) => {
                    view.draw(stream, end.unwrap_or(stream.len()));
                    if view.screen.shows(text) {
                        return Ok(());
                    }
                }
                Step::Look => {
                    view.looks.push(view.screen.text());
                    return Ok(());
                }
            }
            if end.is_some() {
                return Err(Missed::Ended(format!("ended before `{step}`")));
            }
            if let Err(reason) = self.more(deadline) {
                let screen = view.screen.text();
                return Err(Missed::Lost(format!("{reason} at `{step}`, screen:\n{screen}\n")));
            }
        }
    }

    /// Consumes the stream up to and with a line.
    fn line(&mut self, text: &str) -> Result<(), Missed> {
        let place = self.find(text.as_bytes(), self.taken)?;
        self.taken = place + text.len();
        self.rest_of_line().map(|_| ())
    }

    /// Consumes the rest of the line.
    fn rest_of_line(&mut self) -> Result<String, Missed> {
        let start = self.taken;
        let place = self.find(b"\n", start)?;
        self.taken = place + 1;
        Ok(String::from_utf8_lossy(&self.session.stream[start..place]).trim().to_string())
    }

    /// Consumes base64 up to `mark`.
    fn base64(&mut self, mark: &str) -> Result<Vec<u8>, Missed> {
        // One byte back: with nothing between, the mark's newline is consumed already.
        let start = self.taken - 1;
        let place = self.find(mark.as_bytes(), start)?;
        self.taken = place;
        decode_base64(&self.session.stream[start..place])
            .ok_or_else(|| Missed::Lost("something else printed into the outcome".into()))
    }

    /// Waits for a pattern at or after `from`.
    fn find(&mut self, pattern: &[u8], from: usize) -> Result<usize, Missed> {
        let deadline = Instant::now() + self.limit;
        loop {
            if let Some(place) = find(&self.session.stream, pattern, from) {
                return Ok(place);
            }
            if let Err(reason) = self.more(deadline) {
                let awaited = String::from_utf8_lossy(pattern);
                return Err(Missed::Lost(format!("{reason} before {:?}", awaited.trim())));
            }
        }
    }

    /// Waits for more of the stream.
    fn more(&mut self, deadline: Instant) -> Result<(), String> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.session.more(left) {
            Ok(More::Bytes) => Ok(()),
            Ok(More::Silence) => Err(format!("hung for {:?}", self.limit)),
            Ok(More::End) => Err("the session ended".into()),
            Err(error) => Err(format!("terminal: {error}")),
        }
    }
}

/// Finds `pattern` in `stream` at or after `from`.
fn find(stream: &[u8], pattern: &[u8], from: usize) -> Option<usize> {
    let found = stream.get(from..)?.windows(pattern.len()).position(|part| part == pattern)?;
    Some(from + found)
}
