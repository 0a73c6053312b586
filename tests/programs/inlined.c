//! A library has a jemalloc under a prefix of its own, whose fast paths the compiler inlined into
//! callers. DuckDB's callers are recorded as if they called the allocator. Of others, the recorder
//! sees only the slow path: it records only blocks that never take the fast path, and reports that
//! others are missing. The arguments name the libraries to load.
//
// expect recording lost_events=0
// expect function:in_calls allocations=11 requested_bytes=41960 frees=10 live_bytes=1008
// expect function:in_inlined allocations=3 requested_bytes=3145728 frees=2 live_bytes=1048576
// expect function:in_callers allocations=41 requested_bytes=8994816 reallocations=20 frees=40
// expect function:in_callers live_bytes=1048576
// plugin: inlined_plugin.so inlined_plugin.c -DPREFIX(x)=duckdb_je_##x -DINLINED
// plugin: called_plugin.so inlined_plugin.c -DPREFIX(x)=duckdb_je_##x
// build: -ldl
// args: %/inlined_plugin.so
#include "guest.h"
#include <dlfcn.h>

int main(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        void *library = dlopen(words[i], RTLD_NOW);
        CHECK(library);
        void (*work)(void) = (void (*)(void))dlsym(library, "work");
        CHECK(work);
        work();
    }
    say("done\n");
    return 0;
}
