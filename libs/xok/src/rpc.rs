//! Remote procedure calls on control transfer: by trust, and typed from a trait.
//!
//! ```text
//!   lrpc    the client saves what its calling convention keeps: any server may be called
//!   tlrpc   it leaves that in the registers: only for servers that keep them, as `server`'s do
//!   rpc!    a trait, from which come a client with the same methods and the server's decoding
//! ```
//! The kernel carries registers and the caller's name, and nothing else (aegis95 S42, S43). A typed
//! call's first word is the method's number; the reply's first word says whether it was served.
//!
//! # Safety
//! Holds tlrpc's instruction, whose promise is its caller's.
#![allow(unsafe_code)]

use crate::call::{self, Message, Refused};
use abi::error::Error;
use abi::id::EnvId;
use core::arch::asm;

/// First word of a reply: served; the result follows.
pub const SERVED: u64 = 0;
/// First word of a reply: the service has no method of this number.
pub const NO_METHOD: u64 = 1;
/// First word of a reply: an argument's word is none of its type.
pub const NO_ARGUMENT: u64 = 2;

/// Why a typed call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The kernel did not carry it.
    Refused(Refused),
    /// The server does not know the method.
    NoMethod,
    /// The server does not take an argument.
    NoArgument,
    /// The server's reply is no result of this method.
    BadReply,
}

/// Calls a server that is not trusted: whatever it does to the registers, the client goes on with
/// its own.
#[inline]
pub fn lrpc(server: EnvId, message: Message) -> Result<Message, Refused> {
    call::transfer(server, message)
}

/// Calls a server that is trusted to keep the callee-saved registers.
///
/// # Safety
/// The server replies with rbx, rbp and r12 to r15 as they came. One that does not ruins this
/// program's state, and nobody else's.
#[inline]
pub unsafe fn tlrpc(server: EnvId, message: Message) -> Result<Message, Refused> {
    let rax = crate::call::transfer_rax(server);
    let mut reply = message;
    let status: u64;
    // SAFETY: the kernel keeps rsp for who gets a reply; the caller-saved registers are declared,
    // and that the others are kept is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") rax => status,
            inlateout("rdi") reply[0],
            inlateout("rsi") reply[1],
            inlateout("rdx") reply[2],
            inlateout("r8") reply[3],
            inlateout("r9") reply[4],
            inlateout("r10") reply[5],
            lateout("rcx") _, lateout("r11") _,
        );
    }
    match Error::from_number(status) {
        None => Ok(reply),
        Some(error) => Err((error, reply[2])),
    }
}

/// Sends a typed call that was encoded, and reads the result's word.
pub fn ask(server: EnvId, message: Message) -> Result<u64, Failure> {
    match lrpc(server, message).map_err(Failure::Refused)? {
        [SERVED, word, ..] => Ok(word),
        [NO_METHOD, ..] => Err(Failure::NoMethod),
        [NO_ARGUMENT, ..] => Err(Failure::NoArgument),
        _ => Err(Failure::BadReply),
    }
}

/// Declares a service as a trait; a client with the same methods comes with it.
///
/// ```ignore
/// xok::rpc! {
///     /// Counts for others.
///     pub trait Count, client CountClient {
///         /// Adds to the caller's count: the sum.
///         1 fn add(amount: u32) -> u64;
///     }
/// }
/// ```
/// The server implements `Count` (whose methods get the caller's id first) and hands each message
/// to `Count::serve`; the client says `CountClient(server).add(3)?`. Up to five arguments, and the
/// result, are of types that fit a register (`abi::word::Word`).
#[macro_export]
macro_rules! rpc {
    ($(#[$of_trait:meta])* $visible:vis trait $Service:ident, client $Client:ident {
        $($(#[$of_method:meta])* $number:literal
            fn $method:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)+
    }) => {
        $(#[$of_trait])*
        $visible trait $Service {
            $($(#[$of_method])*
            fn $method(
                &mut self,
                caller: $crate::abi::id::EnvId,
                $($argument: $type),*
            ) -> $result;)+

            /// Serves a message; the reply takes its place.
            fn serve(
                &mut self,
                caller: $crate::abi::id::EnvId,
                message: &mut $crate::call::Message,
            ) {
                let [method, arguments @ ..] = *message;
                let result = match method {
                    $($number => {
                        #[allow(unused_mut, unused_variables)]
                        let mut words = arguments.into_iter();
                        $(let $argument = words.next()
                            .and_then(<$type as $crate::abi::word::Word>::from_word);)*
                        match ($($argument,)*) {
                            ($(Some($argument),)*) => Ok(<$result as $crate::abi::word::Word>
                                ::to_word(self.$method(caller, $($argument),*))),
                            #[allow(unreachable_patterns)]
                            _ => Err($crate::rpc::NO_ARGUMENT),
                        }
                    })+
                    _ => Err($crate::rpc::NO_METHOD),
                };
                *message = match result {
                    Ok(word) => [$crate::rpc::SERVED, word, 0, 0, 0, 0],
                    Err(why) => [why, 0, 0, 0, 0, 0],
                };
            }
        }

        /// Calls the service of this environment.
        #[derive(Clone, Copy, Debug)]
        $visible struct $Client(pub $crate::abi::id::EnvId);

        impl $Client {
            $($(#[$of_method])*
            $visible fn $method(&self, $($argument: $type),*)
                -> Result<$result, $crate::rpc::Failure>
            {
                let words = [
                    $number, $($crate::abi::word::Word::to_word($argument)),*
                ];
                let mut message = [0; 6];
                message[..words.len()].copy_from_slice(&words);
                let word = $crate::rpc::ask(self.0, message)?;
                $crate::abi::word::Word::from_word(word).ok_or($crate::rpc::Failure::BadReply)
            })+
        }
    };
}
