//! Orders the nodes of an untrusted tree so that parents come first.

/// Orders nodes so that parents come first; returns pairs of index and parent plus one. A cycle of
/// parents is broken at its first node, which becomes a root.
pub(crate) fn parents_first(parents: &[u32]) -> Vec<(u32, u32)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; parents.len()];
    let mut order = Vec::with_capacity(parents.len());
    let mut path = Vec::new();
    for start in 0..parents.len() {
        let mut at = start;
        while marks[at] == Mark::New {
            marks[at] = Mark::OnPath;
            path.push(at);
            match parents[at].checked_sub(1) {
                Some(parent) => at = parent as usize,
                None => break,
            }
        }
        while let Some(index) = path.pop() {
            let parent = parents[index];
            let known = parent != 0 && marks[parent as usize - 1] == Mark::Done;
            order.push((index as u32, if known { parent } else { 0 }));
            marks[index] = Mark::Done;
        }
    }
    order
}
