//! The file size limit is reached during a trace: the trace ends there, counting continues, and the
//! program does not notice.
//
// expect leaf:before allocations=1000 frees=1000
// expect leaf:after allocations=300000 frees=290000 live_blocks=10000 requested_bytes=15000000
// losses: allowed
// order: varies
#include "guest.h"
#include <sys/resource.h>

enum { BEFORE = 1000, AFTER = 300000, LIMIT = 1 << 20 };

static NOINLINE void *before(void) { return keep(malloc(50)); }
static NOINLINE void *after(void) { return keep(malloc(50)); }

int main(void)
{
    for (int i = 0; i < BEFORE; i++)
        free(before());
    struct rlimit limit = {LIMIT, LIMIT};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    errno = 77;
    for (int i = 0; i < AFTER; i++) {
        void *p = after();
        CHECK(p != NULL);
        if (i % 30)
            free(p);
    }
    CHECK(errno == 77);
    say("limited\n");
    return 0;
}
