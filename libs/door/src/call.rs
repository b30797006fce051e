//! Kernel calls from a program under ExOS.
//!
//! A `syscall` instruction in the program's own text is a Linux call. One in ExOS's text is the
//! kernel's: there a stub is nothing but that, and a return.
//!
//! # Safety
//! Holds the call of the stub, whose address ExOS itself has told. It touches registers and the
//! stack as a function does; what a kernel call does to memory is the business of who makes it.
#![allow(unsafe_code)]

use crate::AUXILIARY;
use abi::call::{CAPABILITY_SHIFT, Call, number};
use abi::error::Error;
use abi::id::EnvId;
use core::arch::asm;

/// The way to the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Door(u64);

impl Door {
    /// The door, if there is one, in a program that has a C library.
    #[inline]
    pub fn find() -> Option<Self> {
        unsafe extern "C" {
            safe fn getauxval(kind: u64) -> u64;
        }
        match getauxval(AUXILIARY) {
            0 => None,
            address => Some(Self(address)),
        }
    }

    /// Transfers control to a server with six words; its reply, if it came.
    ///
    /// # Safety
    /// The server replies with the registers that a calling convention keeps as they came.
    pub unsafe fn transfer(self, server: EnvId, words: [u64; 6]) -> Result<[u64; 6], (Error, u64)> {
        let first = u64::from(number::TransferSync) | u64::from(server.0) << 32;
        let mut reply = words;
        let error: u64;
        // SAFETY: the stub keeps all registers but those of the message; the caller answers for
        // the server.
        unsafe {
            asm!(
                "call {door}",
                door = in(reg) self.0,
                inlateout("rax") first => error,
                inlateout("rdi") reply[0],
                inlateout("rsi") reply[1],
                inlateout("rdx") reply[2],
                inlateout("r8") reply[3],
                inlateout("r9") reply[4],
                inlateout("r10") reply[5],
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        match Error::from_number(error) {
            None => Ok(reply),
            Some(error) => Err((error, reply[2])),
        }
    }

    /// Makes `call`, naming the capability at index `capability`; what was refused, and the number
    /// that explains it.
    ///
    /// # Safety
    /// The call must leave memory that Rust knows of, and what ExOS made, as it is.
    pub unsafe fn make(self, call: Call, capability: u8) -> Result<u64, (Error, u64)> {
        let (number, words) = call.encode();
        let first = u64::from(number) | u64::from(capability) << CAPABILITY_SHIFT;
        let (error, value): (u64, u64);
        // SAFETY: the stub keeps all registers but those of the kernel's calls; the caller answers
        // for the rest.
        unsafe {
            asm!(
                "call {door}",
                door = in(reg) self.0,
                inlateout("rax") first => error,
                inlateout("rdi") words[0] => _,
                inlateout("rsi") words[1] => _,
                inlateout("rdx") words[2] => value,
                inlateout("r10") words[3] => _,
                inlateout("r8") words[4] => _,
                inlateout("r9") words[5] => _,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        match Error::from_number(error) {
            None => Ok(value),
            Some(error) => Err((error, value)),
        }
    }
}
