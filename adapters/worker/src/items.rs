//! Items that a handler lists, for a firing that is mapped over them.

use std::sync::Arc;

use punctual_core::limits::{MAP_BYTES_MAX, MAP_ITEM_BYTES_MAX, MAP_ITEMS_MAX};
use punctual_core::protocol::End;
use punctual_driver::ports::Ended;
use serde_json::Value;

use crate::cut_detail;

/// The variable that names the file which a command that lists writes its items into.
pub(crate) const ITEMS: &str = "PUNCTUAL_ITEMS";
/// The variable that names the file which a command that reduces reads the results from.
pub(crate) const RESULTS: &str = "PUNCTUAL_RESULTS";
/// Most bytes of what is listed as it was written: blanks in it don't count in the end.
pub(crate) const LISTED_BYTES_MAX: usize = 2 * MAP_BYTES_MAX;

/// The items of a JSON array, a line each; or why it can't be taken, in words that follow `the list`.
pub(crate) fn items_of(text: &str) -> Result<Arc<str>, String> {
    let listed = match serde_json::from_str(text) {
        Ok(Value::Array(listed)) => listed,
        Ok(_) => return Err("is no JSON array".to_owned()),
        Err(error) => return Err(format!("is no JSON array: {error}")),
    };
    let count = listed.len();
    if count > MAP_ITEMS_MAX as usize {
        return Err(format!("has {count} items, and a firing is mapped over at most {MAP_ITEMS_MAX}"));
    }
    let mut lines = String::with_capacity(text.len());
    for (place, item) in listed.iter().enumerate() {
        // Without blanks it is on one line: in texts the ends of lines are written as signs.
        let item = item.to_string();
        if item.len() > MAP_ITEM_BYTES_MAX {
            return Err(format!(
                "has an item of {} bytes at place {place}, and one may have {MAP_ITEM_BYTES_MAX}: list where it is",
                item.len()
            ));
        }
        if place > 0 {
            lines.push('\n');
        }
        lines.push_str(&item);
        if lines.len() > MAP_BYTES_MAX {
            return Err(format!("has more than {MAP_BYTES_MAX} bytes: list where the items are, or fewer at a time"));
        }
    }
    Ok(Arc::from(lines))
}

/// The end of what was to list: without items it has failed, and would again.
pub(crate) fn listed(ended: Ended, text: Result<&str, String>) -> Ended {
    match text.and_then(items_of) {
        Ok(items) => Ended { items: Some(items), result: None, ..ended },
        Err(reason) => Ended { end: End::FailedForGood, result: None, detail: Some(cut_detail(&format!("the list {reason}"))), ..ended },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn items_are_a_line_each_whatever_they_hold() {
        for (text, expected) in [
            ("[]", Some("")),
            (" [1, \"a\\nb\",\n {\"k\": [ ] }, null]\n", Some("1\n\"a\\nb\"\n{\"k\":[]}\nnull")),
            ("{}", None),
            ("3", None),
            ("[1", None),
            ("", None),
        ] {
            assert_eq!(items_of(text).ok().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_too_much_is_refused_with_the_bound() {
        let many = json!(vec![0; MAP_ITEMS_MAX as usize]).to_string();
        assert_eq!(items_of(&many).expect("as many as there may be").lines().count(), MAP_ITEMS_MAX as usize);
        let more = json!(vec![0; MAP_ITEMS_MAX as usize + 1]).to_string();
        assert!(items_of(&more).is_err_and(|reason| reason.contains("at most 100000")));
        let long = json!(["x".repeat(MAP_ITEM_BYTES_MAX - 1)]).to_string();
        assert!(items_of(&long).is_err_and(|reason| reason.contains("at place 0")));
        let heavy = json!(vec!["x".repeat(1_000); 4_000]).to_string();
        assert!(items_of(&heavy).is_err_and(|reason| reason.contains("3145728")));
    }

    proptest! {
        #[test]
        fn each_line_is_its_item(texts in proptest::collection::vec(any::<String>(), 0..20)) {
            let lines = items_of(&json!(texts).to_string()).expect("a list");
            let back: Vec<String> = lines.lines().map(|line| serde_json::from_str(line).expect("an item")).collect();
            prop_assert_eq!(back, texts);
        }
    }
}
