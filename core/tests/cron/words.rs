//! Expressions in words.

use punctual_core::cron::Expression;

#[test]
fn expressions_are_described_in_plain_english() {
    let table = [
        ("30 2 * * 1-5", "at 02:30 on Monday to Friday"),
        ("30 2 * * *", "at 02:30 every day"),
        ("0 0,12 * * *", "at 00:00 and 12:00 every day"),
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/25 * * * *", "at minutes 0, 25 and 50 of every hour"),
        ("30,45 */5 * * *", "at minutes 30 and 45 of hours 0, 5, 10, 15 and 20 every day"),
        ("0 * * * *", "at minute 0 of every hour"),
        ("5,35 * * * SAT,SUN", "at minutes 5 and 35 of every hour on Saturday and Sunday"),
        ("*/20 9-17 * * MON-FRI", "every 20 minutes of hours 9 to 17 on Monday to Friday"),
        ("30 */2 * * *", "at minute 30 of every 2nd hour every day"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("0 */5 * * * *", "every 5 minutes"),
        ("15 50/1 11 * * *", "at second 15 of minutes 50 to 59 of hour 11 every day"),
        ("*/10 5 * * * *", "every 10 seconds of minute 5 of every hour"),
        ("15,45 * * * * *", "at seconds 15 and 45 of every minute"),
        ("* 9-17 * * *", "every minute of hours 9 to 17 every day"),
        ("15 30 2 * * *", "at 02:30:15 every day"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 L-3 * *", "at 00:00 on the 3rd day before the last day of the month"),
        ("0 9 15W * *", "at 09:00 on the working day (Monday to Friday) nearest to day 15 of the month"),
        ("0 10 * * MON#1,MON#3", "at 10:00 on the first Monday of the month and the third Monday of the month"),
        ("0 0 * * FRIL", "at 00:00 on the last Friday of the month"),
        ("0 0 1 1,7 *", "at 00:00 on day 1 of the month in January and July"),
        ("0 0 0 1 1 ? 2028", "at 00:00 on day 1 of the month in January in 2028"),
        (
            "0 0 */2 * MON",
            "at 00:00 on days 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29 and 31 of the month where that is Monday",
        ),
        ("0 0 13 * FRI", "at 00:00 on day 13 of the month OR on Friday (both day fields are restricted: EITHER is enough)"),
        ("0 4 1 * 1-5", "at 04:00 on day 1 of the month OR on Monday to Friday (both day fields are restricted: EITHER is enough)"),
        ("0 22-2 * * *", "at 00:00, 01:00, 02:00, 22:00 and 23:00 every day"),
        ("@hourly", "at minute 0 of every hour"),
        ("@yearly", "at 00:00 on day 1 of the month in January"),
    ];
    for (text, words) in table {
        assert_eq!(Expression::parse(text, None).unwrap().describe(), words, "{text}");
    }
}
