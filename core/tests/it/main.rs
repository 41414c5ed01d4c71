//! The two machines of the core, driven by hand.

mod regressions;
mod scripts;
mod store_model;
mod tabletop;
mod world;
