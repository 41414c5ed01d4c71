//! Two machines driven by hand.
