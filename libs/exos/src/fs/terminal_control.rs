//! `ioctl` on the terminal (tty_ioctl(4)).

use abi::id::EnvId;
use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl;
use unix::Errno;
use unix::tty::shared::WindowSize;
use unix::tty::termios::{TERMIOS_BYTES, TERMIOS2_BYTES, Termios};

use super::pty;
use super::terminal::{Tty, check_foreground};
use crate::errno::Answer;
use crate::groups;
use crate::page::{self, Mark};
use crate::process::Process;
use crate::said;
use crate::signal::send;
use crate::user;

/// Does `request` with `argument`.
pub fn control_call(process: &mut Process, tty: &Tty, request: u32, argument: u64) -> Answer {
    match request {
        ioctl::TCGETS => user::write_bytes(argument, &tty.control()?.termios.to_bytes())?,
        ioctl::TCGETS2 => user::write_bytes(argument, &tty.control()?.termios.to_bytes2())?,
        ioctl::TCSETS | ioctl::TCSETSW | ioctl::TCSETSF => {
            let mut bytes = [0; TERMIOS_BYTES];
            user::read_bytes(argument, &mut bytes)?;
            set(process, tty, request - ioctl::TCSETS, Termios::from_bytes(&bytes))?;
        }
        ioctl::TCSETS2 | ioctl::TCSETSW2 | ioctl::TCSETSF2 => {
            let mut bytes = [0; TERMIOS2_BYTES];
            user::read_bytes(argument, &mut bytes)?;
            set(process, tty, request - ioctl::TCSETS2, Termios::from_bytes2(&bytes))?;
        }
        ioctl::TIOCGWINSZ => user::write_bytes(argument, &tty.control()?.size.to_bytes())?,
        ioctl::TIOCSWINSZ => {
            let mut bytes = [0; 8];
            user::read_bytes(argument, &mut bytes)?;
            set_size(process, tty, WindowSize::from_bytes(&bytes))?;
        }
        ioctl::TIOCGPGRP => user::write_value(argument, &own_terminal(tty)?.foreground)?,
        ioctl::TIOCSPGRP => set_foreground(process, tty, argument)?,
        ioctl::TIOCGSID => user::write_value(argument, &own_terminal(tty)?.session)?,
        ioctl::TIOCSCTTY => take_terminal(process, tty, argument != 0)?,
        ioctl::TIOCNOTTY => leave_terminal(process, tty)?,
        ioctl::FIONREAD => user::write_value(argument, &(tty.readable()? as u32))?,
        ioctl::TIOCOUTQ => user::write_value(argument, &0u32)?,
        ioctl::TCFLSH => flush(tty, argument)?,
        ioctl::TCSBRK | ioctl::TCSBRKP => tty.drain(process)?,
        ioctl::TIOCEXCL | ioctl::TIOCNXCL => exclude(tty, request == ioctl::TIOCEXCL)?,
        ioctl::TIOCGEXCL => user::write_value(argument, &u32::from(tty.control()?.exclusive))?,
        ioctl::TCXONC => {}
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// The settings, if the terminal is the session's.
fn own_terminal(tty: &Tty) -> Result<unix::tty::shared::Control, Errno> {
    let control = tty.control()?;
    if control.session == page::own().session { Ok(control) } else { Err(Errno::ENOTTY) }
}

/// From now on user 0 alone may open the terminal, or again whoever its mode lets in.
fn exclude(tty: &Tty, exclusive: bool) -> Result<(), Errno> {
    tty.change(|control| {
        control.exclusive = exclusive;
        Ok(())
    })?;
    Ok(())
}

/// Sets the size and tells the foreground group, within the call as Linux does: later it may be
/// another group.
fn set_size(process: &mut Process, tty: &Tty, size: WindowSize) -> Result<(), Errno> {
    let before = tty.control()?;
    tty.change(|control| {
        control.size = size;
        Ok(())
    })?;
    if before.size != size && before.foreground != 0 {
        // Nobody there, or not ours to tell: the size is set all the same.
        let group = (before.session, before.foreground);
        send::to_terminals(process, raw::SIGWINCH, tty.mark(), group);
    }
    Ok(())
}

/// Changes the settings: at once (0), when all is shown (1), or then and without what is typed (2).
fn set(process: &mut Process, tty: &Tty, when: u32, termios: Termios) -> Result<(), Errno> {
    check_foreground(process, tty, &tty.control()?)?;
    if when > 0 {
        tty.drain(process)?;
    }
    tty.change(|control| {
        control.termios = termios;
        if when == 2 {
            control.flush_input = control.flush_input.wrapping_add(1);
        }
        Ok(())
    })?;
    Ok(())
}

fn set_foreground(process: &mut Process, tty: &Tty, argument: u64) -> Result<(), Errno> {
    let group: i32 = user::read_value(argument)?;
    let group = u32::try_from(group).map_err(|_| Errno::EINVAL)?;
    check_foreground(process, tty, &own_terminal(tty)?).map_err(|errno| match errno {
        // To a group that nobody can continue it is nobody's terminal (tcsetpgrp(3)).
        Errno::EIO => Errno::ENOTTY,
        other => other,
    })?;
    let own = page::own();
    // A group of ours stays one, and becomes none, whatever strangers say that they are in. A child
    // that has not run since it was put into the group says so through its parent.
    let is_ours = group == own.group
        || process.children.iter().any(|child| groups::pending(child) == Some(group))
        || groups::has_member(process, group);
    if !is_ours {
        let is_anothers = said::all().any(|member| member.place.own_word().group == group);
        return Err(if is_anothers { Errno::EPERM } else { Errno::ESRCH });
    }
    tty.change(|control| {
        control.foreground = group;
        Ok(())
    })?;
    Ok(())
}

/// Makes the terminal that of the session whose leader we are, if it is nobody's and the session
/// has none.
pub fn take_terminal(process: &mut Process, tty: &Tty, steals: bool) -> Result<(), Errno> {
    let own = page::own();
    if own.session != process.id.0 {
        return Err(Errno::EPERM);
    }
    let has_one = pty::has_terminal(process);
    tty.change(|control| {
        if control.session == own.session {
            return Ok(());
        }
        if has_one {
            return Err(Errno::EPERM);
        }
        if is_taken(control.session) && !(steals && process.users[1] == 0) {
            return Err(Errno::EPERM);
        }
        control.session = own.session;
        control.foreground = own.group;
        Ok(())
    })?;
    own.set_mark(tty.mark());
    Ok(())
}

/// Has a terminal of this session's a session? Not if its leader has ended, whatever others say
/// that they are in.
pub fn is_taken(session: u32) -> bool {
    let leader = said::brief(EnvId(session));
    let leads = |leader: said::Brief| leader.place.own_word().session == session;
    session != 0 && leader.is_some_and(|leader| !leader.dead && leads(leader))
}

fn leave_terminal(process: &mut Process, tty: &Tty) -> Result<(), Errno> {
    let own = page::own();
    own_terminal(tty)?;
    if own.session == process.id.0 {
        pty::disown(process, tty);
    }
    own.set_mark(Mark::NONE);
    Ok(())
}

fn flush(tty: &Tty, which: u64) -> Result<(), Errno> {
    let which = u32::try_from(which).map_err(|_| Errno::EINVAL)?;
    if which > raw::TCIOFLUSH {
        return Err(Errno::EINVAL);
    }
    tty.change(|control| {
        if which != raw::TCOFLUSH {
            control.flush_input = control.flush_input.wrapping_add(1);
        }
        if which != raw::TCIFLUSH {
            control.flush_output = control.flush_output.wrapping_add(1);
        }
        Ok(())
    })?;
    Ok(())
}
