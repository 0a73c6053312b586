//! The open connections, and which of them is closed when there are too many.
//!
//! Clients cost something although they do nothing: a connection, and the bytes that they have sent
//! of a request or have not read of a response. All three are bounded for all clients together.
//! When a bound is reached, the client that has been in its state for the longest time is closed.
//! A client whose request is being answered is never closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, oneshot};

/// Maximum number of bytes of incomplete requests, of all clients.
const RECEIVED_MAX: usize = 16 << 20;
/// Bytes of requests that each connection has room for without being counted.
const RECEIVED_FREE: usize = 8 << 10;

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    /// It is idle, its request is incomplete, or its request waits for others.
    Waits,
    /// A response is being sent.
    Sends,
    /// A request is being answered.
    Works,
}

/// All open connections.
#[derive(Debug)]
pub(crate) struct Clients {
    open: Mutex<Open>,
    /// Maximum number of connections.
    most: usize,
    /// Maximum number of bytes of responses that have not been sent yet.
    unsent_max: usize,
    /// Notified when the last connection ends.
    emptied: Notify,
}

#[derive(Default, Debug)]
struct Open {
    entries: BTreeMap<u64, Entry>,
    /// The last number: of a connection, or of a change of its phase.
    last: u64,
    /// Sum over all entries.
    received: usize,
    /// Sum over all entries.
    unsent: usize,
}

#[derive(Debug)]
struct Entry {
    phase: Phase,
    /// Grows with each change of a phase.
    since: u64,
    /// Bytes of an incomplete request.
    received: usize,
    /// Bytes of a response that may not have been sent yet.
    unsent: usize,
    /// The connection is closed when this is dropped.
    _alive: oneshot::Sender<()>,
}

/// An open connection. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Client {
    clients: Arc<Clients>,
    number: u64,
}

impl Clients {
    /// Creates it without connections.
    pub(crate) fn new(most: usize, unsent_max: usize) -> Arc<Clients> {
        Arc::new(Clients { open: Mutex::default(), most, unsent_max, emptied: Notify::new() })
    }

    /// Adds a connection, and closes another one if there are too many. The receiver completes
    /// when the new connection has to be closed.
    pub(crate) fn add(self: &Arc<Self>) -> (Client, oneshot::Receiver<()>) {
        let mut open = self.lock();
        while open.entries.len() >= self.most && open.close_oldest(|_| true) {}
        let number = open.next();
        let (alive, closed) = oneshot::channel();
        let entry =
            Entry { phase: Phase::Waits, since: number, received: 0, unsent: 0, _alive: alive };
        open.entries.insert(number, entry);
        (Client { clients: self.clone(), number }, closed)
    }

    /// Closes some connections, because the system has no descriptors for more. Returns whether
    /// there were any.
    pub(crate) fn close_some(&self) -> bool {
        let mut open = self.lock();
        let some = open.entries.len() / 8 + 1;
        (0..some).filter(|_| open.close_oldest(|_| true)).count() > 0
    }

    /// Closes connections on which no request is being answered, and waits for the others.
    pub(crate) async fn ended(&self) {
        self.lock().entries.retain(|_, entry| entry.phase != Phase::Waits);
        while !self.lock().entries.is_empty() {
            self.emptied.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(|error| error.into_inner())
    }
}

impl Open {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Closes the connection that has been in its phase for the longest time, among those for
    /// which a condition holds: first of those that wait, then of those that send.
    fn close_oldest(&mut self, is_it: impl Fn(&Entry) -> bool) -> bool {
        let may = |entry: &Entry| entry.phase != Phase::Works && is_it(entry);
        let all = self.entries.iter().filter(|(_, entry)| may(entry));
        let oldest = all.min_by_key(|(_, entry)| (entry.phase, entry.since));
        let Some(number) = oldest.map(|(number, _)| *number) else { return false };
        self.remove(number);
        true
    }

    fn remove(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number) {
            self.received -= entry.received;
            self.unsent -= entry.unsent;
        }
    }
}

impl Client {
    /// Counts received bytes. A client that sends much of its request, but not all of it, may be
    /// closed.
    pub(crate) fn receive(&self, bytes: usize) {
        let mut open = self.clients.lock();
        let Some(entry) = open.entries.get_mut(&self.number) else { return };
        entry.received += bytes;
        open.received += bytes;
        let is_it = |entry: &Entry| entry.received > RECEIVED_FREE;
        while open.received > RECEIVED_MAX && open.close_oldest(is_it) {}
    }

