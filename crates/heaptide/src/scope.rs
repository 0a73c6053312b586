//! Scopes: the current activity of a thread, and its transfer to other threads.

use crate::figures::Figures;
use crate::interface;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

/// The attribute of a scope if none is given.
pub const REGION: &str = "region";

/// Keeps a guard on the thread that created it, because a scope path belongs to a thread.
pub(crate) type OnThisThread = PhantomData<*const ()>;

/// The name of a scope, `attribute` and `value`, with its number in the profile: created once,
/// entered often. The macros [`scope!`](crate::scope!) and [`function!`](crate::function!) have a
/// static one at each use.
///
/// ```
/// static LOAD: heaptide::Name = heaptide::Name::new("load");
///
/// fn load() {
///     let _scope = LOAD.enter();
/// }
/// # load();
/// ```
#[derive(Debug)]
pub struct Name {
    attribute: &'static str,
    value: &'static str,
    /// 0: not looked up yet; [`NO_ROOM`]: it has no number.
    number: AtomicU32,
}

/// The profile has no space for the name, or nothing is recorded. Real numbers are far smaller.
const NO_ROOM: u32 = u32::MAX;

impl Name {
    /// Creates the name of a region: a scope with the attribute `region`.
    pub const fn new(value: &'static str) -> Name {
        Name::with_attribute(REGION, value)
    }

    /// Creates a name with another attribute: `function`, `phase`, `loop`, …
    pub const fn with_attribute(attribute: &'static str, value: &'static str) -> Name {
        Name { attribute, value, number: AtomicU32::new(0) }
    }

    /// Enters the scope until the guard is dropped.
    #[inline]
    pub fn enter(&self) -> Scope {
        if interface::loaded() { Scope::begin(self.number()) } else { Scope::none() }
    }

    /// Runs a closure in the scope.
    ///
    /// ```
    /// static PARSE: heaptide::Name = heaptide::Name::with_attribute("phase", "parse");
    /// assert_eq!(PARSE.run(|| 6 * 7), 42);
    /// ```
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let _scope = self.enter();
        work()
    }

    #[inline]
    pub(crate) fn number(&self) -> u32 {
        match self.number.load(Ordering::Relaxed) {
            0 => self.intern(),
            NO_ROOM => 0,
            number => number,
        }
    }

    #[cold]
    fn intern(&self) -> u32 {
        let number = interface::intern(self.attribute, self.value);
        // Names are never removed, so a later attempt would fail, too.
        let kept = if number == 0 { NO_ROOM } else { number };
        self.number.store(kept, Ordering::Relaxed);
        number
    }
}

/// The value of a scope: a string or a whole number.
pub trait Value {
    /// Returns the number of the name `attribute = self` in the profile; 0 if there is none.
    #[doc(hidden)]
    fn intern(&self, attribute: &str) -> u32;
}

impl Value for str {
    fn intern(&self, attribute: &str) -> u32 {
        interface::intern(attribute, self)
    }
}

impl Value for String {
    fn intern(&self, attribute: &str) -> u32 {
        self.as_str().intern(attribute)
    }
}

impl<T: Value + ?Sized> Value for &T {
    fn intern(&self, attribute: &str) -> u32 {
        (**self).intern(attribute)
    }
}

/// Whole numbers; those that do not fit into 64 signed bits become text.
macro_rules! whole_numbers {
    ($($type:ty)*) => { $(
        impl Value for $type {
            fn intern(&self, attribute: &str) -> u32 {
                match i64::try_from(*self) {
                    Ok(value) => interface::intern_int(attribute, value),
                    Err(_) => interface::intern(attribute, &self.to_string()),
                }
            }
        }
    )* };
}

whole_numbers!(i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize);

/// Keeps a scope open until it is dropped.
///
/// Guards may be dropped in any order: closing a scope closes the scopes that were opened in it.
#[must_use = "the scope ends when its guard is dropped"]
#[derive(Debug)]
pub struct Scope {
    /// 0: no scope was entered, so none is left.
    name: u32,
    on_this_thread: OnThisThread,
}

impl Scope {
    /// Enters a scope whose name varies at run time. For constant names [`Name`] or
    /// [`scope!`](crate::scope!) is faster.
    ///
    /// ```
    /// for number in 0..3 {
    ///     let _scope = heaptide::Scope::enter("iteration", number);
    /// }
    /// let module = String::from("tracker");
    /// let _scope = heaptide::Scope::enter("module", &module);
    /// ```
    pub fn enter(attribute: &str, value: impl Value) -> Scope {
        if interface::loaded() { Scope::begin(value.intern(attribute)) } else { Scope::none() }
    }

    #[inline]
    pub(crate) fn begin(name: u32) -> Scope {
        interface::scope_begin(name);
        Scope { name, on_this_thread: PhantomData }
    }

