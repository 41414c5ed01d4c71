//! Benches of Punctual's parts. This library is empty; see `benches/`, one file for each part.
