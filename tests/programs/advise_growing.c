//! `heaptide advise`: a table that grows with each request, over windows and snapshots. With
//! -DALIKE it is a cache that is full after ten requests.
//
// clock: set
//   remember  40 requests, each with a block of 20,000 bytes that stays
#include "api_guest.h"
#include "clock.h"

enum { REQUESTS = 40, CACHED = 10, BYTES = 20000 };

static NOINLINE void *remember(void) { return keep(malloc(BYTES)); }

int main(void)
{
    static void *table[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        uint32_t window = heaptide_window_open("request");
#ifdef ALIKE
        int at = i % CACHED;
#else
        int at = i;
#endif
        free(table[at]);
        table[at] = remember();
        pass_us(2000);
        heaptide_window_close(window, NULL);
        if (i % 2)
            KNOWN(heaptide_snapshot_now("request") > 0);
    }
    pass_us(2000);
    for (int i = 0; i < REQUESTS; i++)
        free(table[i]);
    return 0;
}
