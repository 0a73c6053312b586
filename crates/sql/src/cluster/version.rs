//! The version of this program as a setting of each query: the scheduler and the executors reject
//! queries of other versions, whose functions and tables may differ.

use std::any::Any;

use datafusion::common::DataFusionError;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::prelude::SessionConfig;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The setting.
pub const KEY: &str = "heaptide.version";
/// Its name after the prefix of the extension.
const NAME: &str = "version";

/// The prefix of the error; the version of the rejecting program and a space follow.
const REFUSED: &str = "refused by heaptide ";

/// The version of the client that sent a query; empty if it did not send one.
#[derive(Clone, Debug, Default)]
pub struct Client {
    version: String,
}

impl Client {
    /// Creates a client of this version.
    pub fn new(version: &str) -> Client {
        Client { version: version.to_owned() }
    }
}

impl ConfigExtension for Client {
    const PREFIX: &'static str = "heaptide";
}

impl ExtensionOptions for Client {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), DataFusionError> {
        if key != NAME {
            return Err(DataFusionError::Configuration(format!("unknown setting heaptide.{key}")));
        }
        value.clone_into(&mut self.version);
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let value = Some(self.version.clone());
        vec![ConfigEntry { key: KEY.to_owned(), value, description: "version of the client" }]
    }
}

/// Checks that the client of a query has the version `own`.
///
/// Errors: it does not.
pub fn check(config: &SessionConfig, own: &str) -> Result<(), DataFusionError> {
    let client = config.options().extensions.get::<Client>();
    let theirs = client.map_or("", |client| &client.version);
    if theirs == own {
        return Ok(());
    }
    let what = format!("{REFUSED}{own} because the client is {theirs}");
    Err(DataFusionError::Configuration(what))
}

/// Returns the version of the part of the cluster that rejected a query, from the text of its
/// error.
#[cfg(test)]
pub fn refusing(error: &str) -> Option<&str> {
    error.split_once(REFUSED)?.1.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_sent_as_a_setting_and_parsed_from_the_rejection() {
        let config = SessionConfig::new().with_option_extension(Client::new("1.2.3"));
        let sent = config.options().entries().into_iter().find(|entry| entry.key == KEY);
        assert_eq!(sent.and_then(|entry| entry.value), Some("1.2.3".to_owned()));
        let mut received = SessionConfig::new().with_option_extension(Client::default());
        assert!(check(&received, "1.2.3").is_err());
        received.options_mut().set(KEY, "1.2.3").expect("a known key");
        assert!(check(&received, "1.2.3").is_ok());
        let refused = check(&received, "1.3.0").expect_err("another version").to_string();
        assert_eq!(refusing(&refused), Some("1.3.0"));
    }
}
