//! Export of a process over time as CSV: its samples, its resident memory, or a selected site.

use std::io::{self, Write};

use heaptide_analysis::model::Process;
use heaptide_analysis::views::memory::{Memory, parts};

use crate::shared::quantity::seconds;
use crate::shared::views::Moment;

/// Writes the samples of a process as comma-separated values, after a line of column names.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    writeln!(
        out,
        "time_s,live_bytes,peak_bytes,allocations,frees,usable_bytes,resident_bytes,virtual_bytes"
    )?;
    for s in &process.time.samples {
        writeln!(
            out,
            "{},{},{},{},{},{},{},{}",
            seconds(s.time_ns),
            s.live_bytes,
            s.peak_bytes,
            s.allocations,
            s.frees,
            s.usable_bytes,
            s.resident_bytes,
            s.virtual_bytes
        )?;
    }
    Ok(())
}

/// Writes the resident memory of a process over time as comma-separated values, after a line of
/// column names: the bytes of each part, which add up to the resident bytes.
///
/// Errors: those of `out`.
pub fn write_accounts(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    write!(out, "time_s,resident_bytes")?;
    for name in parts::names() {
        write!(out, ",{}_bytes", name.replace(' ', "_"))?;
    }
    writeln!(out)?;
    for memory in Memory::over_time(process) {
        let account = memory.account;
        write!(out, "{},{}", seconds(account.time_ns), account.resident_bytes)?;
        memory.parts().try_for_each(|bytes| write!(out, ",{bytes}"))?;
        writeln!(out)?;
    }
    Ok(())
}

/// Writes the moments as comma-separated values, after a line of column names.
///
/// Errors: those of `out`.
pub fn write_site(out: &mut dyn Write, moments: &[Moment]) -> io::Result<()> {
    writeln!(out, "snapshot,time_s,live_blocks,live_bytes,allocations")?;
    for m in moments {
        let number = m.snapshot.map_or(String::new(), |number| number.to_string());
        let time = seconds(m.time_ns);
        writeln!(out, "{number},{time},{},{},{}", m.live_blocks, m.live_bytes, m.allocations)?;
    }
    Ok(())
}
