//! The line discipline against what Linux's does.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;

use super::cells::{END, EOF, decode, encode, readable, take};
use super::line::{Effects, LINE_MAX, Line};
use super::shared::{CONTROL_BYTES, Control, WindowSize};
use super::termios::Termios;

fn typed(line: &mut Line, bytes: &[u8]) -> Effects {
    let mut effects = Effects::default();
    for &byte in bytes {
        line.receive(byte, &mut effects);
    }
    effects
}

fn read(cells: &[u16], limit: usize) -> (String, usize) {
    let mut into = Vec::new();
    let used = take(cells, true, limit, &mut into);
    (String::from_utf8(into).unwrap(), used)
}

fn screen(effects: &Effects) -> String {
    String::from_utf8(effects.screen.clone()).unwrap()
}

fn raw_mode() -> Termios {
    let mut termios = Termios::default();
    termios.local &= !(raw::ICANON | raw::ECHO | raw::ISIG | raw::IEXTEN);
    termios.input &= !(raw::ICRNL | raw::IXON);
    termios.output &= !raw::OPOST;
    termios
}

#[test]
fn a_line_is_handed_over_at_its_end() {
    let mut line = Line::default();
    assert_eq!(typed(&mut line, b"ls").cells, vec![]);
    let effects = typed(&mut line, b"\r");
    assert_eq!(effects.cells, vec![u16::from(b'l'), u16::from(b's'), u16::from(b'\n') | END]);
    assert_eq!(screen(&effects), "\r\n");
}

#[test]
fn erase_word_and_kill() {
    let mut line = Line::default();
    let effects = typed(&mut line, b"ax\x7fb\n");
    assert_eq!(read(&effects.cells, 99).0, "ab\n");
    assert_eq!(screen(&effects), "ax\x08 \x08b\r\n");

    let effects = typed(&mut line, b"one two, \x17\n");
    assert_eq!(read(&effects.cells, 99).0, "one \n");
    assert_eq!(screen(&effects).matches('\x08').count(), 10);

    let effects = typed(&mut line, b"\x01bc\x15d\n");
    assert_eq!(read(&effects.cells, 99).0, "d\n");
    assert_eq!(screen(&effects), "^Abc\x08 \x08\x08 \x08\x08 \x08\x08 \x08d\r\n");
    assert_eq!(typed(&mut line, b"\x7f\x15\x17"), Effects::default());
}

#[test]
fn utf8_is_erased_by_characters() {
    let mut termios = Termios::default();
    termios.input |= raw::IUTF8;
    let mut line = Line::new(termios);
    let effects = typed(&mut line, "aé\x7fb\n".as_bytes());
    assert_eq!(read(&effects.cells, 99).0, "ab\n");
    assert_eq!(screen(&effects), "aé\x08 \x08b\r\n");
}

#[test]
fn a_tab_is_erased_to_where_it_began() {
    let mut line = Line::default();
    let mut prompt = Vec::new();
    line.output(b"$ ", &mut prompt);
    let effects = typed(&mut line, b"ab\t\x7f");
    assert_eq!(screen(&effects), "ab\t\x08\x08\x08\x08");
}

#[test]
fn end_of_file() {
    let mut line = Line::default();
    let effects = typed(&mut line, b"\x04");
    assert_eq!((effects.cells.clone(), screen(&effects)), (vec![EOF], String::new()));
    assert_eq!(read(&effects.cells, 10), (String::new(), 1));
    let effects = typed(&mut line, b"abc\x04");
    assert_eq!(read(&effects.cells, 10), ("abc".into(), 4));
    assert_eq!(read(&effects.cells, 3), ("abc".into(), 4));
    assert_eq!(read(&effects.cells, 2), ("ab".into(), 2));
    assert_eq!(readable(&effects.cells), 3);
}

#[test]
fn a_read_stops_behind_a_line() {
    let mut line = Line::default();
    let effects = typed(&mut line, b"a\nb\n");
    assert_eq!(read(&effects.cells, 99), ("a\n".into(), 2));
    assert_eq!(read(&effects.cells, 1), ("a".into(), 1));
    let mut into = Vec::new();
    assert_eq!(take(&effects.cells, false, 99, &mut into), 4);
    assert_eq!(into, b"a\nb\n");
    let mut bytes = vec![0; 2 * effects.cells.len()];
    encode(&effects.cells, &mut bytes);
    assert_eq!(decode(&bytes), effects.cells);
}

#[test]
fn signals_flush_and_show_themselves() {
    let mut line = Line::default();
    let effects = typed(&mut line, b"abc\x03");
    assert_eq!(effects.signals, vec![2]);
    assert!(effects.flush_input && effects.flush_output && effects.cells.is_empty());
    assert_eq!(screen(&effects), "^C");
    assert_eq!(read(&typed(&mut line, b"x\n").cells, 9).0, "x\n");
    assert_eq!(typed(&mut line, b"\x1c\x1a").signals, vec![3, 20]);

    let mut termios = Termios::default();
    termios.local |= raw::NOFLSH;
    let mut line = Line::new(termios);
    let effects = typed(&mut line, b"ab\x03\n");
    assert!(!effects.flush_input);
    assert_eq!(read(&effects.cells, 9).0, "ab\n");
    assert_eq!(screen(&effects), "ab^C\r\n");
}

