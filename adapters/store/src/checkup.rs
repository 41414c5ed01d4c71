//! The statements of a checkup, for both databases: each finds what contradicts something else, and no rows where all is well.

use punctual_driver::checkup::Check;

/// What the rows of a statement name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// An instance, by its number.
    Instance,
    /// Something by its name, or in words.
    Name,
}

/// A statement with one column of text.
pub(crate) type Statement = (Check, Of, String);

/// In which words the databases differ.
pub(crate) struct Dialect {
    /// The type of text in a cast.
    pub(crate) text: &'static str,
    /// When a request was made.
    pub(crate) made_at: &'static str,
    /// The columns of an occurrence.
    pub(crate) first: &'static str,
    pub(crate) last: &'static str,
    pub(crate) count: &'static str,
}

const BOTH: &[(Check, Of, &str)] = &[
    (
        Check::TaskWithoutRecord,
        Of::Name,
        "SELECT CAST(t.name AS {text}) FROM tasks t WHERE t.removed = 0
         AND NOT EXISTS (SELECT 1 FROM task_states s WHERE s.task = t.id AND s.`partition` = t.`partition` AND s.version = t.version)
         AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.task = t.id AND i.`partition` = t.`partition`)",
    ),
    (
        Check::RecordWithoutTask,
        Of::Name,
        "SELECT CAST(s.task AS {text}) FROM task_states s
         WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = s.task AND t.`partition` = s.`partition`)
         OR (s.next_fire IS NOT NULL AND EXISTS (SELECT 1 FROM tasks t WHERE t.id = s.task AND t.removed = 1)
             AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.task = s.task AND i.`partition` = s.`partition`))",
    ),
    (
        Check::TaskWithoutVersion,
        Of::Name,
        "SELECT CAST(t.name AS {text}) FROM tasks t WHERE NOT EXISTS (
             SELECT 1 FROM task_versions v WHERE v.task = t.id AND v.version = t.version AND (v.document IS NULL) = (t.removed = 1))",
    ),
    (
        Check::Reference,
        Of::Name,
        "SELECT CAST(r.target AS {text}) FROM task_references r
         WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = r.task AND t.`partition` = r.`partition` AND t.removed = 0)
         OR NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = r.target AND t.`partition` = r.target_partition AND t.removed = 0)",
    ),
    (
        Check::Call,
        Of::Name,
        "SELECT CAST(c.task AS {text}) FROM task_calls c
         WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = c.task AND t.removed = 0)
         OR NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = c.called AND t.removed = 0)",
    ),
    (
        Check::Backfill,
        Of::Name,
        "SELECT CAST(b.id AS {text}) FROM backfills b WHERE b.state = 0 AND (b.ended > b.made OR (
             NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = b.task AND t.removed = 0)
             AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.task = b.task)))",
    ),
    (
        Check::Pause,
        Of::Name,
        "SELECT CAST(p.name AS {text}) FROM pauses p WHERE p.task IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = p.task AND t.`partition` = p.`partition`)",
    ),
    (
        Check::StrayRequest,
        Of::Name,
        "SELECT CAST(i.id AS {text}) FROM inbox i WHERE NOT EXISTS (SELECT 1 FROM leases l WHERE l.`partition` = i.`partition`)",
    ),
    (Check::OldRequest, Of::Name, "SELECT CAST(i.id AS {text}) FROM inbox i WHERE i.{made_at} < {old}"),
    (
        Check::Lease,
        Of::Name,
        "SELECT CAST(m.value AS {text}) FROM meta m WHERE m.name = 'partitions' AND m.value <> (SELECT COUNT(*) FROM leases)",
    ),
];

/// What takes a look at all that there ever was.
const BOTH_THOROUGH: &[(Check, Of, &str)] = &[(
    Check::Occurrence,
    Of::Name,
    "SELECT CAST(o.task AS {text}) FROM occurrences o WHERE o.{first} > o.{last} OR o.{count} < 1
     OR NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = o.task)",
)];

/// That no pause holds the instance `i`. A drained worker holds no task.
pub(crate) const NOT_PAUSED: &str = "NOT EXISTS (SELECT 1 FROM pauses p WHERE p.kind = 0 OR (p.kind = 2 AND p.task = i.task)
     OR (p.kind = 1 AND p.name = (SELECT t.label FROM tasks t WHERE t.id = i.task)))";

/// The checks of what is in the same tables on both databases.
pub(crate) fn of_both(dialect: &Dialect, old: i64, is_thorough: bool) -> Vec<Statement> {
    let filled = |sql: &str| {
        sql.replace("{text}", dialect.text)
            .replace("{made_at}", dialect.made_at)
            .replace("{first}", dialect.first)
            .replace("{last}", dialect.last)
            .replace("{count}", dialect.count)
            .replace("{old}", &old.to_string())
    };
    let thorough = if is_thorough { BOTH_THOROUGH } else { &[] };
    BOTH.iter().chain(thorough).map(|(check, of, sql)| (*check, *of, filled(sql))).collect()
}
