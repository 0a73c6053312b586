//! What the programs that test the interface share: they run the same with the recorder and
//! without, and know their numbers with it.

#pragma once
#include "guest.h"
#ifdef __cplusplus
#include "../../include/heaptide.hpp"
#else
#include "../../include/heaptide.h"
#endif

// What must be so when the recorder is loaded.
#define KNOWN(condition) CHECK(!heaptide_loaded() || (condition))

// A block of `size` bytes on a stack that has a name.
__attribute__((unused)) static NOINLINE void *block(size_t size) { return keep(malloc(size)); }

// The figures of the scope path `context`, without those below it.
__attribute__((unused)) static struct heaptide_figures own(uint64_t context)
{
    return heaptide_scope_figures(context, 0);
}
__attribute__((unused)) static struct heaptide_figures inclusive(uint64_t context)
{
    return heaptide_scope_figures(context, 1);
}
