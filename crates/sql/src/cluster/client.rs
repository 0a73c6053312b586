//! The client: checks that a cluster can run queries, and sends them.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballista::prelude::SessionContextExt;
use ballista_core::extension::SessionConfigExt;
use datafusion::common::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use heaptide_command::error::Error;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::server::{ALLOWED, FILES_HEADER, MESSAGE_BYTES_MAX, READY_PATH, VERSION_HEADER};
use super::tables::Tables;
use super::token::Token;
use super::version::{Client, VERSION};

/// The time limit for connecting to the scheduler.
const CONNECT: Duration = Duration::from_secs(5);
/// How long to wait for executors, which may be started together with the first query.
const REGISTER: Duration = Duration::from_secs(10);
/// The interval at which registration is polled.
const LOOK: Duration = Duration::from_millis(100);
/// The number of partitions of a query, which all executors together can process at a time: enough
/// for some machines, and few enough for small queries.
const PARTS: usize = 16;

/// Whether statements can name files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatementFiles {
    /// They can, below the directories of `--allow-files`.
    Allowed,
    /// They cannot.
    Refused,
}

/// A cluster that runs queries.
#[derive(Debug)]
pub struct Cluster {
    /// The address of the scheduler.
    address: String,
    channel: Channel,
    token: Token,
}

impl Cluster {
    /// Connects to the scheduler at `HOST:PORT` with the token in this file, or that of the default
    /// file.
    ///
    /// Errors: there is no token; those of [`Cluster::connect`].
    pub async fn connect_with(address: &str, token_file: Option<&Path>) -> Result<Cluster, Error> {
        Cluster::connect(address, &Token::find(token_file)?, VERSION).await
    }

    /// Connects to the scheduler at `HOST:PORT`, as a client of this version.
    ///
    /// Errors: it does not respond, or has another token or version.
    pub async fn connect(address: &str, token: &Token, version: &str) -> Result<Cluster, Error> {
        let refused = |what: &dyn std::fmt::Display| Error::new(format!("{address}: {what}"));
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.and_then(|endpoint| token.add_to(endpoint));
        let endpoint = endpoint.map_err(|error| refused(&cause(&error)))?;
        let channel = endpoint.connect_timeout(CONNECT).connect().await.map_err(|error| {
            let what = "cannot connect to a scheduler";
            let advice = "`heaptide-sql scheduler` starts one";
            refused(&format!("{what}: {}; {advice}", cause(&error)))
        })?;
        let cluster = Cluster { address: address.to_owned(), channel, token: token.clone() };
        cluster.check(version).await?;
        Ok(cluster)
    }

    /// Checks that the scheduler accepts the token and has this version.
    async fn check(&self, version: &str) -> Result<(), Error> {
        let refused = |what: String| Error::new(format!("{}: {what}", self.address));
        let not_one = |why: &str| {
            let advice = "name the address that `heaptide-sql scheduler` prints";
            refused(format!("not a heaptide scheduler: {why}; {advice}"))
        };
        let asked = tokio::time::timeout(CONNECT, self.ask()).await;
        let response = asked.map_err(|_| not_one("it does not answer"))?;
        let response = response.map_err(|error| not_one(&cause(&error)))?;
        let code = Status::from_header_map(response.headers()).map(|status| status.code());
        if code == Some(Code::Unauthenticated) {
            let origin = self.token.origin();
            return Err(refused(format!(
                "the scheduler has another token than {origin}; copy its token to this machine"
            )));
        }
        match response.headers().get(VERSION_HEADER).map(|theirs| theirs.to_str()) {
            Some(Ok(theirs)) if theirs == version => Ok(()),
            Some(Ok(theirs)) => Err(refused(format!(
                "the scheduler is heaptide {theirs}, this is {version}; \
                 use the same version on all machines"
            ))),
            Some(Err(_)) | None if code.is_some() => Err(not_one("it may be an executor")),
            Some(Err(_)) | None => Err(not_one("it has no version")),
        }
    }

    /// Asks the scheduler whether it has executors.
    ///
    /// Errors: it does not respond.
    async fn ask(&self) -> Result<http::Response<Body>, tonic::transport::Error> {
        let mut channel = self.channel.clone();
        poll_fn(|context| channel.poll_ready(context)).await?;
        let mut request = http::Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static(READY_PATH);
        *request.version_mut() = http::Version::HTTP_2;
        channel.call(request).await
    }

    /// Returns the error if the scheduler no longer responds, after a query has failed.
    pub async fn find_loss(&self) -> Option<Error> {
        let asked = tokio::time::timeout(CONNECT, self.ask()).await;
        let why = match asked {
            Ok(Ok(_)) => return None,
            Ok(Err(error)) => cause(&error),
            Err(_) => format!("no answer within {} s", CONNECT.as_secs()),
        };
        Some(self.lost(&why))
    }

