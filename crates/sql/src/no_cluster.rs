//! Stands for the cluster in builds without the feature `cluster`: there is none.

use datafusion::common::DataFusionError;
use datafusion::prelude::SessionContext;
use heaptide_command::error::Error;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A cluster, of which there is none.
#[derive(Debug)]
pub enum Cluster {}

impl Cluster {
    /// Connects to no cluster.
    ///
    /// Errors: always.
    pub async fn connect(address: &str, _version: &str) -> Result<Cluster, Error> {
        Err(Error::new(format!(
            "{address}: this heaptide-sql was built without clusters; install it with \
             `cargo install --path crates/sql --features cluster` in a checkout of heaptide"
        )))
    }

    /// The engine that has this cluster answer.
    pub async fn context(&self, _version: &str) -> Result<SessionContext, DataFusionError> {
        match *self {}
    }

    /// Waits until it can answer.
    pub async fn ready(&self) -> Result<(), Error> {
        match *self {}
    }
}
