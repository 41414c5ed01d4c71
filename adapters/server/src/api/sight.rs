//! What somebody sees of a list: what is of their groups.
//!
//! A page is read as often as it takes to fill it, up to a limit: one may come back with fewer rows than were asked for, and still have a
//! `next`.

use std::sync::Arc;

use punctual_driver::ports::{Catalog, Clock};
use rustc_hash::FxHashMap;

use super::rules::group_of;
use super::{Api, ApiError};
use crate::identity::{Identity, Role};

/// How often a page is read until it is full.
const READS_MAX: usize = 10;

/// What one identity may do, task by task.
pub(crate) struct Sight<'a, S, C> {
    api: &'a Api<S, C>,
    identity: &'a Identity,
    role: Role,
    known: FxHashMap<Arc<str>, bool>,
}

impl<'a, S: Catalog, C: Clock> Sight<'a, S, C> {
    /// Of what they may act on as `role`.
    pub(crate) fn new(api: &'a Api<S, C>, identity: &'a Identity, role: Role) -> Self {
        Sight { api, identity, role, known: FxHashMap::default() }
    }

    /// Whether nothing is left out.
    pub(crate) fn is_whole(&self) -> bool {
        self.identity.may(self.role, None)
    }

    /// Whether a group's tasks are among it.
    pub(crate) fn group(&self, group: Option<&str>) -> bool {
        self.identity.may(self.role, group)
    }

    /// Whether a task is among it.
    pub(crate) async fn task(&mut self, name: &str) -> Result<bool, ApiError> {
        if self.is_whole() {
            return Ok(true);
        }
        if let Some(known) = self.known.get(name) {
            return Ok(*known);
        }
        let is_seen = group_of(self.api, name).await?.is_some_and(|group| self.group(group.as_deref()));
        self.known.insert(name.into(), is_seen);
        Ok(is_seen)
    }

    /// Of rows that were read those that are among it.
    pub(crate) async fn only<T>(&mut self, rows: Vec<T>, task: impl Fn(&T) -> Arc<str>) -> Result<Vec<T>, ApiError> {
        if self.is_whole() {
            return Ok(rows);
        }
        let mut seen = Vec::with_capacity(rows.len());
        for row in rows {
            if self.task(&task(&row)).await? {
                seen.push(row);
            }
        }
        Ok(seen)
    }

    /// A page of rows, newest or first by name, and the place of the last one that was read where there may be more. `read` reads a page
    /// behind a place, `place` says where a row is, `task` of which task it is, if of any: what is of none only they see who see all.
    pub(crate) async fn page<T, P: Clone, F: Future<Output = Result<Vec<T>, ApiError>>>(
        &mut self,
        limit: usize,
        from: Option<P>,
        read: impl Fn(Option<P>) -> F,
        place: impl Fn(&T) -> P,
        task: impl Fn(&T) -> Option<Arc<str>>,
    ) -> Result<(Vec<T>, Option<P>), ApiError> {
        let (mut seen, mut last) = (Vec::new(), from);
        for _ in 0..READS_MAX {
            let rows = read(last.clone()).await?;
            let is_full = rows.len() == limit;
            for row in rows {
                last = Some(place(&row));
                let is_seen = match task(&row) {
                    _ if self.is_whole() => true,
                    Some(task) => self.task(&task).await?,
                    None => false,
                };
                if is_seen {
                    seen.push(row);
                    if seen.len() == limit {
                        return Ok((seen, last));
                    }
                }
            }
            if !is_full {
                return Ok((seen, None));
            }
        }
        Ok((seen, last))
    }
}
