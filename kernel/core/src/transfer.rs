//! Protected control transfer (aegis95 S33).
