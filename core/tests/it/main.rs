//! The two machines of the core, driven by hand.

#![expect(clippy::disallowed_methods, reason = "tests measure time, and read and write their data; the machines under test don't")]

mod backfills;
mod behaviours;
mod broadcast;
mod bursts;
mod calls;
mod chains;
mod changes;
mod commits;
mod desk;
mod failures;
mod groups;
mod guards;
mod joining;
mod keys;
mod maps;
mod odd_input;
mod operator;
mod pauses;
mod queueing;
mod regressions;
mod routing;
mod scripts;
mod shards;
mod tabletop;
mod timetable;
mod workers;
mod workflows;