    /// A complete request is being answered from now on.
    pub(crate) fn work(&self) {
        self.enter(Phase::Works);
    }

    /// A response is being sent from now on. Other clients that do not read theirs may be closed.
    pub(crate) fn send(&self, bytes: usize) {
        self.enter(Phase::Sends);
        let mut open = self.clients.lock();
        let Some(entry) = open.entries.get_mut(&self.number) else { return };
        entry.unsent = bytes;
        let own = entry.since;
        open.unsent += bytes;
        let is_it = |entry: &Entry| entry.unsent > 0 && entry.since != own;
        while open.unsent > self.clients.unsent_max && open.close_oldest(is_it) {}
    }

    /// It waits for the next request from now on.
    pub(crate) fn wait(&self) {
        self.enter(Phase::Waits);
    }

    fn enter(&self, phase: Phase) {
        let mut open = self.clients.lock();
        let since = open.next();
        let Some(entry) = open.entries.get_mut(&self.number) else { return };
        (entry.phase, entry.since) = (phase, since);
        let unsent = std::mem::take(&mut entry.unsent);
        // The buffer of a large request remains with the connection.
        let received = std::mem::take(&mut entry.received);
        if received > RECEIVED_FREE {
            entry.received = received;
        } else {
            open.received -= received;
        }
        open.unsent -= unsent;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut open = self.clients.lock();
        open.remove(self.number);
        if open.entries.is_empty() {
            self.clients.emptied.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Added = (Client, oneshot::Receiver<()>);

    fn closed(all: &mut [Added]) -> Vec<bool> {
        let is_closed = |(_, closed): &mut Added| {
            closed.try_recv() == Err(oneshot::error::TryRecvError::Closed)
        };
        all.iter_mut().map(is_closed).collect()
    }

    #[test]
    fn the_client_that_has_waited_longest_is_closed_and_no_request_that_is_answered() {
        let clients = Clients::new(3, 1000);
        let mut all: Vec<Added> = (0..3).map(|_| clients.add()).collect();
        all[0].0.work();
        all.push(clients.add());
        assert_eq!(closed(&mut all), [false, true, false, false]);
        all[0].0.send(10);
        all[0].0.wait();
        all.push(clients.add());
        assert_eq!(closed(&mut all), [false, true, true, false, false]);
        for (client, _) in &all {
            client.work();
        }
        all.push(clients.add());
        assert_eq!(closed(&mut all), [false, true, true, false, false, false]);
        assert!(clients.close_some() && !clients.close_some(), "the last one");
    }

    #[test]
    fn bytes_of_incomplete_requests_are_bounded() {
        let clients = Clients::new(2000, 1000);
        let mut all: Vec<Added> = (0..1001).map(|_| clients.add()).collect();
        for (client, _) in &all[1..] {
            client.receive(RECEIVED_MAX / 1000);
        }
        assert!(closed(&mut all).iter().all(|closed| !closed));
        // The first of those that sent much is closed, although another one has waited longer.
        all[1000].0.receive(RECEIVED_MAX / 1000);
        let closed = closed(&mut all);
        assert!(closed[1]);
        assert_eq!(closed.iter().filter(|closed| **closed).count(), 1);
        // A large request was answered; its buffer still counts.
        all[1000].0.work();
        all[1000].0.wait();
        assert_eq!(clients.lock().received, RECEIVED_MAX / 1000 * 1000);
        drop(all);
        assert_eq!(clients.lock().received, 0);
        assert!(clients.lock().entries.is_empty());
    }

    #[test]
    fn bytes_of_responses_that_are_not_read_are_bounded() {
        let clients = Clients::new(2000, 1000);
        let mut all: Vec<Added> = (0..4).map(|_| clients.add()).collect();
        for (client, _) in &all[..3] {
            client.work();
            client.send(400);
        }
        assert_eq!(closed(&mut all), [true, false, false, false]);
        all[3].0.send(5000);
        assert_eq!(closed(&mut all), [true, true, true, false], "one response is always sent");
        all[3].0.wait();
        assert_eq!(clients.lock().unsent, 0);
    }
}
