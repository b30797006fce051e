//! Downloaded code on the host: what it means, what is refused, and that all who run it agree.

mod bounds;
mod differential;
mod executable;
mod form;
mod garbage;
mod generate;
mod masks;
mod meaning;
mod programs;
mod rejections;
mod time;
mod toolchain;
mod watch;
