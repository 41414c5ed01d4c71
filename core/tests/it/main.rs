//! The two machines of the core, driven by hand.

#![expect(clippy::disallowed_methods, reason = "tests measure time, and read and write their data; the machines under test don't")]

mod behaviours;
mod bursts;
mod commits;
mod guards;
mod joining;
mod odd_input;
mod progress;
mod regressions;
mod scripts;
mod tabletop;
mod timetable;
mod workers;
