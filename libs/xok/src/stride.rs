//! Stride scheduling (Waldspurger and Weihl, 1995): time in proportion to tickets.
//!
//! An unprivileged scheduler of its own clients (aegis95 T33): they take no turns of their own
//! (`FLAG_GIVEN_TIME`), and each slice of whoever calls [`Stride::slice`] goes to the client that
//! is furthest behind. Each has a pass, which grows with the time that it ran, the slower the more
//! tickets it has; who is furthest behind has the least pass. The kernel knows nothing of shares.

use crate::call;
use crate::published;
use abi::error::Error;
use abi::id::EnvId;
use alloc::vec::Vec;

/// What one ticket's pass grows by in a nanosecond.
const STRIDE_OF_ONE: u64 = 1 << 20;

/// Who is scheduled.
#[derive(Clone, Copy, Debug)]
struct Client {
    env: EnvId,
    stride: u64,
    pass: u128,
    /// Its run time when it was last charged, in nanoseconds.
    charged: u64,
}

/// The scheduler.
#[derive(Debug, Default)]
pub struct Stride {
    clients: Vec<Client>,
}

impl Stride {
    /// Takes `env` in, which takes no turns of its own. It begins level with who is behind.
    pub fn add(&mut self, env: EnvId, tickets: u32) {
        let pass = self.clients.iter().map(|client| client.pass).min().unwrap_or(0);
        let stride = STRIDE_OF_ONE / u64::from(tickets.max(1));
        self.clients.push(Client { env, stride, pass, charged: run_ns(env) });
    }

    /// Schedules `env` no longer.
    pub fn remove(&mut self, env: EnvId) {
        self.clients.retain(|client| client.env != env);
    }

    /// Gives the rest of the present slice to the client furthest behind that can run; who it was.
    /// It comes back with the next slice of one's own.
    pub fn slice(&mut self) -> Option<EnvId> {
        self.clients.sort_unstable_by_key(|client| client.pass);
        let mut ended = None;
        for at in 0..self.clients.len() {
            let client = self.clients.get_mut(at)?;
            match call::yield_to(client.env) {
                Ok(_) => {
                    client.charge();
                    return Some(client.env);
                }
                Err((Error::WrongState, _)) => {}
                Err(_) => ended = Some(client.env),
            }
        }
        ended.into_iter().for_each(|env| self.remove(env));
        None
    }
}

impl Client {
    fn charge(&mut self) {
        let now = run_ns(self.env);
        self.pass += u128::from(now - self.charged) * u128::from(self.stride);
        self.charged = now;
    }
}

fn run_ns(env: EnvId) -> u64 {
    published::env(env).map_or(0, |record| record.run_ns)
}
