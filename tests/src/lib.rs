//! Nothing: this package is its tests.
