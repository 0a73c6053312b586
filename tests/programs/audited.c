//! Loads a library 50 times, of which an audit library (`LD_AUDIT`) is notified, which allocates.
//
// expect recording lost_events=0
// expect function:on_load allocations=100 frees=50 live_blocks=50 requested_bytes=75000
// expect function:in_program allocations=50 frees=50 requested_bytes=5000 live_blocks=0
// plugin: audited_plugin.so plugin.c -DWORK=audited_work
// plugin: audit.so audit_plugin.c
// build: -ldl
// args: %/audited_plugin.so
#include "guest.h"
#include <dlfcn.h>

static NOINLINE void in_program(void) { free(keep(malloc(100))); }

int main(int count, char **words)
{
    CHECK(count == 2);
    for (int i = 0; i < 50; i++) {
        void *library = dlopen(words[1], RTLD_NOW);
        CHECK(library && dlclose(library) == 0);
        in_program();
    }
    say("done\n");
    return 0;
}
