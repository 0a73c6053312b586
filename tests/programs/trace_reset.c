//! Counters are reset during a trace: the trace since the reset has only later events, the whole
//! trace has all.
//
// Before: old 1…10, of which 1 and 2 are freed. Since: old 3, 4 and 5 are freed, fresh 11…15 are
// allocated and 11…14 freed.
#include "api_guest.h"

static NOINLINE void *old(void) { return keep(malloc(100)); }
static NOINLINE void *fresh(void) { return keep(malloc(200)); }

int main(void)
{
    void *blocks[15];
    for (int i = 0; i < 10; i++)
        blocks[i] = old();
    free(blocks[0]);
    free(blocks[1]);
    KNOWN(heaptide_reset());
    for (int i = 2; i < 5; i++)
        free(blocks[i]);
    for (int i = 10; i < 15; i++)
        blocks[i] = fresh();
    for (int i = 10; i < 14; i++)
        free(blocks[i]);
    return 0;
}
