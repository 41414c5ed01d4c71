//! The two machines of the core, driven by hand.

mod behaviours;
#[cfg(feature = "simulation")]
mod guards;
mod regressions;
mod scripts;
mod store_model;
mod tabletop;
mod world;
