//! A library to load: one function, at the same offset in each build, with a name that the build
//! defines.

#include "guest.h"

NOINLINE void *WORK(size_t size) { return keep(malloc(size)); }

#ifdef NEEDS
void NEEDS(void);
void call_needed(void) { NEEDS(); }
#endif

void *enter(size_t size) { return keep(WORK(size)); }
