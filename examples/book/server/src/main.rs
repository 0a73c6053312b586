//! A small HTTP server that renders pages and caches them without a limit, creating several copies
//! of each page.
//!
//!     cargo build --release
//!     target/release/server server.sock &
//!     curl --unix-socket server.sock http://localhost/pages/7
//!     curl --unix-socket server.sock http://localhost/quit
//!
//! With the feature `fixed`, the cache has at most 50 pages, and a page is copied only once.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Rendered pages by path, oldest first.
#[derive(Default)]
struct Cache {
    pages: HashMap<String, String>,
    order: VecDeque<String>,
}

impl Cache {
    fn insert(&mut self, path: &str, page: String) {
        if cfg!(feature = "fixed") && self.order.len() == 50 {
            let oldest = self.order.pop_front();
            oldest.and_then(|path| self.pages.remove(&path));
        }
        self.order.push_back(path.to_owned());
        self.pages.insert(path.to_owned(), page);
    }
}

/// Returns a page of a hundred lines.
fn render(path: &str) -> String {
    let mut page = String::with_capacity(4000);
    for line in 0..100 {
        if cfg!(feature = "fixed") {
            page.push_str(path);
            page.push_str(" again\n");
        } else {
            let text = format!("{path}, line {line}\n");
            page.push_str(&text);
        }
    }
    page
}

fn answer(cache: &mut Cache, path: &str) -> String {
    if let Some(page) = cache.pages.get(path) {
        return page.clone();
    }
    let page = render(path);
    cache.insert(path, page.clone());
    page
}

fn serve(cache: &mut Cache, mut stream: UnixStream) -> std::io::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request)?;
    let request = String::from_utf8_lossy(&request[..length]);
    let path = request.split(' ').nth(1).unwrap_or("/");
    let page = answer(cache, path);
    stream.write_all(b"HTTP/1.0 200 -\r\n\r\n")?;
    stream.write_all(page.as_bytes())?;
    if path == "/quit" {
        std::process::exit(0);
    }
    Ok(())
}

fn work(connections: &Receiver<UnixStream>) {
    let mut cache = Cache::default();
    while let Ok(stream) = connections.recv() {
        if let Err(error) = serve(&mut cache, stream) {
            eprintln!("server: {error}");
        }
    }
}

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "server.sock".to_owned());
    let listener = UnixListener::bind(path)?;
    let (send, connections) = channel();
    let worker = thread::Builder::new().name("worker".to_owned());
    worker.spawn(move || work(&connections))?;
    for stream in listener.incoming() {
        let _ = send.send(stream?);
    }
    Ok(())
}
