//! Chaos: the plans, the history and the checkers of the simulated world, against real processes.
//!
//! What runs is what is shipped: `punctual server` on a MariaDB pair and a Redis, and workers that are built with the worker crate. A plan
//! says what happens, the same as in `punctual-sim`; here it is done with signals, with proxies on every connection, with clocks of the
//! processes' own, and to the database servers themselves. Everything that was seen becomes one history, which the same properties judge.
//!
//! | file | what it knows |
//! | --- | --- |
//! | [`drawing`] | which plans are drawn |
//! | [`run`] | a run from its beginning to its verdict |
//! | [`cluster`] | what is started, and in which order it ends |
//! | [`nodes`] | the processes of schedulers and workers |
//! | [`database`] | the database pair: crashes, failovers, a full disk |
//! | [`weather`] | what is wrong just now, for all who have to know |
//! | [`proxy`] | the connections, and what goes wrong on them |
//! | [`trouble`] | faults: beginning, ending, and for whom |
//! | [`people`] | those who use the API |
//! | [`truth`] | the handlers' own account, as lines of a file |
//! | [`worker`] | the worker's process |
//! | [`clock`] | one clock for all sources |
//! | [`told`] | what the run writes down itself |
//! | [`merge`] | all sources as one history |
//! | [`http`] | requests to the API |

#![forbid(unsafe_code)]

pub mod clock;
pub mod cluster;
pub mod database;
pub mod drawing;
pub mod http;
pub mod merge;
pub mod nodes;
pub mod people;
pub mod proxy;
pub mod run;
pub mod told;
pub mod trouble;
pub mod truth;
pub mod weather;
pub mod worker;
