//! Shared by the scheduler and the executors: addresses, settings, and shutdown.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ballista_core::extension::SessionConfigExt;
use ballista_core::utils::default_session_builder;
use clap::Args;
use datafusion::common::DataFusionError;
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::prelude::SessionConfig;
use heaptide_command::error::Error;
use log::LevelFilter;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::files::{self, Files};
use super::token::Token;
use super::version::Client;
use crate::functions::FUNCTIONS;

/// The largest message that gRPC allows, because texts of a batch can be long.
pub const MESSAGE_BYTES_MAX: u32 = i32::MAX as u32;

/// The path whose status is that of the cluster: whether it has executors.
pub const READY_PATH: &str = "/readyz";
/// The header of the response with the version of the scheduler.
pub const VERSION_HEADER: &str = "heaptide-version";
/// The header of the response with [`ALLOWED`] if statements can name files.
pub const FILES_HEADER: &str = "heaptide-files";
/// The value of the header.
pub const ALLOWED: &str = "allowed";

/// Options for addresses, access and messages.
#[derive(Args, Debug)]
pub struct ServerOptions {
    /// Address to listen on. Nothing is encrypted, the token included: bind it to trusted networks
    /// only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// File with the token of the cluster, which every call needs; the scheduler creates it
    /// [default: $HEAPTIDE_CLUSTER_TOKEN, else heaptide/cluster-token in $XDG_STATE_HOME or
    /// ~/.local/state]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Let statements such as CREATE EXTERNAL TABLE read files below DIR; without this option,
    /// queries read only datasets. Scheduler and executors need the same directories
    #[arg(long, value_name = "DIR")]
    pub allow_files: Vec<PathBuf>,
    /// Print messages of this level and above: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "off", value_parser = level)]
    pub log: LevelFilter,
}

impl ServerOptions {
    /// Binds the address.
    ///
    /// Errors: the address is in use, or does not belong to this machine.
    pub async fn listen(&self, port: u16) -> Result<(TcpListener, SocketAddr), Error> {
        let address = SocketAddr::new(self.bind, port);
        let failed = |error| Error::new(format!("cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok((listener, address))
    }
}

fn level(text: &str) -> Result<LevelFilter, &'static str> {
    text.parse().map_err(|_| "expected off, error, warn, info, debug or trace")
}

/// Creates the threads of the server.
///
/// Errors: they cannot be started.
pub fn runtime() -> Result<Runtime, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Error::new(format!("cannot start threads: {error}")))
}

/// Returns default settings; those of a query override them. Connections to other parts of the
/// cluster have its token.
pub fn config(token: &Token) -> SessionConfig {
    SessionConfig::new_with_ballista()
        .with_option_extension(Client::default())
        .with_ballista_override_create_grpc_client_endpoint(token.to_endpoints())
}

/// Returns the engine with our functions, which reads only these files.
///
/// Errors: those of the engine.
pub fn state(config: SessionConfig, files: Arc<Files>) -> Result<SessionState, DataFusionError> {
    let state = default_session_builder(config)?;
    let temporary = std::env::temp_dir().to_string_lossy().into_owned();
    let environment = files::environment(files, &temporary)?;
    let mut state = SessionStateBuilder::from(state).with_runtime_env(environment).build();
    for function in FUNCTIONS {
        state.register_udf(function.udf().into())?;
    }
    Ok(state)
}

/// Waits for SIGINT or SIGTERM.
pub async fn stopped() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await; // without handlers, the signals end the process
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
