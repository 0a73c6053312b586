//! Options of the commands that look up names: where to find debug files and modules.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use heaptide_analysis::symbols::{DebugFiles, Sources};
use heaptide_command::error::Error;
use heaptide_command::progress::Progress;

use crate::debuginfod::{self, Client};

/// The heading of these options.
pub const DEBUG_FILES: &str = "Names of functions";

/// Where to look for names.
#[derive(Args, Debug, Default)]
pub struct NameOptions {
    /// Also look for debug files and modules in this directory. Can be repeated
    #[arg(long = "symbols", value_name = "DIR", help_heading = DEBUG_FILES)]
    pub directories: Vec<PathBuf>,
    /// Look for modules and debug files below this directory first, such as a container's root
    #[arg(long, value_name = "DIR", help_heading = DEBUG_FILES)]
    pub sysroot: Option<PathBuf>,
    /// Fetch missing debug files from these debuginfod servers [default: $DEBUGINFOD_URLS]
    #[arg(long, value_name = "URLS", num_args = 0..=1, require_equals = true,
        help_heading = DEBUG_FILES)]
    pub debuginfod: Option<Option<String>>,
}

impl NameOptions {
    /// Checks the values.
    ///
    /// Errors: a directory is missing, or no server is known.
    pub fn check(&self) -> Result<(), Error> {
        let named = self.directories.iter().map(|directory| ("--symbols", directory));
        let named = named.chain(self.sysroot.iter().map(|directory| ("--sysroot", directory)));
        for (option, directory) in named {
            if !directory.is_dir() {
                let shown = directory.display();
                return Err(Error::new(format!("{option} {shown}: expected a directory")));
            }
        }
        self.sources(None).map(|_| ())
    }

    /// Returns where to look for names. `progress` shows transfers.
    ///
    /// Errors: no server is known, or there is no directory for fetched files.
    pub fn sources(&self, progress: Option<Rc<Progress>>) -> Result<Sources, Error> {
        let variable = std::env::var(debuginfod::URLS).unwrap_or_default();
        let urls = match &self.debuginfod {
            Some(Some(urls)) => urls,
            _ => &variable,
        };
        let client = Client::new(urls, progress)?;
        if client.is_none() && self.debuginfod.is_some() {
            let what = "--debuginfod: no server is known; use --debuginfod=URL or set";
            return Err(Error::new(format!("{what} {}", debuginfod::URLS)));
        }
        Ok(Sources {
            symbols: self.directories.clone(),
            sysroot: self.sysroot.clone(),
            server: client.map(|client| Box::new(client) as Box<dyn DebugFiles>),
        })
    }
}
