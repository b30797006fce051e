//! Downloaded code: one bytecode for functions, verified, interpreted, compiled.
//!
//! A function comes from whom we do not trust and runs where we do: in the kernel for a program, in
//! a server for its client, in a tool for a file. It is a program in the instruction set of RFC
//! 9669 (eBPF, for which toolchains exist), and says nothing about its rights: the [`signature`]
//! does.
//!
//! ```text
//!  builder ──┐                                          ┌─► interpreter   the reference
//!  object  ──┴► bytes ─► verifier ─► Verified function ─┤      ‖ the same, bit for bit
//!  (clang)      listing    │                            └─► compiler ─► x86-64, on a context
//!                          └─► Error: slot and reason
//! ```
//! Nothing here allocates but the `builder`, which is a feature; verifying and compiling use memory
//! that the caller gives.
//!
//! ```
//! use code::argument::{Argument, Outcome};
//! use code::builder::Builder;
//! use code::instruction::{Register, Size};
//! use code::interpreter::interpret;
//! use code::signature::{Dialect, Parameter, Rights, Signature};
//! use code::verifier::{Point, verify};
//!
//! // The second word of a block.
//! let mut builder = Builder::new();
//! builder.load(Size::B8, Register::R0, Register::R1, 8).exit();
//! let program = builder.finish().expect("its labels are placed");
//!
//! let parameters = [Parameter::area(16, Rights::Read)];
//! let dialect = Dialect::Deterministic;
//! let signature = Signature { parameters: &parameters, calls: &[], budget: 0, dialect };
//! let mut points = [Point::default(); 8];
//! let function = verify(&program, &signature, &mut points)?;
//!
//! let block = [0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
//! let report = interpret(&function, &mut [Argument::Read(&block)], &mut |_, _| 0);
//! assert_eq!(report.expect("it fits").outcome, Outcome::Returned(7));
//! # Ok::<(), code::error::Error>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "builder")]
extern crate alloc;

pub mod argument;
pub mod arithmetic;
#[cfg(feature = "builder")]
pub mod builder;
pub mod compiler;
pub mod context;
mod emit;
pub mod error;
pub mod extent;
pub mod instruction;
pub mod interpreter;
pub mod listing;
pub mod object;
pub mod signature;
pub mod verifier;
pub mod watch;
