//! Reads the accounts of resident memory of a profile.
//!
//! All contents of a profile are untrusted: inconsistent accounts are skipped.

use std::sync::Arc;

use heaptide_format as format;
use heaptide_format::Kind;
use zerocopy::FromBytes;

use super::extents::Walk;
use super::texts::Texts;

/// An account with its mappings.
#[derive(Clone, Debug)]
pub struct Account {
    /// The record.
    pub record: format::Account,
    /// The mappings with resident pages, in order of their addresses.
    pub ranges: Vec<Range>,
}

/// A mapping with its name.
#[derive(Clone, Debug)]
pub struct Range {
    /// The file, or the kernel's name of the mapping; empty if it has none.
    pub name: Arc<str>,
    /// The record.
    pub record: format::AccountRange,
}

/// Reads the accounts, in order of time.
pub(crate) fn read(walk: &Walk, texts: &mut Texts) -> Vec<Account> {
    let extents = walk.committed(Kind::Accounts);
    let mut accounts: Vec<_> = extents.filter_map(|bytes| account(bytes, texts)).collect();
    accounts.sort_by_key(|account| (account.record.time_ns, account.record.number));
    accounts
}

/// Returns the account in an extent; `None` if it is incomplete because the recorder was writing
/// it.
fn account(bytes: &[u8], texts: &mut Texts) -> Option<Account> {
    let (record, rest) = format::Account::read_from_prefix(bytes).ok()?;
    let records = rest.chunks_exact(size_of::<format::AccountRange>());
    let is_whole = record.number == record.number_again && records.len() == record.ranges as usize;
    if !is_whole {
        return None;
    }
    let ranges = records.map(|bytes| {
        let range = format::AccountRange::read_from_bytes(bytes).ok()?;
        let is_its = range.account == record.number as u32;
        is_its.then(|| Range { name: texts.get(range.name), record: range })
    });
    Some(Account { record, ranges: ranges.collect::<Option<_>>()? })
}
