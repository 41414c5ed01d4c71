//! Which texts may be the name of a time zone at all. Whether such a zone exists is for whoever holds the zone data to say.

use super::CronError;

/// The longest name in the database has 32 characters; this leaves room for new ones.
const ZONE_NAME_BYTES_MAX: usize = 64;

/// Names that zone directories contain but that mean the machine's own zone or another set of data, never a place.
const NOT_A_PLACE: [&str; 6] = ["local", "localtime", "posixrules", "posix", "right", "factory"];

/// Checks that `name` looks like an IANA zone name (`Europe/Berlin`, `UTC`, `Etc/GMT+5`), so that it is safe to look up.
///
/// # Errors
///
/// [`CronError::ZoneName`] for anything else: an empty text, a path, an offset such as `GMT+5`, control characters, the machine's zone.
pub fn validate_zone_name(name: &str) -> Result<(), CronError> {
    let refuse = |reason: &'static str| Err(CronError::ZoneName { text: name.chars().take(ZONE_NAME_BYTES_MAX).collect(), reason });
    if name.is_empty() {
        return refuse("it is empty; name a zone such as `Europe/Berlin`, or leave it out for UTC");
    }
    if name.len() > ZONE_NAME_BYTES_MAX {
        return refuse("it is too long for a zone name");
    }
    let well_formed = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'+' | b'-'))
    };
    if !name.split('/').all(well_formed) {
        return refuse("it is not an IANA zone name such as `Europe/Berlin`");
    }
    let first_part = name.split('/').next().unwrap_or_default();
    if NOT_A_PLACE.iter().any(|word| first_part.eq_ignore_ascii_case(word)) {
        return refuse("it does not name a place; schedules never follow the machine's own zone");
    }
    // `Etc/GMT+5` is a zone, five hours *behind* UTC. Without its prefix people mean the opposite.
    let is_offset = name.as_bytes().windows(2).any(|pair| matches!(pair[0], b'+' | b'-') && pair[1].is_ascii_digit());
    if is_offset && first_part.len() == name.len() && !["GMT+0", "GMT-0"].iter().any(|zero| name.eq_ignore_ascii_case(zero)) {
        return refuse(
            "an offset is not a zone name and its sign is easily misread; name a city, or `Etc/GMT-5` for five hours ahead of UTC",
        );
    }
    Ok(())
}
