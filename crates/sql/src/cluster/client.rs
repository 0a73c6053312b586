//! The client: checks that a cluster can run queries, and sends them.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballista::prelude::SessionContextExt;
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{ExecuteQueryParams, KeyValuePair};
use ballista_core::version::insert_version_header;
use datafusion::common::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use heaptide_command::error::Error;
use tonic::Request;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::{Channel, Endpoint};

use super::server::MESSAGE_BYTES_MAX;
use super::tables::Tables;
use super::version::{self, Client, KEY};

/// The time limit for connecting to the scheduler.
const CONNECT: Duration = Duration::from_secs(5);
/// How long to wait for executors, which may be started together with the first query.
const REGISTER: Duration = Duration::from_secs(10);
/// The interval at which registration is polled.
const LOOK: Duration = Duration::from_millis(100);
/// The number of partitions of a query, which all executors together can process at a time: enough
/// for some machines, and few enough for small queries.
const PARTS: usize = 16;

/// A cluster that runs queries.
#[derive(Debug)]
pub struct Cluster {
    /// The address of the scheduler.
    address: String,
    channel: Channel,
}

impl Cluster {
    /// Connects to the scheduler at `HOST:PORT`, as a client of this version.
    ///
    /// Errors: it does not respond, or has another version.
    pub async fn connect(address: &str, version: &str) -> Result<Cluster, Error> {
        let refused = |what: &dyn std::fmt::Display| Error::new(format!("{address}: {what}"));
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.map_err(|error| refused(&cause(&error)))?;
        let channel = endpoint.connect_timeout(CONNECT).connect().await.map_err(|error| {
            let what = "cannot connect to a scheduler";
            let advice = "`heaptide-sql scheduler` starts one";
            refused(&format!("{what}: {}; {advice}", cause(&error)))
        })?;
        // The scheduler checks the version before the query, which is empty here.
        let setting = KeyValuePair { key: KEY.to_owned(), value: Some(version.to_owned()) };
        let mut query = Request::new(ExecuteQueryParams {
            session_id: "version".to_owned(),
            settings: vec![setting],
            operation_id: String::new(),
            query: Some(Query::LogicalPlan(Vec::new())),
        });
        query.set_timeout(CONNECT);
        insert_version_header(query.metadata_mut());
        let mut scheduler = SchedulerGrpcClient::new(channel.clone());
        match scheduler.execute_query(query).await {
            Ok(_) => Ok(Cluster { address: address.to_owned(), channel }),
            Err(status) => Err(match version::refusing(status.message()) {
                Some(theirs) => refused(&format!(
                    "the scheduler is heaptide {theirs}, this is {version}; \
                     use the same version on all machines"
                )),
                None => refused(&format!("not a heaptide scheduler: {}", status.message())),
            }),
        }
    }

    /// Returns the engine that runs queries on this cluster, without our tables and functions.
    ///
    /// Errors: those of the engine.
    pub async fn context(&self, version: &str) -> Result<SessionContext, DataFusionError> {
        let mut config = SessionConfig::new_with_ballista()
            .with_information_schema(true)
            .with_target_partitions(PARTS)
            .with_ballista_logical_extension_codec(Arc::new(Tables::default()))
            .with_ballista_grpc_client_max_message_size(MESSAGE_BYTES_MAX as usize)
            .with_option_extension(Client::new(version));
        config.options_mut().sql_parser.collect_spans = true;
        let state = SessionStateBuilder::new().with_default_features().with_config(config).build();
        SessionContext::remote_with_state(&format!("df://{}", self.address), state).await
    }

    /// Waits until an executor has registered.
    ///
    /// Errors: none registers, or the scheduler no longer responds.
    pub async fn ready(&self) -> Result<(), Error> {
        let (address, deadline) = (&self.address, Instant::now() + REGISTER);
        loop {
            let failed = |error: tonic::transport::Error| {
                Error::new(format!(
                    "{address}: the scheduler no longer responds: {}",
                    cause(&error)
                ))
            };
            let mut channel = self.channel.clone();
            poll_fn(|context| channel.poll_ready(context)).await.map_err(failed)?;
            let mut request = http::Request::new(Body::empty());
            *request.uri_mut() = http::Uri::from_static("/readyz");
            *request.version_mut() = http::Version::HTTP_2;
            if channel.call(request).await.map_err(failed)?.status().is_success() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let seconds = REGISTER.as_secs();
                return Err(Error::new(format!(
                    "{address}: no executor has registered within {seconds} s; \
                     `heaptide-sql executor --scheduler {address}` starts one"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Returns the first cause of an error, which its own text omits.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut first = error;
    while let Some(source) = first.source() {
        first = source;
    }
    first.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::scheduler::serve;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_scheduler_of_another_version_is_rejected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = tokio::spawn(serve(listener, address, 20, "0.0.1"));
        let address = address.to_string();
        let refused = Cluster::connect(&address, "0.2.0").await.expect_err("another version");
        assert_eq!(
            refused.to_string(),
            format!(
                "{address}: the scheduler is heaptide 0.0.1, this is 0.2.0; \
                 use the same version on all machines"
            )
        );
        // A query without a prior check is rejected, too.
        let same = Cluster::connect(&address, "0.0.1").await.expect("the same version");
        let context = same.context("0.2.0").await.expect("an engine");
        let query = async { context.sql("SELECT 1 + random()").await?.collect().await };
        let refused = query.await.expect_err("another version").to_string();
        assert_eq!(version::refusing(&refused), Some("0.0.1"), "{refused}");
        server.abort();
    }
}
