//! Blocks of several sizes from one stack: with `--by-size`, each size has a separate site.
//
// expect leaf:make allocations=13 frees=10 requested_bytes=6050 live_blocks=3
// expect leaf:grow allocations=2 reallocations=2 frees=2 requested_bytes=6000
// expect label:rows allocations=2 live_blocks=2
#include "api_guest.h"

static NOINLINE void *make(size_t bytes) { return keep(malloc(bytes)); }
static NOINLINE void *grow(void *block, size_t bytes) { return keep(realloc(block, bytes)); }

int main(void)
{
    void *block;
    for (int i = 0; i < 5; i++)
        free(make(10));
    for (int i = 0; i < 3; i++)
        free(make(1000));
    free(make(0));
    KNOWN(heaptide_label_block(make(800), "rows"));
    KNOWN(heaptide_label_block(make(1600), "rows"));
    make(500);
    // 100 bytes become 2000 and then 4000: two sizes of `grow`, and one more of `make`.
    block = grow(make(100), 2000);
    block = grow(block, 4000);
    free(block);
    return 0;
}
