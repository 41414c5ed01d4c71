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

    pub(crate) fn optional_bytes(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self.null(),
        }
    }

    pub(crate) fn text(&mut self, text: Option<&str>) -> &mut Self {
        self.optional_bytes(text.map(str::as_bytes))
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

/// The most rows in a statement of [`Many`]: servers take a statement of many SELECTs apart recursively.
pub(crate) const JOINED_ROWS_MAX: usize = 250;

/// What a value of the rows of [`Many`] is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// The row is the one that has it in this column.
    Match(&'static str),
    /// The column gets it.
    Set(&'static str),
    /// Nothing.
    Ignore,
}

/// Updates or deletes many rows of a table, each by its own values, in one statement: a join with a table of literals, by the primary key. A row
/// that does not match is not touched, and the server says how many did. These servers may take a list (`IN`) as a reason to read, and
/// lock, the whole table, whatever index is named; such a join they don't. Values that are the same in all rows are written once: reading
/// literals is half of what such a statement costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Many<'a> {
    /// The table.
    pub(crate) table: &'a str,
    /// What the values of a row are for, in their order. The whole primary key is among them.
    pub(crate) uses: &'a [Use],
}

impl Many<'_> {
    /// The statements that update these rows, each with how many it is to find. No row comes twice.
    pub(crate) fn updates<T>(&self, rows: impl IntoIterator<Item = T>, put: impl FnMut(&mut Values<'_>, T)) -> Vec<(String, u64)> {
        self.statements(rows, put, |sources, from| {
            let mut sql = format!("UPDATE {from} SET ");
            let mut comma = "";
            for (source, column) in sources.iter().zip(self.uses) {
                if let Use::Set(name) = column {
                    // Writing to a String can't fail.
                    let _ = write!(sql, "{comma}t.{name}={source}");
                    comma = ",";
                }
            }
            sql
        })
    }

    /// The statements that delete these rows.
    pub(crate) fn deletes<T>(&self, rows: impl IntoIterator<Item = T>, put: impl FnMut(&mut Values<'_>, T)) -> Vec<String> {
        self.statements(rows, put, |_, from| format!("DELETE t FROM {from}")).into_iter().map(|(statement, _)| statement).collect()
    }

    fn statements<T>(
        &self,
        rows: impl IntoIterator<Item = T>,
        mut put: impl FnMut(&mut Values<'_>, T),
        begin: impl Fn(&[String], &str) -> String,
    ) -> Vec<(String, u64)> {
        let mut statements = Vec::new();
        let mut chunk = Cells::new(self.uses.len());
        for row in rows {
            put(&mut Values { sql: &mut chunk.text, is_first: true }, row);
            chunk.end_row();
            if chunk.rows() == JOINED_ROWS_MAX || chunk.text.len() >= STATEMENT_BYTES_MAX {
                statements.push((self.statement(&chunk, &begin), chunk.rows() as u64));
                chunk.clear();
            }
        }
        if chunk.rows() > 0 {
            statements.push((self.statement(&chunk, &begin), chunk.rows() as u64));
        }
        statements
    }

    fn statement(&self, cells: &Cells, begin: impl Fn(&[String], &str) -> String) -> String {
        let mut varying: Vec<usize> = Vec::new();
        let sources: Vec<String> = (0..self.uses.len())
            .map(|column| match (cells.constant(column), varying.iter().find(|like| cells.are_alike(**like, column))) {
                _ if matches!(self.uses[column], Use::Ignore) => String::new(),
                (Some(value), _) => value.to_owned(),
                (None, Some(like)) => format!("v.c{like}"),
                (None, None) => {
                    varying.push(column);
                    format!("v.c{column}")
                }
            })
            .collect();
        let mut from = String::with_capacity(cells.text.len() + 1_024);
        if !varying.is_empty() {
            cells.put_table(&mut from, &varying);
            from.push_str(" v STRAIGHT_JOIN ");
        }
        let _ = write!(from, "{} t FORCE INDEX (PRIMARY)", self.table);
        let mut sql = begin(&sources, &from);
        sql.push_str(" WHERE TRUE");
        for (source, column) in sources.iter().zip(self.uses) {
            if let Use::Match(name) = column {
                let _ = write!(sql, " AND t.{name}={source}");
            }
        }
        sql
    }
}

/// The literals of some rows.
struct Cells {
    columns: usize,
    text: String,
    /// Where each begins and ends.
    places: Vec<std::ops::Range<usize>>,
    row_begins: usize,
}

impl Cells {
    fn new(columns: usize) -> Self {
        Cells { columns, text: String::new(), places: Vec::new(), row_begins: 0 }
    }

    fn rows(&self) -> usize {
        self.places.len() / self.columns
    }

    fn clear(&mut self) {
        self.text.clear();
        self.places.clear();
        self.row_begins = 0;
    }

    /// The row's values were written, with commas between them: no literal has one.
    fn end_row(&mut self) {
        let mut begins = self.row_begins;
        for value in self.text[begins..].split(',') {
            self.places.push(begins..begins + value.len());
            begins += value.len() + 1;
        }
        self.row_begins = self.text.len();
        assert_eq!(self.places.len() % self.columns, 0, "a row has a value for each use");
    }

    fn column(&self, column: usize) -> impl Iterator<Item = &str> {
        self.places.iter().skip(column).step_by(self.columns).map(|place| &self.text[place.clone()])
    }

    fn constant(&self, column: usize) -> Option<&str> {
        let mut values = self.column(column);
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    }

    fn are_alike(&self, one: usize, other: usize) -> bool {
        self.column(one).eq(self.column(other))
    }

    /// A derived table of some columns.
    fn put_table(&self, sql: &mut String, columns: &[usize]) {
        for (index, row) in self.places.chunks(self.columns).enumerate() {
            sql.push_str(if index == 0 { "(SELECT " } else { " UNION ALL SELECT " });
            for (position, column) in columns.iter().enumerate() {
                if position > 0 {
                    sql.push(',');
                }
                sql.push_str(&self.text[row[*column].clone()]);
                if index == 0 {
                    let _ = write!(sql, " AS c{column}");
                }
            }
        }
        sql.push(')');
    }
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
    fn an_update_of_many_rows_writes_once_what_is_the_same() {
        let uses = [Use::Match("a"), Use::Match("b"), Use::Set("c"), Use::Set("d"), Use::Ignore];
        let many = Many { table: "rows", uses: &uses };
        let put = |values: &mut Values<'_>, (a, d): (u64, Option<u64>)| {
            values.unsigned(a).text(Some("x")).unsigned(a).optional(d).unsigned(a).done();
        };
        let two = many.updates([(1, Some(2)), (3, None)], put);
        let expected = "UPDATE (SELECT 1 AS c0,2 AS c3 UNION ALL SELECT 3,NULL) v STRAIGHT_JOIN rows t FORCE INDEX (PRIMARY) \
                        SET t.c=v.c0,t.d=v.c3 WHERE TRUE AND t.a=v.c0 AND t.b=x'78'";
        assert_eq!(two, [(expected.to_owned(), 2)]);
        let one = many.updates([(1, None)], put);
        let expected = "UPDATE rows t FORCE INDEX (PRIMARY) SET t.c=1,t.d=NULL WHERE TRUE AND t.a=1 AND t.b=x'78'";
        assert_eq!(one, [(expected.to_owned(), 1)]);
        let expected = "DELETE t FROM (SELECT 1 AS c0 UNION ALL SELECT 3) v STRAIGHT_JOIN rows t FORCE INDEX (PRIMARY) \
                        WHERE TRUE AND t.a=v.c0 AND t.b=x'78'";
        let keys = Many { table: "rows", uses: &uses[..2] };
        assert_eq!(keys.deletes([1, 3], |values, a: u64| values.unsigned(a).text(Some("x")).done()), [expected]);
        let counts: Vec<_> = many.updates((0..600).map(|a| (a, Some(a))), put).into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, [250, 250, 100]);
        assert!(many.updates([], put).is_empty());
    }

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
