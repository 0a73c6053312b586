//! `heaptide-sql scheduler`: accepts queries, plans them, and assigns their parts to executors that
//! request work.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::Next;
use axum::routing::get;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::create_scheduler;
use ballista_scheduler::scheduler_server::SchedulerServer;
use clap::Args;
use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use tokio::net::TcpListener;
use tonic::codegen::http;
use tonic::service::Routes;

use super::files::Files;
use super::logging;
use super::server::{
    self, ALLOWED, FILES_HEADER, MESSAGE_BYTES_MAX, READY_PATH, ServerOptions, VERSION_HEADER,
};
use super::tables::Tables;
use super::token::{Token, refusal};
use super::version::{self, VERSION};

/// Seconds between checks for silent executors.
const LOOK_SECONDS: u64 = 2;

/// `heaptide-sql scheduler`.
#[derive(Args, Debug)]
pub struct SchedulerOptions {
    #[command(flatten)]
    pub server: ServerOptions,
    /// Port to listen on; 0 for a free one
    #[arg(long, value_name = "PORT", default_value_t = 50050)]
    pub port: u16,
    /// Reassign the work of an executor that has not reported for this time. A busy executor
    /// reports every 5 seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(8..))]
    pub executor_timeout: u64,
}

/// Serves until SIGINT or SIGTERM.
pub fn scheduler(options: &SchedulerOptions) -> Outcome {
    logging::start(options.server.log);
    let token = Token::find_or_create(options.server.token_file.as_deref())?;
    let files = Files::new(&options.server.allow_files)?;
    let runtime = server::runtime()?;
    runtime.block_on(async {
        let (listener, address) = options.server.listen(options.port).await?;
        let origin = token.origin();
        message(format_args!("the scheduler listens on {address}; token: {origin}"));
        let service = SchedulerService {
            token,
            files,
            timeout_seconds: options.executor_timeout,
            version: VERSION,
        };
        tokio::select! {
            served = service.serve(listener, address) => served,
            () = server::stopped() => Ok(()),
        }
    })?;
    runtime.shutdown_background(); // waiting requests of executors are dropped
    Ok(())
}

/// A scheduler for clients that have its token and its version.
pub struct SchedulerService {
    pub token: Token,
    pub files: Files,
    /// The time after which the work of a silent executor is reassigned.
    pub timeout_seconds: u64,
    pub version: &'static str,
}

impl SchedulerService {
    /// Serves clients and executors.
    ///
    /// Errors: those of the listener.
    pub async fn serve(self, listener: TcpListener, address: SocketAddr) -> Result<(), Error> {
        let failed = |error: &dyn std::fmt::Display| Error::new(format!("scheduler: {error}"));
        let SchedulerService { token, files, timeout_seconds, version } = self;
        let files = Arc::new(files);
        let reads_files = files.has_allowed();
        let config = config(&token, files, address, timeout_seconds, version);
        let cluster = BallistaCluster::new_from_config(&config).await.map_err(|e| failed(&e))?;
        let config = Arc::new(config);
        let scheduler = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, config);
        let scheduler = scheduler.await.map_err(|e| failed(&e))?;
        let routes = routes(scheduler, token, reads_files, version);
        let service = routes.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, service).await.map_err(|e| failed(&e))
    }
}

fn config(
    token: &Token,
    files: Arc<Files>,
    address: SocketAddr,
    timeout_seconds: u64,
    version: &'static str,
) -> SchedulerConfig {
    let session = move |config: SessionConfig| {
        version::check(&config, version)?;
        server::state(config, files.clone())
    };
    let of_settings = token.clone();
    SchedulerConfig {
        external_host: address.ip().to_string(),
        bind_host: address.ip().to_string(),
        bind_port: address.port(),
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        executor_timeout_seconds: timeout_seconds,
        expire_dead_executor_interval_seconds: LOOK_SECONDS,
        no_executors_grace_period_seconds: timeout_seconds,
        grpc_server_max_decoding_message_size: MESSAGE_BYTES_MAX,
        grpc_server_max_encoding_message_size: MESSAGE_BYTES_MAX,
        grpc_client_max_message_size: MESSAGE_BYTES_MAX,
        override_config_producer: Some(Arc::new(move || server::config(&of_settings))),
        override_session_builder: Some(Arc::new(session)),
        override_logical_codec: Some(Arc::new(Tables::default())),
        override_physical_codec: Some(Arc::new(OnlySent)),
        override_create_grpc_client_endpoint: Some(token.to_endpoints()),
        ..SchedulerConfig::default()
    }
}

/// Returns the services of the port. All of them need the token.
fn routes(
    scheduler: SchedulerServer<LogicalPlanNode, PhysicalPlanNode>,
    token: Token,
    reads_files: bool,
    version: &'static str,
) -> Router {
    let size = MESSAGE_BYTES_MAX as usize;
    let calls = SchedulerGrpcServer::new(scheduler.clone())
        .max_encoding_message_size(size)
        .max_decoding_message_size(size);
    let ready = move || {
        let status = if scheduler.is_ready() {
            http::StatusCode::OK
        } else {
            http::StatusCode::SERVICE_UNAVAILABLE
        };
        let files = if reads_files { ALLOWED } else { "" };
        std::future::ready((status, [(FILES_HEADER, files), (VERSION_HEADER, version)]))
    };
    let check = move |request: Request, next: Next| {
        let is_allowed = token.is_in(request.headers());
        async move {
            if is_allowed {
                next.run(request).await
            } else {
                refusal().into_http::<axum::body::Body>()
            }
        }
    };
    Routes::new(calls)
        .into_axum_router()
        .route(READY_PATH, get(ready))
        .layer(axum::middleware::from_fn(check))
}

/// The encoding of physical plans for executors. Plans that a client sends in this encoding are
/// rejected, because they can name the files of intermediate results.
#[derive(Debug)]
struct OnlySent;

impl PhysicalExtensionCodec for OnlySent {
    fn try_decode(
        &self,
        _bytes: &[u8],
        _inputs: &[Arc<dyn ExecutionPlan>],
        _context: &TaskContext,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Err(DataFusionError::Plan("clients send only logical plans".to_owned()))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<(), DataFusionError> {
        BallistaPhysicalExtensionCodec::default().try_encode(node, bytes, converter)
    }
}
