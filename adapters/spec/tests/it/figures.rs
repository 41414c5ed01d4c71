//! How long things take. Run with `cargo test --release -p punctual-spec -- --ignored --nocapture`.

use std::time::Instant;

use punctual_spec::decode;
use punctual_spec::zones::Zones;

#[test]
#[ignore = "measures; needs a release build and a quiet machine"]
fn figures() {
    let mut text = "defaults:\n  retry: {max_attempts: 3}\ntasks:\n".to_owned();
    for task in 0..100_000 {
        let (minute, hour) = (task % 60, task / 60 % 24);
        text.push_str(&format!(
            "  - name: task-{task}\n    trigger: {{cron: \"{minute} {hour} * * *\", timezone: Europe/Berlin}}\n    command: [echo, \"{task}\"]\n    timeout: 5m\n"
        ));
    }
    let zones = Zones::bundled();
    let start = Instant::now();
    let file = punctual_spec::file::read_text("tasks.yaml", &text, &zones).unwrap();
    println!("100 000 tasks, {} MiB: validated in {:?}", text.len() >> 20, start.elapsed());
    let documents: Vec<String> = file.tasks.iter().map(|task| task.spec.to_json()).collect();
    let start = Instant::now();
    for document in &documents {
        std::hint::black_box(decode(document, &zones).unwrap());
    }
    println!("decoding: {:?} a document of {} bytes", start.elapsed() / 100_000, documents[0].len());
    let start = Instant::now();
    drop(Zones::load());
    println!("zones loaded in {:?}", start.elapsed());
}
