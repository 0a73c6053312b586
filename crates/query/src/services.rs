//! Caliper's services, which determine the records and attributes of the table `caliper`.

/// A service, or an option of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// A record for each allocation and free of labelled memory, and with `Sysalloc` of all.
    Alloc,
    /// Memory without a label is tracked, too.
    Sysalloc,
    /// Statistics of the allocations of each region.
    Allocstats,
    /// A record for each begin and end of a region.
    Event,
    /// Times and durations.
    Timer,
    /// Ids of threads.
    Pthread,
    /// The rank of the process.
    Mpi,
    /// Active bytes, an option of `Alloc`.
    Active,
    /// The highest active bytes since the previous record, an option of `Alloc` and `Allocstats`.
    Highwatermark,
    /// The blocks at addresses of snapshots, an option of `Alloc`.
    Resolve,
}

/// The names of services and options, in the arguments of the table.
const NAMES: [(&str, Service); 11] = [
    ("alloc", Service::Alloc),
    ("sysalloc", Service::Sysalloc),
    ("allocstats", Service::Allocstats),
    ("event", Service::Event),
    ("timer", Service::Timer),
    ("timestamp", Service::Timer),
    ("pthread", Service::Pthread),
    ("mpi", Service::Mpi),
    ("active", Service::Active),
    ("highwatermark", Service::Highwatermark),
    ("resolve", Service::Resolve),
];

impl Service {
    /// Returns the service with a name.
    ///
    /// ```
    /// use heaptide_query::services::Service;
    /// assert_eq!(Service::named("timestamp"), Some(Service::Timer));
    /// assert_eq!(Service::named("trace"), None);
    /// ```
    pub fn named(name: &str) -> Option<Service> {
        NAMES.into_iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, of)| of)
    }

    /// Returns all names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().map(|(name, _)| name)
    }
}

/// A set of services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Services(u16);

impl Services {
    /// Returns the set without services.
    pub const fn none() -> Services {
        Services(0)
    }

    /// Adds a service.
    pub const fn with(self, service: Service) -> Services {
        Services(self.0 | 1 << service as u16)
    }

    /// Returns whether it contains a service.
    pub const fn has(self, service: Service) -> bool {
        self.0 & 1 << service as u16 != 0
    }
}

impl Default for Services {
    /// Returns the services of a table without arguments: all but statistics of regions, whose
    /// records are sums of others.
    fn default() -> Services {
        let all = NAMES.into_iter().filter(|(_, of)| *of != Service::Allocstats);
        all.fold(Services::none(), |services, (_, of)| services.with(of))
    }
}
