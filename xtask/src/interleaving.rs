//! Several processors whose instructions are counted: they run in turns of some microseconds.
//!
//! QEMU runs them one after the other then, each until the machine's next timer at most: what one
//! changes the others would see after milliseconds. The PIT's counter 0, whose interrupt the kernel
//! keeps masked, makes turns short. QEMU's monitor sets it before the machine runs:
//!
//! ```text
//!  o /b 0x43 0x34   counter 0, low byte and high, mode 2      (8254, "Programming")
//!  o /b 0x40 ...    24 ticks of 1.193182 MHz: 20 us, for all processors together
//!  cont             the machine was stopped until here
//! ```

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::failure::{Context, Result};
use crate::workspace;

/// Ticks between two of the timer's.
const TICKS: u8 = 24;

/// Has `qemu` run its processors in short turns.
pub fn add_to(qemu: &mut Command) -> Result<()> {
    let base = workspace::target().join("xok/interleave");
    let (commands, answers) = (base.with_extension("in"), base.with_extension("out"));
    let text = format!("o /b 0x43 0x34\no /b 0x40 {TICKS}\no /b 0x40 0\ncont\n");
    fs::write(&commands, text).context(commands.display())?;
    if !answers.exists() {
        symlink("/dev/null", &answers).context(answers.display())?;
    }
    // A pipe by name is two files, NAME.in and NAME.out.
    qemu.args(["-chardev", &format!("pipe,id=turns,path={}", base.display())]);
    qemu.args(["-mon", "chardev=turns,mode=readline", "-S"]);
    Ok(())
}
