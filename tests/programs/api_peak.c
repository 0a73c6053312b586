//! Bytes at peak when labels and pools move them while live memory only rises: they belong to the
//! last owner.
//
// expect label:grid at_peak_blocks=1 at_peak_bytes>=8000
// expect label:arena/pool_block at_peak_blocks=1 at_peak_bytes=3000
// expect label:arena/pool_chunk at_peak_blocks=1 at_peak_bytes>=1000 at_peak_bytes<=1100
// expect leaf:last at_peak_blocks=1 at_peak_bytes>=20000
// expect scope:makers at_peak_blocks=3 at_peak_bytes>=13000 at_peak_bytes<=13100
#include "api_guest.h"

static NOINLINE void *last(size_t size) { return keep(malloc(size)); }

int main(void)
{
    uint32_t pool = heaptide_pool_named("arena");
    char *grid, *chunk, *plain, *end;
    HEAPTIDE_BEGIN("makers");
    plain = block(1000);
    grid = block(8000);
    KNOWN(heaptide_label_block(grid, "grid") == 1);
    chunk = block(4000);
    KNOWN(heaptide_pool_add(pool, chunk, 4000) == 1);
    KNOWN(heaptide_pool_allocated(pool, chunk, 3000, 3000) == 1);
    HEAPTIDE_END("makers");
    end = last(20000);
    free(plain);
    free(grid);
    KNOWN(heaptide_pool_freed(chunk) == 1);
    free(chunk);
    free(end);
    say("peak\n");
    return 0;
}
