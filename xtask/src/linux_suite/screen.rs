//! A terminal's screen as a person sees it: the part of the VT100 that vi and line editors use.
//!
//! Comparing screens and not bytes lets a program draw in another order, as editors do when input
//! waits. Lines that scroll off the top are kept. Colours, modes and questions are ignored.

/// A screen of fixed size.
pub struct Screen {
    rows: Vec<Vec<char>>,
    columns: usize,
    row: usize,
    column: usize,
    scrolled: Vec<String>,
    escape: Escape,
}

/// How far into an escape sequence the stream is.
enum Escape {
    None,
    Started,
    Charset,
    Parameters(String),
}

impl Screen {
    /// An empty screen.
    pub fn new(rows: usize, columns: usize) -> Self {
        Self {
            rows: vec![vec![' '; columns]; rows],
            columns,
            row: 0,
            column: 0,
            scrolled: Vec::new(),
            escape: Escape::None,
        }
    }

    /// Draws `bytes`.
    pub fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.byte(byte);
        }
    }

    /// The lines that scrolled off, then the screen's, without trailing blanks.
    pub fn text(&self) -> String {
        let visible = self.rows.iter().map(|row| trimmed(row));
        let mut lines: Vec<String> = self.scrolled.iter().cloned().chain(visible).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.join("\n")
    }

    /// Whether `text` stands on the screen itself; a newline stands for the edge of a line.
    pub fn shows(&self, text: &str) -> bool {
        let lines: Vec<String> = self.rows.iter().map(|row| trimmed(row)).collect();
        format!("\n{}\n", lines.join("\n")).contains(text)
    }

    fn byte(&mut self, byte: u8) {
        match std::mem::replace(&mut self.escape, Escape::None) {
            Escape::None => self.plain(byte),
            Escape::Charset => {}
            Escape::Started => match byte {
                b'[' => self.escape = Escape::Parameters(String::new()),
                b'(' | b')' => self.escape = Escape::Charset,
                b'M' => self.reverse_line_feed(),
                _ => {}
            },
            Escape::Parameters(mut text) => {
                if (0x40..=0x7e).contains(&byte) {
                    self.control(&text, byte);
                } else {
                    text.push(char::from(byte));
                    self.escape = Escape::Parameters(text);
                }
            }
        }
    }

    fn plain(&mut self, byte: u8) {
        match byte {
            0x1b => self.escape = Escape::Started,
            b'\r' => self.column = 0,
            b'\n' => self.line_feed(),
            8 => self.column = self.column.saturating_sub(1),
            b'\t' => self.column = ((self.column / 8 + 1) * 8).min(self.columns - 1),
            0x20..=0x7e | 0x80.. => {
                // The last column holds the cursor until the next character comes.
                if self.column == self.columns {
                    self.column = 0;
                    self.line_feed();
                }
                self.rows[self.row][self.column] = char::from(byte);
                self.column += 1;
            }
            _ => {}
        }
    }

    fn line_feed(&mut self) {
        if self.row + 1 < self.rows.len() {
            self.row += 1;
            return;
        }
        let top = self.rows.remove(0);
        self.scrolled.push(trimmed(&top));
        self.rows.push(vec![' '; self.columns]);
    }

    fn reverse_line_feed(&mut self) {
        if self.row > 0 {
            self.row -= 1;
            return;
        }
        self.rows.pop();
        self.rows.insert(0, vec![' '; self.columns]);
    }

    /// Obeys `ESC [ parameters last`.
    fn control(&mut self, parameters: &str, last: u8) {
        if parameters.starts_with('?') {
            return;
        }
        let numbers: Vec<usize> =
            parameters.split(';').map(|number| number.parse().unwrap_or(0)).collect();
        let first = numbers[0];
        let count = first.max(1);
        let second = numbers.get(1).copied().unwrap_or(0).max(1);
        let column = self.column.min(self.columns - 1);
        match last {
            b'A' => self.row = self.row.saturating_sub(count),
            b'B' => self.row = (self.row + count).min(self.rows.len() - 1),
            b'C' => self.column = (column + count).min(self.columns - 1),
            b'D' => self.column = column.saturating_sub(count),
            b'G' => self.column = (count - 1).min(self.columns - 1),
            b'H' | b'f' => {
                self.row = (count - 1).min(self.rows.len() - 1);
                self.column = (second - 1).min(self.columns - 1);
            }
            b'J' => self.erase_screen(first),
            b'K' => self.erase_line(first),
            b'P' => {
                let row = &mut self.rows[self.row];
                row.drain(column..(column + count).min(self.columns));
                row.resize(self.columns, ' ');
            }
            b'@' => {
                let row = &mut self.rows[self.row];
                row.splice(column..column, std::iter::repeat_n(' ', count));
                row.truncate(self.columns);
            }
            _ => {}
        }
    }

    fn erase_screen(&mut self, what: usize) {
        let (from, to) = match what {
            0 => (self.row + 1, self.rows.len()),
            1 => (0, self.row),
            _ => (0, self.rows.len()),
        };
        for row in &mut self.rows[from..to] {
            row.fill(' ');
        }
        if what < 2 {
            self.erase_line(what);
        }
    }

    fn erase_line(&mut self, what: usize) {
        let column = self.column.min(self.columns - 1);
        let row = &mut self.rows[self.row];
        match what {
            0 => row[column..].fill(' '),
            1 => row[..=column].fill(' '),
            _ => row.fill(' '),
        }
    }
}

/// A row without its trailing blanks.
fn trimmed(row: &[char]) -> String {
    row.iter().collect::<String>().trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::Screen;

    fn shown(bytes: &[u8]) -> String {
        let mut screen = Screen::new(3, 10);
        screen.feed(bytes);
        screen.text()
    }

    #[test]
    fn moves_erases_and_overwrites() {
        assert_eq!(shown(b"abc\r\ndef\x1b[1;2HX\x1b[K\x1b[2;1H\x1b[1P"), "aX\nef");
    }

    #[test]
    fn keeps_what_scrolls_off() {
        assert_eq!(shown(b"1\r\n2\r\n3\r\n4"), "1\n2\n3\n4");
    }

    #[test]
    fn wraps_only_when_a_character_follows() {
        assert_eq!(shown(b"0123456789\r\nx"), "0123456789\nx");
        assert_eq!(shown(b"0123456789ab"), "0123456789\nab");
    }

    #[test]
    fn ignores_modes_and_colours() {
        assert_eq!(shown(b"\x1b[?2004h\x1b[7ma\x1b[m\x1b[6n"), "a");
    }
}
