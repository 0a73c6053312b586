//! The functions of the C library that the recorder calls, linked statically: a static program has
//! no loader for lookups.

// SAFETY: all are functions of glibc and musl, except on_exit, which musl lacks. Callers cast them
// to their real types.
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

/// Returns the address of a function by its zero-terminated name; 0 if it is not linked.
pub fn find(name: &'static [u8]) -> usize {
    let function: unsafe extern "C" fn() = match name {
        b"__cxa_atexit\0" => __cxa_atexit,
        b"clock_gettime\0" => clock_gettime,
        b"getauxval\0" => getauxval,
        #[cfg(target_env = "gnu")]
        b"on_exit\0" => on_exit,
        b"pthread_key_create\0" => pthread_key_create,
        b"pthread_setspecific\0" => pthread_setspecific,
        b"sigaction\0" => sigaction,
        _ => return 0,
    };
    function as usize
}
