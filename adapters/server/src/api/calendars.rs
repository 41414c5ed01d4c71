//! Calendars: the days that tasks leave out or add.
//!
//! A task file gives calendars names, and a stored task has the days only: files that call the same days differently share a calendar here,
//! and what two edits of a file made different are two. So they are told by their days, with the tasks that go by them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use punctual_driver::ports::{Catalog, Clock, TaskQuery};
use punctual_spec::timing::{DayRange, Days};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::extract::{Asked, Asker};
use super::sight::Sight;
use super::tasks::{checked_limit, seen_page};
use super::{Api, ApiError};
use crate::identity::Role;

/// So many documents are read for a page.
const DOCUMENTS_LOOKED_AT: usize = 4_000;
/// Documents that are read at once.
const DOCUMENTS_AT_ONCE: usize = 500;

/// Of which tasks.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// The `next` of the page before.
    after: Option<String>,
    /// At most so many tasks that have one.
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
    /// Of tasks of this group.
    group: Option<String>,
}

/// Calendars, by the first of their tasks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Calendars {
    calendars: Vec<CalendarShown>,
    /// For `after` of the next call, which may have more tasks of a calendar that is here; null: this is all.
    next: Option<String>,
}

/// Days that tasks leave out or add.
#[derive(Serialize, JsonSchema)]
struct CalendarShown {
    /// The same for the same days.
    id: String,
    /// Days on which nothing fires: dates, or ranges such as 2027-02-06..2027-02-12.
    exclude: Vec<String>,
    /// Days on which it fires whatever the day fields of the expression say.
    include: Vec<String>,
    /// How many days that are.
    days: u64,
    /// Those that go by it, as far as this page comes.
    tasks: Vec<String>,
}

#[derive(Deserialize)]
struct Scheduled {
    group: Option<String>,
    trigger: Trigger,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Trigger {
    Timed { calendar: Option<Days> },
    Other(serde::de::IgnoredAny),
}

/// The group and the days of a document that has a calendar.
fn days_in(document: &str) -> Option<(Option<String>, Days)> {
    match serde_json::from_str(document).ok()? {
        Scheduled { group, trigger: Trigger::Timed { calendar: Some(days) } } if days != Days::default() => Some((group, days)),
        _ => None,
    }
}

pub(crate) async fn list<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Calendars>, ApiError> {
    let sight = Sight::new(&api, &identity, Role::Viewer);
    let limit = checked_limit(filter.limit)?;
    let (mut after, group) = (filter.after.map(Arc::from), filter.group.map(Arc::from));
    let (mut looked_at, mut found) = (0, Vec::new());
    let next = 'pages: loop {
        let query = TaskQuery {
            after: after.clone(),
            group: group.clone(),
            limit: DOCUMENTS_AT_ONCE,
            look_at: DOCUMENTS_LOOKED_AT,
            ..TaskQuery::default()
        };
        let page = seen_page(&api, &identity, &query).await?;
        looked_at += page.tasks.len();
        for view in page.tasks {
            let Some((group, days)) = days_in(&view.document) else { continue };
            if !sight.group(group.as_deref()) {
                continue;
            }
            found.push((view.name.clone(), days));
            if found.len() == limit {
                break 'pages Some(view.name);
            }
        }
        match page.next {
            None => break None,
            next if looked_at >= DOCUMENTS_LOOKED_AT => break next,
            next => after = next,
        }
    };
    Ok(Json(Calendars { calendars: grouped(found), next: next.map(|name| name.to_string()) }))
}

/// Tasks by the days that they have, in the order of the first task of each.
fn grouped(found: Vec<(Arc<str>, Days)>) -> Vec<CalendarShown> {
    let (mut calendars, mut places) = (Vec::<CalendarShown>::new(), BTreeMap::new());
    for (task, days) in found {
        let id = id_of(&days);
        let place = *places.entry(id.clone()).or_insert(calendars.len());
        if place == calendars.len() {
            let texts = |ranges: &[DayRange]| ranges.iter().map(ToString::to_string).collect();
            let (exclude, include) = (texts(&days.exclude), texts(&days.include));
            calendars.push(CalendarShown { id, exclude, include, days: days.count(), tasks: Vec::new() });
        }
        calendars[place].tasks.push(task.to_string());
    }
    calendars
}

fn id_of(days: &Days) -> String {
    let digest = Sha256::digest(serde_json::to_vec(days).unwrap_or_default());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_with_the_same_days_share_a_calendar() {
        let with = |calendar: &str| format!(r#"{{"trigger":{{"cron":{{"cron":"0 9 * * *"}},"calendar":{calendar}}},"group":"a"}}"#);
        let read = |calendar: &str| days_in(&with(calendar));
        let holidays = r#"{"exclude":["2027-01-01","2027-02-06..2027-02-12"]}"#;
        let (group, days) = read(holidays).unwrap();
        assert_eq!((group.as_deref(), days.count()), (Some("a"), 8));
        assert!(read("{}").is_none() && days_in(r#"{"trigger":"manual"}"#).is_none() && days_in("no document").is_none());
        let others = read(r#"{"include":["2027-02-20"]}"#).unwrap().1;
        let shown = grouped(vec![("a".into(), days.clone()), ("b".into(), others), ("c".into(), days)]);
        let told: Vec<_> = shown.iter().map(|calendar| (calendar.tasks.join(" "), calendar.exclude.join(" "), calendar.days)).collect();
        assert_eq!(told, [("a c".to_owned(), "2027-01-01 2027-02-06..2027-02-12".to_owned(), 8), ("b".to_owned(), String::new(), 1)]);
        assert_ne!(shown[0].id, shown[1].id);
    }
}
