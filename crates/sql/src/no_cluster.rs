//! Replaces the cluster in builds without the feature `cluster`.

use std::path::Path;

use datafusion::common::DataFusionError;
use datafusion::prelude::SessionContext;
use heaptide_command::error::Error;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether statements can name files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatementFiles {
    /// They cannot.
    Refused,
}

/// A cluster, which cannot exist in this build.
#[derive(Debug)]
pub enum Cluster {}

impl Cluster {
    /// Fails to connect to a cluster.
    ///
    /// Errors: always.
    pub async fn connect_with(address: &str, _token_file: Option<&Path>) -> Result<Cluster, Error> {
        Err(Error::new(format!(
            "{address}: this heaptide-sql was built without clusters; install it with \
             `cargo install --path crates/sql --features cluster` in a checkout of heaptide"
        )))
    }

    /// Returns the engine that runs queries on this cluster.
    pub async fn context(&self, _version: &str) -> Result<SessionContext, DataFusionError> {
        match *self {}
    }

    /// Waits until the cluster can run queries.
    pub async fn ready(&self) -> Result<StatementFiles, Error> {
        match *self {}
    }

    /// Returns the error if the cluster is lost.
    pub async fn find_loss(&self) -> Option<Error> {
        match *self {}
    }
}
