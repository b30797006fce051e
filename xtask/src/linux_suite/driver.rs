//! The shell script that runs a group's cases, the same on the host and in the guest.
//!
//! Each case runs in a fresh directory with an environment of its own; its output goes to files,
//! which the script prints in base64 between marker lines, so that every byte survives a console:
//!
//! ```text
//! @@begin NAME        before anything of the case
//! @@keys NAME         only with keystrokes: what follows up to @@status is the terminal's
//! @@status NAME N     exit status
//! @@stdout, @@stderr  each followed by base64
//! @@end NAME
//! @@finish            after the last case
//! ```

use std::fmt::Write;

use super::case_file::{Case, Group};

/// Rows and columns of the terminal.
pub const ROWS: usize = 24;
/// Columns of the terminal.
pub const COLUMNS: usize = 80;

/// Where the guest keeps its files; the host's directory is replaced by this in what is compared.
pub const GUEST_ROOT: &str = "/tmp/suite";

/// Where one side keeps things.
pub struct Places<'a> {
    /// A directory for the work; it need not exist.
    pub root: &'a str,
    /// Debian's busybox.
    pub busybox: &'a str,
    /// Debian's static bash.
    pub bash: &'a str,
    /// The compiled programs of `tests/linux/c`.
    pub programs: &'a str,
}

impl Places<'_> {
    /// All of them, to replace one side's by the other's.
    pub fn names(&self) -> [&str; 4] {
        [self.root, self.busybox, self.bash, self.programs]
    }
}

/// Writes the script for `cases` of `group`.
pub fn script(group: &Group, cases: &[&Case], places: &Places) -> String {
    let Places { root, busybox, bash, programs } = places;
    let mut text = format!(
        r#"umask 022
root={root}
mkdir -p $root/bin
cd $root
{busybox} --install -s $root/bin
ln -s {bash} $root/bin/bash-static
stty rows {ROWS} cols {COLUMNS}
# Keys that interrupt a case reach this shell too. Caught, not ignored: children start afresh.
trap : INT QUIT
run() {{
    env -i PATH=$root/bin HOME=$root TERM=vt100 LC_ALL=C TZ=UTC0 "PS1=ok> " \
        BUSYBOX={busybox} PROGRAMS={programs} "$@"
}}
start() {{
    echo "@@begin $1"
    mkdir $root/work
    cd $root/work
}}
finish() {{
    cd $root
    echo
    echo "@@status $1 $2"
    echo "@@stdout"
    base64 $root/stdout
    echo "@@stderr"
    base64 $root/stderr
    echo "@@end $1"
    rm -rf $root/work
}}
"#
    );
    for case in cases {
        write_case(&mut text, group, case);
    }
    text.push_str("echo @@finish\n");
    text
}

/// Adds one case.
fn write_case(text: &mut String, group: &Group, case: &Case) {
    let name = &case.name;
    let shell = &group.shell;
    // Writing to a string can't fail.
    let mut line = |line: String| writeln!(text, "{line}").expect("write to a string");
    line(format!("printf %s {} >$root/script", quote(&case.script)));
    line(format!("printf %s {} >$root/stdin", quote(&case.stdin)));
    line(format!("start {name}"));
    let captured = "<$root/stdin >$root/stdout 2>$root/stderr";
    if case.keys.is_some() {
        line("stty sane".into());
        line(format!("echo '@@keys {name}'"));
        line(format!("run {shell} $root/script; status=$?"));
        line("stty sane; cd $root/work".into());
        line(format!("printf %s {} >$root/script", quote(case.after.as_deref().unwrap_or(""))));
        line(format!("run {shell} $root/script {captured}"));
        line(format!("finish {name} $status"));
    } else {
        line(format!("run {shell} $root/script {captured}"));
        line(format!("finish {name} $?"));
    }
}

/// Quotes text for the shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn quotes_survive_the_shell() {
        assert_eq!(super::quote("a'b"), r"'a'\''b'");
    }
}