    #[inline]
    fn none() -> Scope {
        Scope { name: 0, on_this_thread: PhantomData }
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        if self.name != 0 {
            interface::scope_end(self.name);
        }
    }
}

/// Whether the counters of a scope include those of nested scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Only allocations directly in the scope.
    Exclusive,
    /// Allocations in the scope and in scopes nested in it.
    Inclusive,
}

/// A scope path, to pass to other threads, tasks or callbacks. It belongs to the process: in a
/// forked child it is invalid. Two are equal if they consist of the same scopes, regardless of the
/// threads that they come from.
///
/// ```
/// use heaptide::{Context, scope};
///
/// let _scope = scope!("load");
/// let context = Context::current();
/// std::thread::spawn(move || {
///     let _attached = context.attach(); // in `load`, like the thread that started it
///     assert_eq!(Context::current(), context);
/// })
/// .join()
/// .unwrap();
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Context(pub(crate) u64);

impl PartialEq for Context {
    fn eq(&self, other: &Context) -> bool {
        // Each thread has its own number for a path, so compare the numbers of this thread.
        let own = |context: &Context| context.run(interface::context);
        self.0 == other.0 || own(self) == own(other)
    }
}

impl Eq for Context {}

impl Context {
    /// The path outside of all scopes.
    pub const NONE: Context = Context(0);

    /// Returns the calling thread's path.
    pub fn current() -> Context {
        Context(interface::context())
    }

    /// Sets the calling thread's path until the guard is dropped.
    pub fn attach(self) -> Attached {
        Attached { before: interface::set_context(self.0), on_this_thread: PhantomData }
    }

    /// Runs a closure with this path.
    pub fn run<R>(self, work: impl FnOnce() -> R) -> R {
        let _attached = self.attach();
        work()
    }

    /// Returns the counters of this path, for all threads; `None` if the path is unknown.
    ///
    /// ```
    /// use heaptide::{Context, Extent, scope};
    ///
    /// let _scope = scope!("figures of this");
    /// let block = vec![0u8; 1000];
    /// if let Some(figures) = Context::current().figures(Extent::Exclusive) {
    ///     assert_eq!(figures.requested_bytes, 1000);
    /// }
    /// # drop(block);
    /// ```
    pub fn figures(self, extent: Extent) -> Option<Figures> {
        interface::scope(self.0, extent == Extent::Inclusive)
    }
}

/// Keeps the thread on a path until it is dropped, and then restores the previous path.
#[must_use = "the path before comes back when the guard is dropped"]
#[derive(Debug)]
pub struct Attached {
    before: u64,
    on_this_thread: OnThisThread,
}

impl Drop for Attached {
    fn drop(&mut self) {
        interface::set_context(self.before);
    }
}

/// Runs a closure with this scope path: [`Context::run`] as a function.
///
/// ```
/// let context = heaptide::Context::current();
/// assert_eq!(heaptide::in_context(context, || 42), 42);
/// ```
pub fn in_context<R>(context: Context, work: impl FnOnce() -> R) -> R {
    context.run(work)
}

/// Wraps a closure so that it runs with the caller's current scope path, on any thread.
///
/// ```
/// let _scope = heaptide::scope!("load");
/// std::thread::spawn(heaptide::carried(|| vec![0; 10])).join().unwrap();
/// ```
pub fn carried<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let context = Context::current();
    move || context.run(work)
}

/// Enters a scope until the end of the block. Bind the guard to a named variable.
///
/// `scope!("load")` is a region; each place in the source looks up its name only once.
/// `scope!("phase", value)` has another attribute, and a string or whole number as value.
///
/// ```
/// let _scope = heaptide::scope!("load");
/// for event in 0..3 {
///     let _scope = heaptide::scope!("event", event);
/// }
/// ```
#[macro_export]
macro_rules! scope {
    ($value:expr) => {{
        static NAME: $crate::Name = $crate::Name::new($value);
        NAME.enter()
    }};
    ($attribute:expr, $value:expr) => {
        $crate::Scope::enter($attribute, $value)
    };
}

/// Enters a scope with the name of the enclosing function, with the attribute `function`.
///
/// ```
/// fn reconstruct() {
///     let _scope = heaptide::function!();
/// }
/// # reconstruct();
/// ```
#[macro_export]
macro_rules! function {
    () => {{
        fn here() {}
        static NAME: ::std::sync::OnceLock<$crate::Name> = ::std::sync::OnceLock::new();
        NAME.get_or_init(|| $crate::function_name(here)).enter()
    }};
}

/// Returns the name of the function around `here`, for [`function!`](crate::function!): the path
/// without enclosing closures.
#[doc(hidden)]
pub fn function_name<F: Fn()>(_: F) -> Name {
    let path = std::any::type_name::<F>();
    let path = path.strip_suffix("::here").unwrap_or(path);
    Name::with_attribute("function", path.trim_end_matches("::{{closure}}"))
}
