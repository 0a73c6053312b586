//! Stacks as paths of an insert-only tree, shared by all threads without a lock.
//!
//! A node's children form a list in order of creation. A new child is linked to the last one by
//! compare-and-swap, so a thread that loses the race continues the walk and finds the winner's
//! node. Programs repeat sequences of stacks, so lookups try the child used last and its successor
//! first, then the rest of the ring.

use crate::atomic::{AtomicU32, Ordering};

/// The storage of nodes. Ids are not 0; node 0 is the root, which has links but no key.
pub trait Nodes {
    /// Returns the key of a linked node.
    fn key(&self, node: u32) -> u64;
    /// Returns its links.
    fn links(&self, node: u32) -> &Links;
    /// Creates a node that is not visible to others yet; `None` if there is no space.
    fn create(&mut self, parent: u32, key: u64) -> Option<u32>;
    /// Discards the last created node, because another thread has linked an equal one first.
    fn discard(&mut self, node: u32);
    /// Returns whether the last-used hint may be written. It may not while several threads would
    /// contend for its cache line.
    fn hints(&self) -> bool;
    /// Looks up (parent, key) in this thread's own cache, which is used when hints may not be
    /// written.
    fn recall(&self, parent: u32, key: u64) -> Option<u32>;
    /// Receives every child that was found without the help of hints.
    fn remember(&mut self, parent: u32, key: u64, child: u32, walked: usize);
}

/// The links of a node.
#[derive(Debug)]
#[repr(C)]
pub struct Links {
    /// The first child, or 0.
    pub first: AtomicU32,
    /// The next child of the same parent, or 0.
    pub next: AtomicU32,
    /// The child used last, or 0: a hint.
    pub last: AtomicU32,
}

/// Returns the child of `parent` with this key, creating it if necessary; `None` if there is no
/// space for it.
#[inline(always)]
pub fn child<N: Nodes>(nodes: &mut N, parent: u32, key: u64) -> Option<u32> {
    let links = nodes.links(parent);
    let last = links.last.load(Ordering::Acquire);
    if last != 0 {
        if nodes.key(last) == key {
            return Some(last);
        }
        let after = nodes.links(last).next.load(Ordering::Acquire);
        if after != 0 && nodes.key(after) == key {
            if nodes.hints() {
                links.last.store(after, Ordering::Release);
            }
            return Some(after);
        }
    }
    child_slow(nodes, parent, key)
}

#[inline(never)]
fn child_slow<N: Nodes>(nodes: &mut N, parent: u32, key: u64) -> Option<u32> {
    if let Some(node) = nodes.recall(parent, key) {
        return Some(node);
    }
    let (node, walked) = find_or_link(nodes, parent, key)?;
    nodes.remember(parent, key, node, walked);
    let links = nodes.links(parent);
    if nodes.hints() || links.last.load(Ordering::Relaxed) == 0 {
        links.last.store(node, Ordering::Release);
    }
    Some(node)
}

/// Walks the children, and links a new one if none matches. Returns the child and how many were
/// passed.
fn find_or_link<N: Nodes>(nodes: &mut N, parent: u32, key: u64) -> Option<(u32, usize)> {
    let mut walked = 0;
    let mut made = 0;
    // The link that held 0: the parent's `first`, or the last child's `next`.
    let mut tail = None;
    loop {
        let link = match tail {
            None => &nodes.links(parent).first,
            Some(node) => &nodes.links(node).next,
        };
        let mut node = link.load(Ordering::Acquire);
        if node == 0 && made != 0 {
            match link.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((made, walked)),
                Err(winner) => node = winner,
            }
        }
        if node == 0 {
            made = nodes.create(parent, key)?;
            continue;
        }
        if nodes.key(node) == key {
            if made != 0 {
                nodes.discard(made);
            }
            return Some((node, walked));
        }
        walked += 1;
        tail = Some(node);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    extern crate std;
    use loom::sync::Arc;
    use std::vec::Vec;

    struct Shared {
        links: Vec<Links>,
        keys: Vec<loom::sync::atomic::AtomicU64>,
        used: AtomicU32,
    }

    struct Mine(Arc<Shared>, bool);

    impl Nodes for Mine {
        fn key(&self, node: u32) -> u64 {
            self.0.keys[node as usize].load(Ordering::Relaxed)
        }
        fn links(&self, node: u32) -> &Links {
            &self.0.links[node as usize]
        }
        fn create(&mut self, _: u32, key: u64) -> Option<u32> {
            let id = self.0.used.fetch_add(1, Ordering::Relaxed);
            self.0.keys[id as usize].store(key, Ordering::Relaxed);
            Some(id)
        }
        fn discard(&mut self, _: u32) {}
        fn hints(&self) -> bool {
            self.1
        }
        fn recall(&self, _: u32, _: u64) -> Option<u32> {
            None
        }
        fn remember(&mut self, _: u32, _: u64, _: u32, _: usize) {}
    }

    fn shared() -> Arc<Shared> {
        let links =
            || Links { first: AtomicU32::new(0), next: AtomicU32::new(0), last: AtomicU32::new(0) };
        Arc::new(Shared {
            links: (0..6).map(|_| links()).collect(),
            keys: (0..6).map(|_| loom::sync::atomic::AtomicU64::new(0)).collect(),
            used: AtomicU32::new(1),
        })
    }

    /// Two threads look up the same child: both get the same node, and it is in the list once.
    #[test]
    fn equal_keys_share_a_node() {
        loom::model(|| {
            let all = shared();
            let other = Mine(all.clone(), true);
            let thread = loom::thread::spawn(move || {
                let mut other = other;
                child(&mut other, 0, 42).unwrap()
            });
            let mine = child(&mut Mine(all.clone(), true), 0, 42).unwrap();
            assert_eq!(mine, thread.join().unwrap());
            let first = all.links[0].first.load(Ordering::Acquire);
            assert_eq!(first, mine);
            assert_eq!(all.links[first as usize].next.load(Ordering::Acquire), 0);
        });
    }

    /// Two threads add different children: both stay in the list, with visible keys.
    #[test]
    fn different_keys_are_both_linked() {
        loom::model(|| {
            let all = shared();
            let other = Mine(all.clone(), false);
            let thread = loom::thread::spawn(move || {
                let mut other = other;
                child(&mut other, 0, 1).unwrap()
            });
            let mine = child(&mut Mine(all.clone(), false), 0, 2).unwrap();
            let theirs = thread.join().unwrap();
            assert_ne!(mine, theirs);
            let mut end = Mine(all.clone(), false);
            assert_eq!(child(&mut end, 0, 1), Some(theirs));
            assert_eq!(child(&mut end, 0, 2), Some(mine));
        });
    }
}
