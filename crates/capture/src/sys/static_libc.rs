//! The functions of the C library that the recorder calls, linked in: a static program has no
//! loader that could be asked for them. Replaces `next_symbol.rs`.

// SAFETY: all are functions of glibc and musl, but for on_exit, which musl lacks. Whoever calls one
// says by a cast what it takes and gives.
unsafe extern "C" {
    fn __cxa_atexit();
    fn clock_gettime();
    fn getauxval();
    #[cfg(target_env = "gnu")]
    fn on_exit();
    fn pthread_key_create();
    fn pthread_setspecific();
    fn sigaction();
}

type Function = unsafe extern "C" fn();

/// A function of the C library, which may lack it.
pub struct Real(Option<Function>);

impl Real {
    /// `name` ends with a zero byte. Another one than those above is refused by the compiler.
    pub const fn new(name: &'static [u8]) -> Real {
        Real(match name {
            b"__cxa_atexit\0" => Some(__cxa_atexit),
            b"clock_gettime\0" => Some(clock_gettime),
            b"getauxval\0" => Some(getauxval),
            #[cfg(target_env = "gnu")]
            b"on_exit\0" => Some(on_exit),
            #[cfg(not(target_env = "gnu"))]
            b"on_exit\0" => None,
            b"pthread_key_create\0" => Some(pthread_key_create),
            b"pthread_setspecific\0" => Some(pthread_setspecific),
            b"sigaction\0" => Some(sigaction),
            _ => panic!("is not linked"),
        })
    }

    /// Its address; 0 if it is lacking.
    #[inline(always)]
    pub fn get(&self) -> usize {
        self.0.map_or(0, |function| function as usize)
    }
}
