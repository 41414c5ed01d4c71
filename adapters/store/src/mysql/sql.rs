//! SQL text: values as literals, rows in statements of bounded size.
//!
//! Batches go over the text protocol: a statement for five hundred rows has nine thousand values, and preparing one for each number of rows
//! that there may be would flood the server. Text and bytes are written as hexadecimal literals, which mean the same in every SQL mode and
//! can't end early.

use std::fmt::Write;

use punctual_core::time::Timestamp;

/// A statement ends with the row that reaches this, far below the packet that a server takes by default (16 MiB or more).
const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// The most rows in a statement.
pub(crate) const STATEMENT_ROWS_MAX: usize = 1_000;

/// One row of values, in parentheses.
pub(crate) struct Values<'a> {
    sql: &'a mut String,
    is_first: bool,
}

impl Values<'_> {
    fn next(&mut self) -> &mut String {
        if !std::mem::take(&mut self.is_first) {
            self.sql.push(',');
        }
        self.sql
    }

    pub(crate) fn unsigned(&mut self, number: impl Into<u64>) -> &mut Self {
        put_number(self.next(), number.into());
        self
    }

    pub(crate) fn signed(&mut self, number: i64) -> &mut Self {
        let sql = self.next();
        if number < 0 {
            sql.push('-');
        }
        put_number(sql, number.unsigned_abs());
        self
    }

    pub(crate) fn at(&mut self, at: Option<Timestamp>) -> &mut Self {
        match at {
            Some(at) => self.signed(at.0),
            None => self.null(),
        }
    }

    pub(crate) fn optional(&mut self, number: Option<impl Into<u64>>) -> &mut Self {
        match number {
            Some(number) => self.unsigned(number),
            None => self.null(),
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        put_bytes(self.next(), bytes);
        self
    }

    pub(crate) fn text(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.bytes(text.as_bytes()),
            None => self.null(),
        }
    }

    /// An expression, as it is.
    pub(crate) fn expression(&mut self, expression: &str) -> &mut Self {
        self.next().push_str(expression);
        self
    }

    /// Ends the row.
    pub(crate) fn done(&mut self) {}

    fn null(&mut self) -> &mut Self {
        self.next().push_str("NULL");
        self
    }
}

fn put_number(sql: &mut String, number: u64) {
    // Writing to a String can't fail.
    let _ = write!(sql, "{number}");
}

fn put_bytes(sql: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    sql.reserve(bytes.len() * 2 + 3);
    sql.push_str("x'");
    for byte in bytes {
        sql.push(char::from(DIGITS[usize::from(byte >> 4)]));
        sql.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    sql.push('\'');
}

/// A literal.
pub(crate) fn literal(bytes: &[u8]) -> String {
    let mut sql = String::new();
    put_bytes(&mut sql, bytes);
    sql
}

/// The statements that have all rows: `head`, the rows as `put` writes them, `tail`.
pub(crate) fn statements<T>(
    head: &str,
    rows: impl IntoIterator<Item = T>,
    tail: &str,
    mut put: impl FnMut(&mut Values<'_>, T),
) -> Vec<String> {
    let mut statements = Vec::new();
    let (mut sql, mut count) = (String::new(), 0);
    for row in rows {
        sql.push_str(if count == 0 { head } else { "," });
        sql.push('(');
        put(&mut Values { sql: &mut sql, is_first: true }, row);
        sql.push(')');
        count += 1;
        if count == STATEMENT_ROWS_MAX || sql.len() >= STATEMENT_BYTES_MAX {
            sql.push_str(tail);
            statements.push(std::mem::take(&mut sql));
            count = 0;
        }
    }
    if count > 0 {
        sql.push_str(tail);
        statements.push(sql);
    }
    statements
}

/// A list of numbers, in parentheses. An empty one would be no SQL.
pub(crate) fn list(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut sql = String::from("(");
    for number in numbers {
        if sql.len() > 1 {
            sql.push(',');
        }
        put_number(&mut sql, number);
    }
    sql.push(')');
    sql
}

/// A list of rows, in parentheses.
pub(crate) fn tuples<T>(rows: impl IntoIterator<Item = T>, mut put: impl FnMut(&mut Values<'_>, T)) -> String {
    let mut sql = String::from("(");
    for row in rows {
        sql.push_str(if sql.len() > 1 { ",(" } else { "(" });
        put(&mut Values { sql: &mut sql, is_first: true }, row);
        sql.push(')');
    }
    sql.push(')');
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_literals_and_statements_are_bounded() {
        let put = |values: &mut Values<'_>, number: i64| {
            values.signed(number).text(Some("a'\0é")).text(None).bytes(&[]).unsigned(u64::MAX);
        };
        let one = statements("INSERT INTO t VALUES ", [-1], " AS x", put);
        assert_eq!(one, ["INSERT INTO t VALUES (-1,x'612700c3a9',NULL,x'',18446744073709551615) AS x"]);
        assert_eq!(statements("INSERT", 0..1_001, "", put).len(), 2);
        assert_eq!(statements("INSERT", [0; 3], "", |values, _| values.bytes(&vec![0; STATEMENT_BYTES_MAX]).done()).len(), 3);
        assert!(statements("INSERT", [0; 0], "", put).is_empty());
        assert_eq!(list([1, 2]), "(1,2)");
        assert_eq!(tuples([1, 2], put).matches("x'").count(), 4);
    }
}
