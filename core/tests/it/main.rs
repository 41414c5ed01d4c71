//! The two machines of the core, driven by hand.

mod store_model;
mod tabletop;
mod world;
