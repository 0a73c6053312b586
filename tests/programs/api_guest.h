//! Shared by the programs that test the interface: they run the same with and without the recorder,
//! and have known numbers with it.

#pragma once
#include "guest.h"
#ifdef __cplusplus
#include "../../include/heaptide.hpp"
#else
#include "../../include/heaptide.h"
#endif

// A check that applies only if the recorder is loaded.
#define KNOWN(condition) CHECK(!heaptide_loaded() || (condition))

// Returns a block of `size` bytes, allocated on a stack with a known function.
__attribute__((unused)) static NOINLINE void *block(size_t size) { return keep(malloc(size)); }

// Returns the counters of the scope path `context`, without nested paths.
__attribute__((unused)) static struct heaptide_figures own(uint64_t context)
{
    return heaptide_scope_figures(context, 0);
}
__attribute__((unused)) static struct heaptide_figures inclusive(uint64_t context)
{
    return heaptide_scope_figures(context, 1);
}
