//! Plans that failed once and are kept: one file, one test.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{self, Target};
use crate::plan::Plan;
use crate::problems::{Problem, problems};

/// A plan that failed once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regression {
    /// The property that did not hold, such as `fire.no_duplicate`.
    pub property: String,
    /// The commit and the command that found it.
    pub found_with: String,
    /// The plan, made as small as could be.
    pub plan: Plan,
}

/// Why a regression can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RegressionError {
    /// The file or folder can't be read.
    #[error("{}: it can't be read: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file can't be written.
    #[error("{}: it can't be written: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not JSON, or not of the right shape. The source names line and column.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// It is of the right shape and makes no sense.
    #[error("{}:{}", path.display(), problems.iter().map(|problem| format!("\n  {problem}")).collect::<String>())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong.
        problems: Vec<Problem>,
    },
}

impl Regression {
    /// What its file is called: after property and seed.
    pub fn file_name(&self) -> String {
        format!("{}-{}.json", self.property, self.plan.seed)
    }

    /// The text of its file.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self);
        json.expect("a plan has neither maps with other keys than texts nor numbers that JSON lacks") + "\n"
    }

    /// Reads the text of a file. `path` is for errors, and has the name that the file should have.
    ///
    /// # Errors
    ///
    /// What is wrong with it, where.
    pub fn parse(path: &Path, text: &str) -> Result<Regression, RegressionError> {
        let regression: Regression =
            serde_json::from_str(text).map_err(|source| RegressionError::Json { path: path.to_owned(), source })?;
        let mut found = regression.own_problems(path);
        found.extend(problems(&regression.plan).into_iter().map(|problem| Problem { place: format!("plan.{}", problem.place), ..problem }));
        if found.is_empty() { Ok(regression) } else { Err(RegressionError::Wrong { path: path.to_owned(), problems: found }) }
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file can't be read, or what is wrong with it, where.
    pub fn load(path: &Path) -> Result<Regression, RegressionError> {
        let text = files::read_text(path).map_err(|source| RegressionError::Read { path: path.to_owned(), source })?;
        Regression::parse(path, &text)
    }

    /// Writes it into a folder; answers with the file's path. One of the same property and seed is replaced.
    ///
    /// # Errors
    ///
    /// The file can't be written, or nobody could read it: its plan has problems.
    pub fn save(&self, folder: &Path) -> Result<PathBuf, RegressionError> {
        let path = folder.join(self.file_name());
        let text = self.to_json();
        Regression::parse(&path, &text)?;
        Target::new(&path)
            .and_then(|target| target.write(&text))
            .map_err(|source| RegressionError::Write { path: path.clone(), source })?;
        Ok(path)
    }

    fn own_problems(&self, path: &Path) -> Vec<Problem> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_');
        let mut found = Vec::new();
        if self.property.is_empty() || self.property.starts_with('.') || !self.property.chars().all(is_plain) {
            let message = format!("{:?} is no name of a property: lowercase letters, digits, dots and underscores", self.property);
            found.push(Problem { place: "property".to_owned(), message });
        } else if path.file_name().is_none_or(|name| *name != *self.file_name()) {
            let message = format!("a file with this property and this seed is called {}", self.file_name());
            found.push(Problem { place: "property".to_owned(), message });
        }
        if self.found_with.trim().is_empty() {
            found.push(Problem { place: "found_with".to_owned(), message: "say which commit and command found it".to_owned() });
        }
        found
    }
}

/// The files of all regressions of a folder, by name. What is no `.json` file is passed over.
///
/// # Errors
///
/// The folder can't be read.
pub fn paths(folder: &Path) -> Result<Vec<PathBuf>, RegressionError> {
    let unreadable = |source| RegressionError::Read { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// All regressions of a folder, ordered by file name.
///
/// # Errors
///
/// The first file that can't be read.
pub fn load_all(folder: &Path) -> Result<Vec<Regression>, RegressionError> {
    paths(folder)?.iter().map(|path| Regression::load(path)).collect()
}
