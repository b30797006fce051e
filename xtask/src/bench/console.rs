//! What the benchmark program says: which rows it has measured, and which it could not.

/// A row that has been measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Operations of one sample.
    pub operations: u64,
    /// Ticks of the time-stamp counter, of each sample.
    pub ticks: Vec<u64>,
}

/// What became of a row: measured, or why not.
pub type Told = (String, Result<Timed, String>);

/// Reads the program's output. A row that was begun and of which nothing more was heard ended the
/// program or the guest.
pub fn parse(output: &str) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::new();
    let mut begun: Option<&str> = None;
    for line in output.lines() {
        let line = line.trim_end();
        let Some((word, rest)) = line.split_once(' ') else { continue };
        match word {
            "start" => lost(&mut told, begun.replace(rest), "the program ended in it"),
            "row" => {
                if let Some((name, timed)) = timed(rest) {
                    told.push((name, Ok(timed)));
                    begun = None;
                }
            }
            "dash" => {
                let (name, reason) = rest.split_once(' ').unwrap_or((rest, ""));
                told.push((name.to_string(), Err(reason.to_string())));
                begun = None;
            }
            "fatal" => lost(&mut told, begun.take(), rest),
            _ => {}
        }
    }
    lost(&mut told, begun, "the program ended in it");
    told
}

fn lost(told: &mut Vec<Told>, begun: Option<&str>, reason: &str) {
    told.extend(begun.map(|name| (name.to_string(), Err(reason.to_string()))));
}

/// `NAME operations N ticks T...`
fn timed(rest: &str) -> Option<(String, Timed)> {
    let mut words = rest.split(' ');
    let name = words.next()?.to_string();
    let ("operations", operations) = (words.next()?, words.next()?.parse().ok()?) else {
        return None;
    };
    let "ticks" = words.next()? else { return None };
    let ticks = words.map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>()?;
    Some((name, Timed { operations, ticks }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_dashes_and_deaths_are_told_apart() {
        let told = parse(
            "noise\r\nstart a\r\nrow a operations 10 ticks 5 6\r\nstart b\r\ndash b no way\r\n\
             start c\r\nfatal it broke\r\nstart d\r\n",
        );
        let a = Timed { operations: 10, ticks: vec![5, 6] };
        let reason = |text: &str| Err(text.to_string());
        assert_eq!(told[0], ("a".to_string(), Ok(a)));
        assert_eq!(told[1], ("b".to_string(), reason("no way")));
        assert_eq!(told[2], ("c".to_string(), reason("it broke")));
        assert_eq!(told[3], ("d".to_string(), reason("the program ended in it")));
        assert_eq!(told.len(), 4);
    }

    #[test]
    fn half_a_line_is_no_row() {
        assert!(matches!(&parse("start a\nrow a operations")[..], [(_, Err(_))]));
    }
}
