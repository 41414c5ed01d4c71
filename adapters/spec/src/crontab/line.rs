//! One line of a crontab, read as cron reads it.

use super::Kind;

/// What a line says.
#[derive(Debug)]
pub(super) enum Parsed<'a> {
    Blank,
    /// The text behind the `#`.
    Comment(&'a str),
    Variable {
        name: String,
        value: String,
    },
    Entry(Entry<'a>),
}

/// When to run what.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// Five fields with single blanks between, or an `@` word.
    pub(super) schedule: String,
    pub(super) user: Option<&'a str>,
    pub(super) command: String,
    pub(super) stdin: Option<String>,
}

const BLANKS: [char; 2] = [' ', '\t'];

/// Reads a line without its end.
pub(super) fn parse(line: &str, kind: Kind) -> Result<Parsed<'_>, String> {
    let text = line.trim_start_matches(BLANKS);
    if text.is_empty() {
        return Ok(Parsed::Blank);
    }
    if let Some(comment) = text.strip_prefix('#') {
        return Ok(Parsed::Comment(comment));
    }
    if let Some((name, value)) = variable(text) {
        return match name.is_empty() {
            true => Err("a variable without a name".to_owned()),
            false => Ok(Parsed::Variable { name, value }),
        };
    }
    entry(text, kind).map(Parsed::Entry)
}

fn entry(text: &str, kind: Kind) -> Result<Entry<'_>, String> {
    if text.starts_with('-') {
        return Err("a `-` in front, which keeps some crons from logging, is not understood: remove it".to_owned());
    }
    let fields = if text.starts_with('@') { 1 } else { 5 };
    let mut rest = text;
    let mut words = Vec::with_capacity(fields + 1);
    let users = usize::from(kind == Kind::System);
    for _ in 0..fields + users {
        let (word, after) = rest.split_at(rest.find(BLANKS).unwrap_or(rest.len()));
        if !word.is_empty() {
            words.push(word);
        }
        rest = after.trim_start_matches(BLANKS);
    }
    if words.len() < fields {
        return Err(format!("not a crontab line: {fields} fields and a command are wanted (minute hour day month weekday command)"));
    }
    let user = words.get(fields).copied();
    if users == 1 {
        match user {
            None => return Err("the user and the command are missing: in a system crontab the user follows the time".to_owned()),
            Some(user) if !is_user_name(user) => {
                return Err(format!("{} is no user name: for a user's own crontab import again with --user", crate::problem::quoted(user)));
            }
            Some(_) => {}
        }
    }
    if rest.trim().is_empty() {
        return Err("the command is missing".to_owned());
    }
    let (command, stdin) = split_at_percent(rest);
    if command.trim().is_empty() {
        return Err("the command is missing: the line has only input for one".to_owned());
    }
    Ok(Entry { schedule: words[..fields].join(" "), user, command, stdin })
}

fn is_user_name(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '@' | '\\' | '$');
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_') && text.chars().all(is_part)
}

/// The command up to the first `%`, and the rest as its input. `\%` is a percent sign in both; further `%` are line ends.
///
/// As cron has it, the backslash of `\\%` escapes nothing in the command, and the input ends with a line end.
fn split_at_percent(text: &str) -> (String, Option<String>) {
    let mut command = String::new();
    let mut escaped = false;
    let mut characters = text.chars();
    let mut has_input = false;
    for c in characters.by_ref() {
        match c {
            '%' if escaped => {
                command.pop();
                command.push('%');
                escaped = false;
            }
            '%' => {
                has_input = true;
                break;
            }
            _ => {
                command.push(c);
                escaped = c == '\\' && !escaped;
            }
        }
    }
    (command, has_input.then(|| input(characters.as_str())))
}

fn input(text: &str) -> String {
    let mut input = String::new();
    let mut escaped = false;
    for c in text.chars() {
        let mut c = c;
        if escaped {
            if c != '%' {
                input.push('\\');
            }
        } else if c == '%' {
            c = '\n';
        }
        escaped = c == '\\';
        if !escaped {
            input.push(c);
        }
    }
    if escaped {
        input.push('\\');
    }
    if !input.is_empty() && !input.ends_with('\n') {
        input.push('\n');
    }
    input
}

/// The two sides of `name = value`, either of them in quotes, blanks around the sign; `None` for what is not of this form.
fn variable(text: &str) -> Option<(String, String)> {
    let (name, rest) = match text.chars().next()? {
        quote @ ('"' | '\'') => {
            let (name, rest) = text[1..].split_once(quote)?;
            (name, rest.trim_start().strip_prefix('=').filter(|_| !name.contains('='))?)
        }
        _ => {
            let end = text.find(|c: char| c.is_whitespace() || c == '=')?;
            (&text[..end], text[end..].trim_start().strip_prefix('=')?)
        }
    };
    let value = rest.trim_start();
    match value.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let (value, after) = value[1..].split_once(quote)?;
            after.trim().is_empty().then(|| (name.to_owned(), value.to_owned()))
        }
        _ => Some((name.to_owned(), value.trim_end().to_owned())),
    }
}

/// What to say of a schedule that some other cron understands.
pub(super) fn extension_hint(schedule: &str) -> Option<&'static str> {
    if schedule.contains('~') {
        Some(" (random times with `~` are not supported: choose a time)")
    } else if schedule.contains('H') && !schedule.contains("TH") && !schedule.contains("MARCH") {
        Some(" (`H` is Jenkins' hash: choose a time)")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C382.
    #[test]
    fn percent_signs_are_read_as_cron_reads_them() {
        for (text, command, stdin) in [
            ("date +\\%F%one%two", "date +%F", Some("one\ntwo\n")),
            ("cat%", "cat", Some("")),
            ("cat%%", "cat", Some("\n")),
            ("echo 100\\%", "echo 100%", None),
            ("echo \\\\%x", "echo \\\\", Some("x\n")),
            ("echo \\n", "echo \\n", None),
            ("cat%a\\%b\\c\\", "cat", Some("a%b\\c\\\n")),
            ("cat%ends%", "cat", Some("ends\n")),
        ] {
            assert_eq!(split_at_percent(text), (command.to_owned(), stdin.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn variables_are_told_from_entries() {
        for (text, expected) in [
            ("A=b", Some(("A", "b"))),
            ("A = b c ", Some(("A", "b c"))),
            ("A=\" b \"", Some(("A", " b "))),
            ("A='b\"c'  ", Some(("A", "b\"c"))),
            ("\"A B\" = c", Some(("A B", "c"))),
            ("MAILTO=", Some(("MAILTO", ""))),
            ("A=\"unclosed", None),
            ("5 0 * * * A=b cmd", None),
            ("@daily A=b cmd", None),
            ("A b = c", None),
        ] {
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(variable(text), expected, "{text}");
        }
    }
}
