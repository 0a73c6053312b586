//! Labels and pools in a trace: a block that gets a label, another one, and loses it; memory that
//! is not a block; pool blocks that grow; chunks that are freed with blocks in them.
//
//   rows      malloc(800) ×3 as rows; the second becomes columns, the third unlabelled; all freed
//   temp      a labelled temporary in each of 10 rounds
//   table     4096 bytes of static memory, labelled as region and unlabelled
//   arena     a chunk of 64 KiB: blocks of 100, 200 and 300 bytes, the first grows to 400
//             elsewhere, the second is freed, the chunk is freed with the others
//
// expect leaf:block allocations=14 frees=14 live_blocks=0 requested_bytes=69936
// expect label:rows allocations=3 frees=3 live_blocks=0
// expect label:columns allocations=1 frees=1 live_blocks=0
// expect label:temp allocations=10 frees=10 live_blocks=0 requested_bytes=2000
// expect label:table allocations=1 frees=1 live_blocks=0 requested_bytes=4096
// expect label:arena/pool_block allocations=4 frees=4 live_blocks=0 requested_bytes=1000
#include "api_guest.h"

static char table[4096] __attribute__((aligned(64)));

static void rows(void)
{
    char *first = (char *)block(800), *second = (char *)block(800), *third = (char *)block(800);
    KNOWN(heaptide_label_block(first, "rows") && heaptide_label_block(second, "rows"));
    KNOWN(heaptide_label_block(third, "rows"));
    KNOWN(heaptide_label_block(second, "columns"));
    KNOWN(heaptide_unlabel(third));
    free(first);
    free(second);
    free(third);
}
static void temporaries(void)
{
    for (int i = 0; i < 10; i++) {
        char *p = (char *)block(200);
        KNOWN(heaptide_label_block(p, "temp"));
        free(p);
    }
}
static void arena(void)
{
    uint32_t pool = heaptide_pool_named("arena");
    char *chunk = (char *)block(65536);
    KNOWN(heaptide_pool_add(pool, chunk, 65536));
    KNOWN(heaptide_pool_allocated(pool, chunk, 100, 128));
    KNOWN(heaptide_pool_allocated(pool, chunk + 128, 200, 256));
    KNOWN(heaptide_pool_allocated(pool, chunk + 384, 300, 304));
    KNOWN(heaptide_pool_reallocated(chunk, chunk + 1024, 400, 512));
    KNOWN(heaptide_pool_freed(chunk + 128));
    free(chunk);
}

int main(void)
{
    rows();
    temporaries();
    KNOWN(HEAPTIDE_LABEL_VARIABLE(table));
    KNOWN(heaptide_unlabel(table));
    arena();
    say("labelled\n");
    return 0;
}
