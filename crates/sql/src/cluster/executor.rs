//! `heaptide-sql executor`: requests parts of queries from a scheduler and runs them. Intermediate
//! results are files in a directory of its own, from which it serves executors and clients.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::error::BallistaError;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::utils::{GrpcServerConfig, create_grpc_server};
use ballista_executor::ArrowFlightServerProvider;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::flight_service::BallistaFlightService;
use ballista_executor::shutdown::Shutdown;
use clap::Args;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use heaptide_command::values;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::service::InterceptorLayer;
use tonic::transport::server::TcpIncoming;

use super::client::Cluster;
use super::files::{self, Files};
use super::logging;
use super::server::{self, MESSAGE_BYTES_MAX, ServerOptions};
use super::tables::Tables;
use super::token::Token;
use super::version::{self, VERSION};

/// Prefix of the directory for intermediate results; random letters follow.
const PREFIX: &str = "heaptide-executor-";

/// `heaptide-sql executor`.
#[derive(Args, Debug)]
pub struct ExecutorOptions {
    /// Scheduler to work for
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    #[arg(value_parser = values::address)]
    pub scheduler: String,
    #[command(flatten)]
    pub server: ServerOptions,
    /// Port to listen on; 0 for a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,
    /// Name or address at which clients and other executors reach this one [default: the address
    /// it is bound to, or that the scheduler sees]
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Number of parts of queries to execute at a time [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Directory for intermediate results, which are removed at the end [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
}

/// Runs until SIGINT or SIGTERM, and then finishes the running parts.
pub fn executor(options: &ExecutorOptions) -> Outcome {
    logging::start(options.server.log);
    let token = Token::find(options.server.token_file.as_deref())?;
    let files = Arc::new(Files::new(&options.server.allow_files)?);
    let directory = work_directory(options.work_dir.as_deref())?;
    let runtime = server::runtime()?;
    runtime.block_on(async {
        Cluster::connect(&options.scheduler, &token, VERSION).await?;
        let (listener, address) = options.server.listen(options.port).await?;
        let place = Place { directory: &directory, listener, address };
        let config = config(options, place, token, files)?;
        let scheduler = &options.scheduler;
        message(format_args!("the executor listens on {address} and works for {scheduler}"));
        let ended = start_executor_process(Arc::new(config)).await;
        ended.map_err(|error| Error::new(format!("executor: {error}")))
    })?;
    runtime.shutdown_background();
    let path = directory.path().to_owned();
    directory.close().map_err(|error| Error::file(&path, "remove it", error))?;
    Ok(())
}

fn work_directory(parent: Option<&Path>) -> Result<TempDir, Error> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent);
    directory.map_err(|error| Error::file(&parent, "write intermediate results there", error))
}

/// Where an executor works.
struct Place<'a> {
    /// The directory for intermediate results.
    directory: &'a TempDir,
    listener: TcpListener,
    address: SocketAddr,
}

fn config(
    options: &ExecutorOptions,
    place: Place<'_>,
    token: Token,
    files: Arc<Files>,
) -> Result<ExecutorProcessConfig, Error> {
    let Place { directory, listener, address } = place;
    let (host, port) = options.scheduler.rsplit_once(':').unwrap_or((&options.scheduler, ""));
    let processors = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let own = (!address.ip().is_unspecified()).then(|| address.ip().to_string());
    let functions = server::state(server::config(&token), files.clone()).map_err(Error::library)?;
    let work_dir = directory.path().to_owned();
    let path = work_dir.to_str().ok_or_else(|| {
        Error::new(format!("{}: the name of --work-dir is not UTF-8", work_dir.display()))
    })?;
    let (path, temporary) = (path.to_owned(), path.to_owned());
    let of_settings = token.clone();
    Ok(ExecutorProcessConfig {
        bind_host: address.ip().to_string(),
        external_host: options.host.clone().or(own),
        port: address.port(),
        scheduler_host: host.to_owned(),
        scheduler_port: port.parse().unwrap_or_default(), // `values::address` has checked it
        vcores: options.threads.unwrap_or_else(processors).get(),
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        work_dir: Some(path),
        grpc_max_decoding_message_size: MESSAGE_BYTES_MAX,
        grpc_max_encoding_message_size: MESSAGE_BYTES_MAX,
        override_function_registry: Some(Arc::new(BallistaFunctionRegistry::from(&functions))),
        override_config_producer: Some(Arc::new(move || server::config(&of_settings))),
        override_runtime_producer: Some(Arc::new(move |config| {
            version::check(config, VERSION)?; // the client has another version
            files::environment(files.clone(), &temporary)
        })),
        override_logical_codec: Some(Arc::new(Tables::default())),
        override_create_grpc_client_endpoint: Some(token.to_endpoints()),
        override_arrow_flight_service: Some(flight(listener, token)),
        ..ExecutorProcessConfig::default()
    })
}

/// Serves intermediate results, to calls with the token, on an open listener, whose port is already
/// known.
fn flight(listener: TcpListener, token: Token) -> Arc<ArrowFlightServerProvider> {
    let listener = Mutex::new(Some(listener));
    Arc::new(
        move |directory: String,
              _address: SocketAddr,
              mut shutdown: Shutdown,
              config: GrpcServerConfig| {
            let listener = listener.lock().unwrap_or_else(PoisonError::into_inner).take();
            let token = token.clone();
            tokio::spawn(async move {
                let Some(listener) = listener else {
                    return Err(BallistaError::General("started twice".to_owned()));
                };
                let size = MESSAGE_BYTES_MAX as usize;
                let service = FlightServiceServer::new(BallistaFlightService::new(directory))
                    .max_decoding_message_size(size)
                    .max_encoding_message_size(size);
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                create_grpc_server(&config)
                    .layer(InterceptorLayer::new(move |request| token.check(request)))
                    .add_service(service)
                    .serve_with_incoming_shutdown(incoming, shutdown.recv())
                    .await
                    .map_err(BallistaError::TonicError)
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use arrow_flight::flight_service_client::FlightServiceClient;
    use arrow_flight::{Action, Criteria, Empty, Ticket};
    use heaptide_fixtures::Scratch;
    use tokio::sync::broadcast;
    use tonic::Code;
    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test]
    async fn an_executor_answers_no_call_without_its_token() {
        let place = Scratch::new("executor token");
        let token = Token::find_or_create(Some(&place.join("token"))).expect("a token");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (_stop, stopped) = broadcast::channel(1);
        let server = flight(listener, token.clone());
        let directory = place.to_str().expect("UTF-8").to_owned();
        let server = server(directory, address, Shutdown::new(stopped), Default::default());
        let plain = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let other = Token::find_or_create(Some(&place.join("other"))).expect("a token");
        let other = other.add_to(plain.clone()).expect("a header");
        for endpoint in [plain.clone(), other] {
            let channel = endpoint.connect().await.expect("a server");
            let mut client = FlightServiceClient::new(channel);
            let codes = [
                client.do_get(Ticket::default()).await.map(drop),
                client.do_action(Action::default()).await.map(drop),
                client.list_actions(Empty::default()).await.map(drop),
                client.list_flights(Criteria::default()).await.map(drop),
            ];
            for code in codes.map(|answer| answer.expect_err("no token").code()) {
                assert_eq!(code, Code::Unauthenticated);
            }
        }
        let with_token = token.add_to(plain).expect("a header");
        let mut client = FlightServiceClient::new(with_token.connect().await.expect("a server"));
        assert!(client.list_actions(Empty::default()).await.is_ok());
        server.abort();
    }
}
