//! Downloaded code against an interpreter of other people's, by inputs that coverage chooses.
//!
//! ```text
//!  generated ──┐                                   ┌─► our interpreter ──┐
//!  a kept one, │──► input ──► verifier ─ accepts ──┼─► compiled, run ────┼── the same?
//!  changed ────┘      ▲          │ refuses         └─► translated, rbpf ─┘
//!                     │          ▼                          │
//!                  kept if it came where none did ◄─────────┘
//! ```
//! `cargo xtask soak --part fuzz` builds this with counters in every branch ([`coverage`]); without
//! them nothing is kept but what was generated.
//!
//! ```sh
//! XOK_SEED=7 XOK_INPUTS=1000000 cargo run --release -p fuzz
//! ```

mod campaign;
mod coverage;
#[path = "../../../code/tests/suite/executable.rs"]
#[expect(dead_code, reason = "the package's own tests use the rest")]
mod executable;
#[path = "../../../code/tests/suite/generate.rs"]
mod generate;
mod input;
mod memory;
mod mutation;
mod oracle;
#[path = "../../../code/tests/suite/programs.rs"]
#[expect(dead_code, reason = "the package's own tests use the rest")]
mod programs;
mod subject;
mod translation;

/// Tries as many inputs as the environment says, from its seed.
///
/// # Panics
/// With the first input that shows a difference.
pub fn run() {
    let seed = programs::number("XOK_SEED", 1);
    let inputs = programs::number("XOK_INPUTS", 1_000_000);
    let begun = std::time::Instant::now();
    println!("{}", campaign::run(seed, inputs));
    let rate = inputs as f64 / begun.elapsed().as_secs_f64();
    println!("{inputs} inputs, seed {seed}: no difference; {rate:.0} a second");
}
