//! Scopes with a numeric attribute, more scopes than a page has rows, and scopes that allocate
//! nothing: `heaptide tree --scopes` shows or counts all of them.
//
// `loop` has 100 iterations; in each, `solve` allocates a block of 1000 bytes and frees it. `wait`
// allocates nothing. `names` has 60 scopes, `name 0` to `name 59`, each with a block of 64 bytes;
// `clean` frees these blocks and allocates nothing.
//
// expect leaf:block allocations=160 frees=160 requested_bytes=103840 live_blocks=0
#include "api_guest.h"
#include <stdio.h>

enum { ITERATIONS = 100, NAMES = 60 };

int main(void)
{
    void *kept[NAMES];
    char name[16];
    heaptide_begin("loop");
    for (int i = 0; i < ITERATIONS; i++) {
        heaptide_begin_int("iteration", i);
        heaptide_begin("solve");
        free(block(1000));
        heaptide_end("solve");
        heaptide_end_int("iteration", i);
    }
    heaptide_end("loop");
    heaptide_begin("wait");
    heaptide_end("wait");
    heaptide_begin("names");
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "name %d", i);
        heaptide_begin(name);
        kept[i] = block(64);
        heaptide_end(name);
    }
    heaptide_end("names");
    heaptide_begin("clean");
    for (int i = 0; i < NAMES; i++)
        free(kept[i]);
    heaptide_end("clean");
    return 0;
}
