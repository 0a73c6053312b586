//! A library to load: one function, whose name the build chooses, at the same offset in each build.

#include "guest.h"

NOINLINE void *WORK(size_t size) { return keep(malloc(size)); }

void *enter(size_t size) { return keep(WORK(size)); }
