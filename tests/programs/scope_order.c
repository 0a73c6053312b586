//! Scopes are entered in a different order than that of their names and of their first allocations:
//! trees have the order of entry, ORDER BY the order of paths.
//
// `main` enters `zeta`, which does not allocate yet; then `beta` (10 bytes) and in it `omega` (20);
// then `zeta` again (30) and in it `alpha` (40).
//
// expect leaf:block allocations=4 frees=0 requested_bytes=100 live_blocks=4
#include "api_guest.h"

int main(void)
{
    heaptide_begin("main");
    heaptide_begin("zeta");
    heaptide_end("zeta");
    heaptide_begin("beta");
    block(10);
    heaptide_begin("omega");
    block(20);
    heaptide_end("omega");
    heaptide_end("beta");
    heaptide_begin("zeta");
    block(30);
    heaptide_begin("alpha");
    block(40);
    heaptide_end("alpha");
    heaptide_end("zeta");
    heaptide_end("main");
    return 0;
}
