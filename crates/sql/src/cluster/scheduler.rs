//! `heaptide-sql scheduler`: accepts queries, plans them, and assigns their parts to executors that
//! request work.

use std::net::SocketAddr;
use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use clap::Args;
use datafusion::prelude::SessionConfig;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use tokio::net::TcpListener;

use super::logging;
use super::server::{self, MESSAGE_BYTES_MAX, ServerOptions};
use super::tables::Tables;
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
    let runtime = server::runtime()?;
    runtime.block_on(async {
        let (listener, address) = options.server.listen(options.port).await?;
        message(format_args!("the scheduler listens on {address}"));
        tokio::select! {
            served = serve(listener, address, options.executor_timeout, VERSION) => served,
            () = server::stopped() => Ok(()),
        }
    })?;
    runtime.shutdown_background(); // waiting requests of executors are dropped
    Ok(())
}

/// Serves clients of this version.
///
/// Errors: those of the listener.
pub async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    timeout_seconds: u64,
    version: &'static str,
) -> Result<(), Error> {
    let session = move |config: SessionConfig| {
        version::check(&config, version)?;
        server::state(config)
    };
    let config = SchedulerConfig {
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
        override_config_producer: Some(Arc::new(server::config)),
        override_session_builder: Some(Arc::new(session)),
        override_logical_codec: Some(Arc::new(Tables::default())),
        ..SchedulerConfig::default()
    };
    let failed = |error: &dyn std::fmt::Display| Error::new(format!("scheduler: {error}"));
    let cluster = BallistaCluster::new_from_config(&config).await.map_err(|e| failed(&e))?;
    let scheduler = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, config.into());
    let scheduler = scheduler.await.map_err(|e| failed(&e))?;
    start_grpc_service_with_listener(listener, scheduler).await.map_err(|e| failed(&e))
}
