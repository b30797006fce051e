//! JSON (RFC 8259): a strict reader, and how a string is written.

use std::fmt::Write;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
    /// `[...]`
    List(Vec<Json>),
    /// `{...}`, in the order of the text.
    Object(Vec<(String, Json)>),
}

/// How deep values may lie in each other.
const DEPTH: usize = 64;

impl Json {
    /// Reads a text that is one value; what is wrong, and at which byte.
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
        let value = reader.value(DEPTH)?;
        reader.blank();
        if reader.at < reader.bytes.len() {
            return Err(reader.wrong("something behind the value"));
        }
        Ok(value)
    }

    /// The member of an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        let Json::Object(members) = self else { return None };
        members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The elements of a list.
    pub fn list(&self) -> Option<&[Json]> {
        if let Json::List(list) = self { Some(list) } else { None }
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        if let Json::Number(number) = self { Some(*number) } else { None }
    }

    /// The string, if it is one.
    pub fn text(&self) -> Option<&str> {
        if let Json::Text(text) = self { Some(text) } else { None }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self, what: &str) -> String {
        format!("byte {}: {what}", self.at)
    }

    fn blank(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes `word` if it comes next.
    fn takes(&mut self, word: &str) -> bool {
        let there = self.bytes[self.at..].starts_with(word.as_bytes());
        self.at += if there { word.len() } else { 0 };
        there
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        let deeper = depth.checked_sub(1).ok_or_else(|| self.wrong("too deep"))?;
        self.blank();
        match self.bytes.get(self.at) {
            Some(b'{') => self.object(deeper),
            Some(b'[') => self.array(deeper),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.digits(),
            _ if self.takes("null") => Ok(Json::Null),
            _ if self.takes("true") => Ok(Json::Bool(true)),
            _ if self.takes("false") => Ok(Json::Bool(false)),
            _ => Err(self.wrong("no value")),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, String> {
        self.at += 1;
        let mut list = Vec::new();
        self.blank();
        if self.takes("]") {
            return Ok(Json::List(list));
        }
        loop {
            list.push(self.value(depth)?);
            self.blank();
            if self.takes("]") {
                return Ok(Json::List(list));
            }
            if !self.takes(",") {
                return Err(self.wrong("neither `,` nor `]`"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, String> {
        self.at += 1;
        let mut members: Vec<(String, Json)> = Vec::new();
        self.blank();
        if self.takes("}") {
            return Ok(Json::Object(members));
        }
        loop {
            self.blank();
            let name = self.string()?;
            self.blank();
            if !self.takes(":") {
                return Err(self.wrong("no `:`"));
            }
            if members.iter().any(|(other, _)| *other == name) {
                return Err(self.wrong("a name twice"));
            }
            members.push((name, self.value(depth)?));
            self.blank();
            if self.takes("}") {
                return Ok(Json::Object(members));
            }
            if !self.takes(",") {
                return Err(self.wrong("neither `,` nor `}`"));
            }
        }
    }

    fn digits(&mut self) -> Result<Json, String> {
        let start = self.at;
        while matches!(
            self.bytes.get(self.at),
            Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
        ) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or("");
        let whole = text.trim_start_matches('-');
        let zeros = whole.starts_with('0') && whole[1..].starts_with(|c: char| c.is_ascii_digit());
        match text.parse() {
            Ok(number) if !zeros && !text.ends_with('.') => Ok(Json::Number(number)),
            _ => Err(self.wrong("no number")),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        if !self.takes("\"") {
            return Err(self.wrong("no string"));
        }
        let mut bytes = Vec::new();
        loop {
            let byte = *self.bytes.get(self.at).ok_or_else(|| self.wrong("a string's end"))?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(bytes).map_err(|_| self.wrong("not UTF-8")),
                b'\\' => {
                    let shown = self.escape()?;
                    bytes.extend(shown.encode_utf8(&mut [0; 4]).as_bytes());
                }
                0..32 => return Err(self.wrong("a control character in a string")),
                _ => bytes.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let letter = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        Ok(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.unit()?;
                let code = if (0xd800..0xdc00).contains(&high) && self.takes("\\u") {
                    let low = self.unit()?.wrapping_sub(0xdc00);
                    0x10000 + ((high - 0xd800) << 10) + low.min(0x3ff)
                } else {
                    high
                };
                char::from_u32(code).ok_or_else(|| self.wrong("half of a character"))?
            }
            _ => return Err(self.wrong("no escape")),
        })
    }

    fn unit(&mut self) -> Result<u32, String> {
        let digits = self.bytes.get(self.at..self.at + 4);
        let text = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let unit = text.and_then(|text| u32::from_str_radix(text, 16).ok());
        self.at += 4;
        unit.ok_or_else(|| self.wrong("no four hexadecimal digits"))
    }
}

/// A string as JSON has it, quotes included.
pub fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\0'..' ' => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let text = r#" {"a": [1, -2.5e1, true, null, {}], "b\n": "\u00fc\ud83d\ude00 \"x\""} "#;
        let value = Json::parse(text).unwrap();
        let list = value.get("a").and_then(Json::list).unwrap();
        assert_eq!(list[1].number(), Some(-25.0));
        assert_eq!(list[2..4], [Json::Bool(true), Json::Null]);
        assert_eq!(value.get("b\n").and_then(Json::text), Some("ü😀 \"x\""));
        let hard = "a\"\\\n\u{1}ü";
        assert_eq!(Json::parse(&quote(hard)), Ok(Json::Text(hard.into())));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(100) + &"]".repeat(100);
        let wrong = [
            "",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "1.",
            "-",
            "nul",
            "[1 2]",
            "\"a",
            "\"\n\"",
            "\"\\x\"",
            "{\"a\":1,\"a\":2}",
            "1 2",
            "{a:1}",
            "'a'",
            "\"\\ud800\"",
            "\"\\u12\"",
            &deep,
        ];
        for text in wrong {
            assert!(Json::parse(text).is_err(), "{text}");
        }
    }
}