#[test]
fn raw_bytes_go_straight_through() {
    let mut line = Line::new(raw_mode());
    let effects = typed(&mut line, b"\x03\r\x7f\x13");
    assert_eq!(effects.cells, vec![3, 13, 127, 19]);
    assert!(effects.screen.is_empty() && effects.signals.is_empty());
    let mut shown = Vec::new();
    line.output(b"a\nb", &mut shown);
    assert_eq!(shown, b"a\nb");
}

#[test]
fn leaving_canonical_mode_hands_the_unfinished_line_over() {
    let mut line = Line::default();
    typed(&mut line, b"ab");
    let mut effects = Effects::default();
    line.set(raw_mode(), &mut effects);
    assert_eq!(effects.cells, vec![97, 98]);
}

#[test]
fn literal_next_and_reprint() {
    let mut line = Line::default();
    let effects = typed(&mut line, b"a\x16\x03b\n");
    assert_eq!(read(&effects.cells, 9).0, "a\x03b\n");
    assert!(effects.signals.is_empty());
    assert_eq!(screen(&effects), "a^\x08^Cb\r\n");
    assert_eq!(screen(&typed(&mut line, b"xy\x12")), "xy^R\r\nxy");
}

#[test]
fn flow_control() {
    let mut line = Line::default();
    typed(&mut line, b"\x13");
    assert!(line.stopped());
    typed(&mut line, b"a");
    assert!(line.stopped());
    typed(&mut line, b"\x11");
    assert!(!line.stopped());
    typed(&mut line, b"\x13\x03");
    assert!(!line.stopped(), "an interrupt starts output again");
}

#[test]
fn without_echo_only_the_newline_may_show() {
    let mut termios = Termios::default();
    termios.local &= !raw::ECHO;
    let mut line = Line::new(termios);
    let effects = typed(&mut line, b"secretx\x7f\n");
    assert_eq!((screen(&effects), read(&effects.cells, 99).0), ("".into(), "secret\n".into()));
    termios.local |= raw::ECHONL;
    let mut line = Line::new(termios);
    assert_eq!(screen(&typed(&mut line, b"ab\x15c\n")), "\r\n");
}

#[test]
fn a_line_too_long_keeps_its_last_character() {
    let mut line = Line::default();
    let mut bytes = vec![b'a'; LINE_MAX + 5];
    bytes.extend(b"z\n");
    let effects = typed(&mut line, &bytes);
    assert_eq!(effects.cells.len(), LINE_MAX + 1);
    assert_eq!(effects.cells[LINE_MAX - 1], u16::from(b'z'));
}

#[test]
fn output_processing_counts_columns() {
    let mut termios = Termios::default();
    termios.output |= raw::XTABS;
    let mut line = Line::new(termios);
    let mut shown = Vec::new();
    line.output(b"a\tb\n\tc", &mut shown);
    assert_eq!(shown, b"a       b\r\n        c");
}

#[test]
fn settings_travel_unchanged() {
    let termios = Termios::default();
    assert_eq!(Termios::from_bytes(&termios.to_bytes()), termios);
    assert_eq!(&termios.to_bytes()[..4], &0x500u32.to_le_bytes());
    assert_eq!(&termios.to_bytes()[12..16], &0x8a3bu32.to_le_bytes());
    let control = Control {
        sequence: 1 << 31,
        goes_on: 6,
        foreground: 7,
        session: 5,
        size: WindowSize { rows: 24, columns: 80, width: 0, height: 1 },
        termios,
        flush_input: 3,
        flush_output: 4,
        streams: true,
        locked: true,
        hung_up: false,
        opened: true,
        exclusive: true,
        left: (0, 0),
    };
    let bytes: [u8; CONTROL_BYTES] = control.to_bytes();
    assert_eq!(Control::from_bytes(&bytes), control);
    // A session whose leader has ended stands in the place of the one that has the terminal.
    let left = Control { session: 0, foreground: 0, left: (9, 8), ..control };
    assert_eq!(Control::from_bytes(&left.to_bytes()), left);
    let taken = Control { left: (9, 8), ..control };
    assert_eq!(Control::from_bytes(&taken.to_bytes()), control);
}

/// A turn of a server's looks at few characters, whatever is typed: one that is full is applied.
#[test]
fn what_a_turn_looks_at_has_a_bound() {
    let mut termios = Termios::default();
    termios.input |= raw::IUTF8;
    termios.local &= !raw::ECHO;
    let mut line = Line::new(termios);
    // No character's first byte is among them: each erasure looks at all, and takes none.
    typed(&mut line, &[0x80; LINE_MAX]);
    let mut effects = Effects::default();
    let received = (0..1000).take_while(|_| {
        let more = !effects.is_full();
        if more {
            line.receive(0x7f, &mut effects);
        }
        more
    });
    assert_eq!(received.count(), 2);
    assert_eq!(effects.looked_at, 2 * LINE_MAX);
}
