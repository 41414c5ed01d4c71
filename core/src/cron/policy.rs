//! The choices that a task makes about its cron trigger, and their names in configuration.

use std::fmt;
use std::str::FromStr;

/// A text that names none of the choices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{text}`: use one of {choices}")]
pub struct UnknownName {
    /// What was to be named.
    pub what: &'static str,
    /// The text given.
    pub text: String,
    /// The names that exist, separated by commas.
    pub choices: &'static str,
}

/// Gives an enum its names: `Display` and `FromStr` that agree, and a list for error messages.
macro_rules! named {
    ($type:ident, $what:literal, $choices:literal, $($variant:ident = $name:literal),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($type::$variant => $name),+ })
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                match text {
                    $($name => Ok($type::$variant),)+
                    _ => Err(UnknownName { what: $what, text: text.to_owned(), choices: $choices }),
                }
            }
        }
    };
}

/// How the fields of an expression are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Five fields: minute, hour, day of month, month, weekday (0 and 7 are Sunday).
    Unix5,
    /// Six fields: second, then as [`Dialect::Unix5`].
    Seconds6,
    /// Six or seven fields: second, minute, hour, day of month, month, weekday (1 is Sunday, 7 Saturday), and optionally the year.
    Quartz,
}

named!(Dialect, "cron dialect", "unix5, seconds6, quartz", Unix5 = "unix5", Seconds6 = "seconds6", Quartz = "quartz");

/// What becomes of a fixed wall time that a forward jump of the clock leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GapPolicy {
    /// Fire once at the first instant after the gap, however many times fell into it.
    #[default]
    AfterGap,
    /// Do not fire.
    Skip,
    /// Fire later by the length of the gap: 02:30 becomes 03:30.
    ShiftForward,
}

named!(GapPolicy, "gap policy", "after_gap, skip, shift_forward", AfterGap = "after_gap", Skip = "skip", ShiftForward = "shift_forward");

/// In which pass a fixed wall time fires that a backward move of the clock repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OverlapPolicy {
    /// In the first pass only.
    #[default]
    First,
    /// In both passes.
    Both,
    /// In the last pass only.
    Last,
}

named!(OverlapPolicy, "overlap policy", "first, both, last", First = "first", Both = "both", Last = "last");
