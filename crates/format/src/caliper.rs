//! Caliper's list of services, a variable of programs written for Caliper: the recorder records the
//! data that the services concerning memory need.

/// The variable with the list.
pub const VARIABLE: &str = "CALI_SERVICES_ENABLE";

/// The requirements of a list of services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// `alloc` or `sysalloc`: allocations, with a site per requested size.
    pub allocations: bool,
    /// `trace` with one of them: each allocation and free.
    pub trace: bool,
}

impl Services {
    /// Parses the value of the variable: names separated by commas or spaces.
    pub fn read(list: &[u8]) -> Services {
        let has = |name: &[u8]| {
            let mut names = list.split(|byte| matches!(byte, b',' | b';' | b':' | b' '));
            names.any(|own| own == name)
        };
        let allocations = has(b"alloc") || has(b"sysalloc");
        Services { allocations, trace: allocations && has(b"trace") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_services_are_parsed() {
        let read = |list: &str| {
            let services = Services::read(list.as_bytes());
            (services.allocations, services.trace)
        };
        assert_eq!(read("alloc,sysalloc,trace,report"), (true, true));
        assert_eq!(read("sysalloc, aggregate"), (true, false));
        assert_eq!(read("event,trace,timestamp"), (false, false));
        assert_eq!(read("allocstats,tracer"), (false, false));
        assert_eq!(read(""), (false, false));
    }
}
