//! A summary of the device memory of a process in one line.

use heaptide_analysis::model::{DeviceSum, DeviceTotals, PoolBytes, Process};

use crate::shared::mapped::when_of_peak;
use crate::shared::quantity::bytes;

/// Number of devices in the line.
const NAMED: usize = 4;

/// States how much of pools was in use at peak.
fn pools_say(pools: &PoolBytes) -> String {
    let [in_use, idle] = [pools.in_use_at_peak, pools.idle_at_peak].map(bytes);
    format!(", pools with {in_use} in use and {idle} idle")
}

/// Returns the peak of device memory, and a text with the devices and the bytes still live; `None`
/// if none was allocated.
pub(crate) fn device_summary(process: &Process) -> Option<(String, String)> {
    let DeviceTotals { totals, devices, pools, images, .. } = process.device.as_ref()?;
    let own = |sum: &DeviceSum| match sum.peak_bytes {
        Some(peak) => format!("{} {}", sum.device, bytes(peak)),
        None => format!("{} at least {}", sum.device, bytes(sum.measures.at_peak_bytes)),
    };
    let says = match &devices[..] {
        [] => String::new(),
        [one] => format!("on {}", one.device),
        all => {
            let named: Vec<String> = all.iter().take(NAMED).map(own).collect();
            let more = match all.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("together; each at its peak: {}{more}", named.join(", "))
        }
    };
    let is_shown = process.tables.sites.iter().any(|site| site.kind.device_memory().is_some());
    let stacks = if is_shown { "" } else { "; `--kind device` has its stacks" };
    let when = when_of_peak(*images);
    let pools = pools.as_ref().map_or_else(String::new, pools_say);
    let live = bytes(totals.live_bytes);
    let says = format!("{when}, {says}{pools}, {live} live at the end{stacks}");
    Some((bytes(totals.peak_bytes), says))
}
