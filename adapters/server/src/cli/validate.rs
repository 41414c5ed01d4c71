//! `punctual validate`.

use std::collections::HashMap;
use std::path::PathBuf;

use punctual_spec::file::{TaskFile, read_file};
use punctual_spec::problem::{Code, Problem, Problems};
use punctual_spec::zones::Zones;
use serde::Serialize;

use super::{Exit, Output};

/// Which files.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Task files in YAML; `-` is the standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    tzdata: String,
    files: Vec<FileReport>,
}

#[derive(Serialize)]
struct FileReport {
    file: String,
    tasks: usize,
    problems: Vec<Problem>,
    problems_left_out: usize,
}

impl Args {
    pub(crate) fn run(self, output: &mut Output) -> Exit {
        let zones = Zones::load();
        let mut names = HashMap::new();
        let files: Vec<FileReport> = self
            .files
            .iter()
            .map(|path| {
                let file = path.display().to_string();
                let result = read_file(path, &zones).and_then(|tasks| unique_over_files(&file, tasks, &mut names));
                let (tasks, problems) = result.map_or_else(|problems| (0, problems), |tasks| (tasks, Problems::default()));
                FileReport { file, tasks, problems: problems.problems, problems_left_out: problems.left_out }
            })
            .collect();
        let ok = files.iter().all(|file| file.problems.is_empty());
        if self.json {
            output.json(&Report { ok, tzdata: zones.version().to_owned(), files });
        } else {
            files.iter().for_each(|file| file.print(output, zones.version()));
        }
        if ok { Exit::Done } else { Exit::Found }
    }
}

impl FileReport {
    fn print(&self, output: &mut Output, tzdata: &str) {
        let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        if self.problems.is_empty() {
            output.line(format_args!("{}: {}, no problems (tzdata {tzdata})", self.file, plural(self.tasks, "task")));
            return;
        }
        self.problems.iter().for_each(|problem| output.line(problem));
        if self.problems_left_out > 0 {
            output.line(format_args!("and {} more", self.problems_left_out));
        }
        output.line(format_args!("{}: {}", self.file, plural(self.problems.len() + self.problems_left_out, "problem")));
    }
}

/// Names are unique over all files: here are the ones so far, with where they are.
fn unique_over_files(file: &str, tasks: TaskFile, names: &mut HashMap<String, (String, u32)>) -> Result<usize, Problems> {
    let mut problems = Problems::default();
    for (index, task) in tasks.tasks.iter().enumerate() {
        if let Some((other, line)) = names.get(&task.spec.name) {
            problems.problems.push(Problem {
                code: Code::DuplicateName,
                file: file.to_owned(),
                line: task.line,
                column: 0,
                field: format!("tasks[{index}].name"),
                message: format!("two tasks are named {:?}: here and in {other}, line {line}", task.spec.name),
                help: Some("give each task a name of its own".to_owned()),
            });
        } else {
            names.insert(task.spec.name.clone(), (file.to_owned(), task.line));
        }
    }
    if problems.is_empty() { Ok(tasks.tasks.len()) } else { Err(problems) }
}
