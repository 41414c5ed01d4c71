//! Which plan is run, and with which guards switched off.

use std::path::Path;

use punctual_sim::bank::{BANK, Flaw, Row};
use punctual_sim::files;
use punctual_sim::plan::Plan;
use punctual_sim::regressions::Regression;
use punctual_sim::swarm::{Profile, swarm};
use punctual_sim::trial::{Trial, World};

/// Which plans to draw.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Drawing {
    /// Which plans to draw: default, calm, lost-tail, database-clock, flood or rehearsal.
    #[arg(long, default_value = "default", value_parser = profile)]
    pub(super) profile: Profile,
    /// Guards that are switched off, separated by commas: a planted bug. `cargo sim bank` lists them.
    #[arg(long, value_name = "GUARDS", value_delimiter = ',', value_parser = guard)]
    without: Vec<Flaw>,
    /// The plans of this guard's row of the bank, without the guard.
    #[arg(long, value_name = "GUARD", conflicts_with = "profile", value_parser = row)]
    bank: Option<&'static Row>,
}

impl From<Profile> for Drawing {
    fn from(profile: Profile) -> Drawing {
        Drawing { profile, without: Vec::new(), bank: None }
    }
}

impl Drawing {
    pub(super) fn plan(&self, seed: u64) -> Plan {
        match self.bank {
            Some(row) => row.plan(seed),
            None => swarm(seed, &self.profile.swarm()),
        }
    }

    /// All that is switched off.
    pub(super) fn flaws(&self) -> Vec<Flaw> {
        let mut flaws = self.bank.map(Row::flaws).unwrap_or_default();
        flaws.extend(&self.without);
        flaws.sort();
        flaws.dedup();
        flaws
    }

    /// Carries a plan out, and judges it.
    pub(super) fn trial(&self, world: World, plan: &Plan) -> Trial {
        Trial::of(world, plan, &self.flaws())
    }

    /// The command that runs this seed or file again.
    pub(super) fn command(&self, command: &str, what: &str) -> String {
        let mut text = format!("cargo sim {command} {what}");
        if let Some(row) = self.bank {
            text.push_str(&format!(" --bank {}", row.guard.name()));
        } else if self.profile != Profile::Default {
            text.push_str(&format!(" --profile {}", self.profile.name()));
        }
        if !self.without.is_empty() {
            text.push_str(&format!(" --without {}", names(&self.without)));
        }
        text
    }

    /// The command that runs this file again: its plan is drawn already.
    pub(super) fn command_of_file(&self, command: &str, file: &str) -> String {
        match self.flaws() {
            flaws if flaws.is_empty() => format!("cargo sim {command} {file}"),
            flaws => format!("cargo sim {command} {file} --without {}", names(&flaws)),
        }
    }
}

fn names(flaws: &[Flaw]) -> String {
    flaws.iter().map(|flaw| flaw.name()).collect::<Vec<_>>().join(",")
}

fn profile(name: &str) -> Result<Profile, String> {
    let names = || Profile::ALL.map(Profile::name).join(", ");
    Profile::from_name(name).ok_or_else(|| format!("there is no profile `{name}`; use one of {}", names()))
}

fn guard(name: &str) -> Result<Flaw, String> {
    let names = || Flaw::all().map(Flaw::name).collect::<Vec<_>>().join(", ");
    let found = Flaw::all().find(|flaw| flaw.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("there is no guard `{name}`; the guards are {}", names()))
}

fn row(name: &str) -> Result<&'static Row, String> {
    let guard = guard(name)?;
    BANK.iter().find(|row| row.guard == guard).ok_or_else(|| format!("the bank has no row for {}", guard.name()))
}

/// A plan as it was asked for.
pub(super) struct Asked {
    pub(super) plan: Plan,
    /// How the regression that it comes from was found.
    pub(super) found_with: Option<String>,
}

/// A plan as it was asked for: a seed's, or that of a file with a regression or a bare plan.
pub(super) fn plan_of(what: &str, drawing: &Drawing) -> Result<Asked, String> {
    if let Ok(seed) = what.parse() {
        return Ok(Asked { plan: drawing.plan(seed), found_with: None });
    }
    let path = Path::new(what);
    if let Err(error) = files::must_be_ordinary(path) {
        return Err(format!("{what} is neither a seed, 0 to {}, nor the file of a plan: {error}", u64::MAX));
    }
    let text = files::read_text(path).map_err(|error| format!("{what}: {error}"))?;
    // A bare plan has no property; all else is to be a regression.
    let is_bare = serde_json::from_str::<serde_json::Value>(&text).is_ok_and(|json| json.get("property").is_none());
    if !is_bare {
        let regression = Regression::parse(path, &text).map_err(|error| error.to_string())?;
        return Ok(Asked { plan: regression.plan, found_with: Some(regression.found_with) });
    }
    let plan: Plan = serde_json::from_str(&text).map_err(|error| format!("{what}: {error}"))?;
    match punctual_sim::problems::problems(&plan).first() {
        Some(problem) => Err(format!("{what}: {}: {}", problem.place, problem.message)),
        None => Ok(Asked { plan, found_with: None }),
    }
}
