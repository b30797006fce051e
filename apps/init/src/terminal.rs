//! The terminal's regions, which init makes and ttyd serves.

use abi::id::{DomainId, RegionId};
use abi::region::{COPY_IN, COPY_OUT, RegionOperation};
use unix::tty::shared::{
    CONTROL_BYTES, CONTROL_ROLE, Control, INPUT_FRAMES, INPUT_PROGRAM, INPUT_SERVER, OUTPUT_FRAMES,
    OUTPUT_LOOKER, OUTPUT_PROGRAM, OUTPUT_SERVER, TABLE_SERVER, WindowSize,
};
use xok::call::{self, OWN, Refused};
use xok::services::Service;

use crate::publish;

/// Rows and columns of a serial terminal that has not said otherwise.
const SIZE: (u16, u16) = (24, 80);
/// Looks at the output rings before the machine ends.
const PATIENCE: usize = 15_000;

/// The regions.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    input: RegionId,
    output: RegionId,
    error: Option<RegionId>,
    control: RegionId,
    /// The table of pseudo-terminals.
    table: RegionId,
}

fn region(frames: usize) -> Result<RegionId, Refused> {
    const ANY: [u32; 8] = [u32::MAX; 8];
    call::region_alloc(OWN, ANY.get(..frames).unwrap_or(&ANY))
}

fn output() -> Result<RegionId, Refused> {
    call::fifo_alloc(OWN, &[u32::MAX; OUTPUT_FRAMES])
}

impl Terminal {
    /// Makes the regions; `streams`: a program runs, not a terminal.
    pub fn make(streams: bool) -> Result<Self, Refused> {
        let terminal = Self {
            input: region(INPUT_FRAMES)?,
            output: output()?,
            error: if streams { Some(output()?) } else { None },
            control: region(0)?,
            table: region(1)?,
        };
        // Init stays attached, so that the regions live as long as the machine.
        terminal.attach(DomainId::NONE, INPUT_SERVER, OUTPUT_SERVER)?;
        terminal.attach_table(DomainId::NONE)?;
        publish::set(Service::Terminals, terminal.table.0);
        publish::set(Service::TerminalInput, terminal.input.0);
        publish::set(Service::TerminalOutput, terminal.output.0);
        publish::set(Service::TerminalState, terminal.control.0);
        publish::set(Service::ErrorOutput, terminal.error.map_or(0, |region| region.0));
        publish::set(Service::RawConsole, u64::from(streams));
        Ok(terminal)
    }

    fn attach(&self, domain: DomainId, input: u16, output: u16) -> Result<(), Refused> {
        call::region_attach(OWN, self.input, input, domain)?;
        call::region_attach(OWN, self.output, output, domain)?;
        if let Some(error) = self.error {
            call::region_attach(OWN, error, output, domain)?;
        }
        call::region_attach(OWN, self.control, CONTROL_ROLE, domain)?;
        Ok(())
    }

    /// Attaches ttyd.
    pub fn attach_server(&self, domain: DomainId) -> Result<(), Refused> {
        for shown in [Some(self.output), self.error].into_iter().flatten() {
            call::region_attach(OWN, shown, OUTPUT_LOOKER, domain)?;
        }
        self.attach_table(domain)?;
        self.attach(domain, INPUT_SERVER, OUTPUT_SERVER)
    }

    /// Attaches a server to the table of pseudo-terminals.
    pub fn attach_table(&self, domain: DomainId) -> Result<(), Refused> {
        call::region_attach(OWN, self.table, TABLE_SERVER, domain).map(|_| ())
    }

    /// Attaches a program.
    pub fn attach_program(&self, domain: DomainId) -> Result<(), Refused> {
        self.attach(domain, INPUT_PROGRAM, OUTPUT_PROGRAM)
    }

    /// The first settings: `session` has the terminal and is in the foreground.
    pub fn set_up(&self, session: u32, streams: bool) -> Result<(), Refused> {
        let (rows, columns) = SIZE;
        let control = Control {
            foreground: session,
            session,
            size: WindowSize { rows, columns, width: 0, height: 0 },
            streams,
            ..Control::default()
        };
        let bytes = control.to_bytes();
        let operation = RegionOperation {
            region: self.control.0,
            direction: COPY_IN,
            role: CONTROL_ROLE as u8,
            address: bytes.as_ptr() as u64,
            len: CONTROL_BYTES as u32,
            ..RegionOperation::default()
        };
        call::region_operate(&operation).map(|_| ())
    }

    /// Lets ttyd show what programs wrote last.
    ///
    /// One that hangs just then is started again meanwhile, by `keep`.
    pub fn drain(&self, mut keep: impl FnMut()) {
        for _ in 0..PATIENCE {
            keep();
            let shown = |region| is_empty(region).unwrap_or(true);
            if shown(self.output) && self.error.is_none_or(shown) {
                return;
            }
            let _ = call::sleep(xok::clock::now_ns() + 1_000_000, 0, 0, 0);
        }
    }
}

/// Has everything been taken out of a ring?
fn is_empty(region: RegionId) -> Result<bool, Refused> {
    let words = [0_u64; 2];
    let operation = RegionOperation {
        region: region.0,
        direction: COPY_OUT,
        role: OUTPUT_SERVER as u8,
        address: (&raw const words) as u64,
        len: 16,
        ..RegionOperation::default()
    };
    call::region_operate(&operation)?;
    let [head, tail] = core::hint::black_box(words);
    Ok(head == tail)
}