    fn lost(&self, why: &str) -> Error {
        let address = &self.address;
        Error::new(format!("{address}: the scheduler no longer responds: {why}"))
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
            .with_ballista_override_create_grpc_client_endpoint(self.token.to_endpoints())
            .with_option_extension(Client::new(version));
        config.options_mut().sql_parser.collect_spans = true;
        let state = SessionStateBuilder::new().with_default_features().with_config(config).build();
        SessionContext::remote_with_state(&format!("df://{}", self.address), state).await
    }

    /// Waits until an executor has registered.
    ///
    /// Errors: none registers, or the scheduler no longer responds.
    pub async fn ready(&self) -> Result<StatementFiles, Error> {
        let (address, deadline) = (&self.address, Instant::now() + REGISTER);
        loop {
            let response = self.ask().await.map_err(|error| self.lost(&cause(&error)))?;
            if response.status().is_success() {
                let files = response.headers().get(FILES_HEADER);
                let is_allowed = files.is_some_and(|value| value == ALLOWED);
                return Ok(if is_allowed {
                    StatementFiles::Allowed
                } else {
                    StatementFiles::Refused
                });
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
    use crate::cluster::files::Files;
    use crate::cluster::scheduler::SchedulerService;
    use crate::cluster::version;
    use crate::explain::explain;
    use ballista_core::serde::protobuf::PollWorkParams;
    use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
    use heaptide_fixtures::Scratch;
    use std::net::SocketAddr;
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    fn token(place: &Scratch, name: &str) -> Token {
        Token::find_or_create(Some(&place.join(name))).expect("a token")
    }

    /// Starts a scheduler of version 0.0.1.
    async fn scheduler(token: Token) -> (SocketAddr, JoinHandle<Result<(), Error>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let files = Files::new(&[]).expect("no directories");
        let service = SchedulerService { token, files, timeout_seconds: 20, version: "0.0.1" };
        (address, tokio::spawn(service.serve(listener, address)))
    }

    #[tokio::test]
    async fn a_scheduler_of_another_version_is_rejected() {
        let place = Scratch::new("other version");
        let token = token(&place, "token");
        let (address, server) = scheduler(token.clone()).await;
        let address = address.to_string();
        let refused = Cluster::connect(&address, &token, "0.2.0").await;
        assert_eq!(
            refused.expect_err("another version").to_string(),
            format!(
                "{address}: the scheduler is heaptide 0.0.1, this is 0.2.0; \
                 use the same version on all machines"
            )
        );
        // A query without a prior check is rejected, too.
        let same = Cluster::connect(&address, &token, "0.0.1").await.expect("the same version");
        let context = same.context("0.2.0").await.expect("an engine");
        let query = async { context.sql("SELECT 1 + random()").await?.collect().await };
        let refused = query.await.expect_err("another version").to_string();
        assert_eq!(version::refusing(&refused), Some("0.0.1"), "{refused}");
        server.abort();
    }

    #[tokio::test]
    async fn a_scheduler_answers_no_call_without_its_token() {
        let place = Scratch::new("other token");
        let (address, server) = scheduler(token(&place, "own")).await;
        let other = token(&place, "other");
        let refused = Cluster::connect(&address.to_string(), &other, "0.0.1").await;
        assert_eq!(
            refused.expect_err("another token").to_string(),
            format!(
                "{address}: the scheduler has another token than {}; copy its token to this machine",
                place.join("other").display()
            )
        );
        let plain = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let mut scheduler = SchedulerGrpcClient::connect(plain.clone()).await.expect("a server");
        let status = scheduler.poll_work(PollWorkParams::default()).await.expect_err("no token");
        assert_eq!(status.code(), Code::Unauthenticated);
        for path in [READY_PATH, "/healthz", "/api/executors", "/none"] {
            let mut channel = plain.connect().await.expect("a server");
            poll_fn(|context| channel.poll_ready(context)).await.expect("a server");
            let request = http::Request::builder().uri(path).body(Body::empty()).expect("a path");
            let response = channel.call(request).await.expect("an answer");
            let status = response.headers().get("grpc-status").map(|value| value.as_bytes());
            assert_eq!(status, Some(&b"16"[..]), "{path}: {response:?}");
        }
        server.abort();
    }

    #[tokio::test]
    async fn a_scheduler_lists_no_files_that_statements_name() {
        let place = Scratch::new("statement files");
        let path = place.write("secret.csv", b"a,b\n1,2\n");
        let token = token(&place, "token");
        let (address, server) = scheduler(token.clone()).await;
        let cluster = Cluster::connect(&address.to_string(), &token, "0.0.1").await;
        let context = cluster.expect("a cluster").context("0.0.1").await.expect("an engine");
        let create = format!(
            "CREATE EXTERNAL TABLE t (a INT, b INT) STORED AS CSV LOCATION '{}'",
            path.display()
        );
        context.sql(&create).await.expect("a table of this process");
        let query = async { context.sql("SELECT * FROM t").await?.collect().await };
        let error = query.await.expect_err("a file outside of datasets");
        let refused = format!(
            "cannot read {}: it is neither part of a dataset nor below a directory that the scheduler \
             and the executors allow with --allow-files",
            path.display()
        );
        assert_eq!(explain("", &error).to_string(), format!("query: {refused}"));
        server.abort();
    }
}
