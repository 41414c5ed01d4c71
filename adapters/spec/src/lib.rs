//! Task files: YAML and crontab in, checked definitions out.
//!
//! What is absent: the store, the network, the machine's own zone. A text comes in; what comes out is either tasks that the scheduler
//! can follow, or everything that is wrong with the text, each with its place.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `spec`, `wire` | a task as its author means it, and its one canonical JSON form |
//! | `compile` | the checks, and the scheduler's definition of a task |
//! | `node` | YAML as a tree with places, within limits |
//! | `fields`, `read`, `task` | the fields of a task file, and reading them from the tree |
//! | `file` | a whole file, task by task |
//! | `zones` | time zone data, shared zones and schedules |
//! | `rehearsal` | how a task's handler behaves in a rehearsal: beside the task, no part of it |
//! | `timing`, `timetable` | what refines when a trigger fires: as written, and as the scheduler follows it |
//! | `workflow` | the nodes of a workflow |
//! | `crontab` | crontabs as task files |
//! | `emit` | specs as a task file in YAML |
//! | `schema` | the JSON Schema of task files |

pub mod choice;
mod codes;
pub mod compile;
pub mod crontab;
pub mod duration;
pub mod emit;
mod fields;
pub mod file;
pub mod handler;
pub mod limits;
mod node;
pub mod payload;
pub mod problem;
mod read;
pub mod rehearsal;
pub mod schema;
pub mod spec;
mod task;
mod timetable;
pub mod timing;
mod wire;
pub mod workflow;
pub mod zones;

pub use compile::decode;
