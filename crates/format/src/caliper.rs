//! Caliper's lists of services and of configurations, variables of programs written for Caliper:
//! the recorder records the data that they need.

/// The variable with the list of services.
pub const VARIABLE: &str = "CALI_SERVICES_ENABLE";
/// The variable with the list of configurations.
pub const CONFIG: &str = "CALI_CONFIG";

/// Configurations with the times or the memory of regions.
const PROFILES: [&[u8]; 4] =
    [b"runtime-report", b"runtime-profile", b"hatchet-region-profile", b"event-trace"];

/// The requirements of services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// `alloc` or `sysalloc`: allocations, with a site per requested size.
    pub allocations: bool,
    /// `trace` with a service that triggers records: each event.
    pub trace: bool,
    /// `sysalloc` in a trace: the functions called.
    pub calls: bool,
}

impl Services {
    /// Parses a list of services: names separated by commas or spaces.
    pub fn read(list: &[u8]) -> Services {
        let has = |name: &[u8]| {
            let mut names = list.split(|byte| matches!(byte, b',' | b';' | b':' | b' '));
            names.any(|own| own == name)
        };
        let allocations = has(b"alloc") || has(b"sysalloc");
        let trace = has(b"trace") && (allocations || has(b"allocstats") || has(b"event"));
        Services { allocations, trace, calls: trace && has(b"sysalloc") }
    }

    /// Parses a list of configurations, with their options in parentheses.
    pub fn of_config(list: &[u8]) -> Services {
        let mut names = list.split(|byte| matches!(byte, b',' | b'(' | b' '));
        let trace = names.any(|own| PROFILES.contains(&own));
        Services { trace, ..Services::default() }
    }

    /// Returns the requirements of both.
    pub const fn and(self, other: Services) -> Services {
        Services {
            allocations: self.allocations || other.allocations,
            trace: self.trace || other.trace,
            calls: self.calls || other.calls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_services_are_parsed() {
        let read = |list: &str| {
            let services = Services::read(list.as_bytes());
            (services.allocations, services.trace, services.calls)
        };
        assert_eq!(read("alloc,sysalloc,trace,report"), (true, true, true));
        assert_eq!(read("alloc:recorder:trace:event"), (true, true, false));
        assert_eq!(read("sysalloc, aggregate"), (true, false, false));
        assert_eq!(read("event,trace,timestamp"), (false, true, false));
        assert_eq!(read("trace,report"), (false, false, false));
        assert_eq!(read("allocstats,tracer"), (false, false, false));
        assert_eq!(read(""), (false, false, false));
    }

    #[test]
    fn configurations_are_parsed() {
        let is_traced = |list: &str| Services::of_config(list.as_bytes()).trace;
        assert!(is_traced("runtime-report,alloc.stats"));
        assert!(is_traced("mem.highwatermark,event-trace(output=a.cali)"));
        assert!(!is_traced("loop-report") && !is_traced(""));
    }
}
