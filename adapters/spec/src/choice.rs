//! Enums whose variants have names in task files.

/// A closed set of named values.
pub trait Choice: Copy + PartialEq + 'static {
    /// Every value with its name, in the order in which messages list them.
    const ALL: &'static [(&'static str, Self)];

    /// The value's name.
    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }

    /// The value of this name.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// Declares an enum that is a [`Choice`] and that serde writes as its name.
macro_rules! choices {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $crate::choice::Choice for $type {
            const ALL: &'static [(&'static str, Self)] = &[$(($name, $type::$variant)),+];
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::choice::Choice::name(*self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Named;
                impl serde::de::Visitor<'_> for Named {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("one of", $(" ", $name),+))
                    }

                    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<$type, E> {
                        $crate::choice::Choice::from_name(name)
                            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(name), &self))
                    }
                }
                deserializer.deserialize_str(Named)
            }
        }
    };
}

pub(crate) use choices;

/// The one of `known` that was probably meant by `given`.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (given.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (distance(&given.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Edits between two words: insertions, deletions, replacements, swaps of neighbours. Words of more than 64 letters are far from all.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    if left.len().max(right.len()) > 64 {
        return usize::MAX;
    }
    let mut rows = vec![vec![0_usize; right.len() + 1]; left.len() + 1];
    for i in 0..=left.len() {
        for j in 0..=right.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
                let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        let known = ["timezone", "trigger", "timeout"];
        assert_eq!(did_you_mean("time_zone", known), Some("timezone"));
        assert_eq!(did_you_mean("tirgger", known), Some("trigger"));
        assert_eq!(did_you_mean("TimeOut", known), Some("timeout"));
        assert_eq!(did_you_mean("schedule", known), None);
        assert_eq!(did_you_mean(&"x".repeat(100_000), known), None);
    }
}
