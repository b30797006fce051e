//! Wakeup predicates: checked, translated and pinned at download, evaluated without the space.
