//! A library to load: one function, at the same offset in each build, with a name that the build
//! defines.

#include "guest.h"

NOINLINE void *WORK(size_t size) { return keep(malloc(size)); }

void *enter(size_t size) { return keep(WORK(size)); }
