//! Sleeping, posting, timers.
