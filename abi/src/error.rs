//! What a call answers when it does not do what was asked.

/// Declares the error enum together with its numbers and sentences.
macro_rules! errors {
    ($( $(#[doc = $doc:literal])+ $number:literal $name:ident, )+) => {
        /// An answer other than "done", in `rax`; 0 is "done".
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Error { $( $(#[doc = $doc])+ $name = $number, )+ }

        impl Error {
            /// Every error, in order of its number.
            pub const ALL: &[Error] = &[$(Error::$name),+];

            /// The error with this number, if there is one.
            pub const fn from_number(number: u64) -> Option<Error> {
                match number { $( $number => Some(Error::$name), )+ _ => None }
            }

            /// The error's name, as messages show it.
            pub const fn name(self) -> &'static str {
                match self { $( Error::$name => stringify!($name), )+ }
            }
        }
    };
}

errors! {
    /// No call has this number.
    1 NoSuchCall,
    /// An argument has a form that no correct program sends; `rdx` is the argument's position.
    2 BadArgument,
    /// An address is outside what the caller may name, unmapped, or mapped without the right.
    3 BadAddress,
    /// No capability lies at the index named.
    4 NoSuchCapability,
    /// The capability named does not dominate the object's guard with the right needed.
    5 NotPermitted,
    /// No live environment has this id.
    6 NoSuchEnv,
    /// No live domain has this id.
    7 NoSuchDomain,
    /// No live account has this id.
    8 NoSuchAccount,
    /// No live region has this id.
    9 NoSuchRegion,
    /// No filter has this id.
    10 NoSuchFilter,
    /// No ring has this id.
    11 NoSuchRing,
    /// The frame number is beyond memory, or belongs to the machine.
    12 NoSuchFrame,
    /// The slice position, processor, interface or device does not exist.
    13 NoSuchDevice,
    /// The instance asked for by number belongs to somebody.
    14 Taken,
    /// None is left of what was asked for without a number.
    15 Exhausted,
    /// An account's limit; `rdx` is the `limits::Resource` number.
    16 OverQuota,
    /// The state of the object forbids it now (a dead, running or started environment, say).
    17 WrongState,
    /// The frame is pinned for writing; `rdx` is the index of the item or entry.
    18 Pinned,
    /// The frame's type forbids this use (a table mapped writable, a leaf as a table).
    19 WrongType,
    /// The table leading there is absent or frozen; `rdx` is the level that stopped the walk.
    20 NoTable,
    /// The slot already holds a table, or the table still holds entries.
    21 NotEmpty,
    /// A compare of a region operation failed; `rdx` is the word found. An entry of a table to be
    /// folded is not as it must be; `rdx` is its index.
    22 Changed,
    /// The target cannot take a transfer now; nothing has changed.
    23 Busy,
    /// The other side died.
    24 Dead,
    /// A filter overlaps one that the caller may not subset; `rdx` is that filter's id.
    25 Overlap,
    /// The queue is full; try again after a completion.
    26 WouldBlock,
    /// A table that merges what all download is full.
    27 TableFull,
    /// The wait ended because its deadline passed.
    28 TimedOut,
    /// The object is too large, or has too many parts; `rdx` is the limit.
    29 TooLarge,
    /// The machine lacks the device or feature.
    30 NotPresent,
    /// A method did not come to its end, or a test did not agree; nothing has changed. `rdx`:
    /// `method::refused`.
    31 Refused,
    /// A downloaded function may not run; `rdx` is its slot, and in the high half the reason's
    /// number (`code::error::Why::number`).
    32 NotVerified,
}
