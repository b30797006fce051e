//! The table of published fields in docs/threat-model.md names each field there is, once.

use std::collections::BTreeSet;

const SOURCE: &str = include_str!("../../../../abi/src/published.rs");
const TABLE: &str = include_str!("../../../../docs/threat-model.md");

/// `Record.field` of every published structure; what is always zero is none.
fn published() -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    let mut record = "";
    for line in SOURCE.lines() {
        let word = |begin: &str, end: char| line.strip_prefix(begin)?.split(end).next();
        if let Some(name) = word("pub struct ", ' ') {
            record = name;
        }
        if let Some(field) = word("    pub ", ':').filter(|field| !field.contains(' '))
            && !["zero", "rest", "more"].contains(&field)
        {
            fields.insert(format!("{record}.{field}"));
        }
    }
    fields
}

#[test]
fn each_published_field_has_its_reason() {
    let mut told = BTreeSet::new();
    for row in TABLE.lines().filter(|row| row.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, record, fields, verdict, reason, _] = cells[..] else { continue };
        assert!(["public", "to go"].contains(&verdict) && !reason.is_empty(), "{row}");
        for field in fields.split(", ") {
            let name = format!("{}.{field}", record.trim_matches('`'));
            assert!(told.insert(name.clone()), "{name} is there twice");
        }
    }
    let published = published();
    let differs: Vec<&String> = published.symmetric_difference(&told).collect();
    assert!(differs.is_empty(), "in abi/src/published.rs or docs/threat-model.md: {differs:?}");
}
