//! A monitor frees a block of the program in a callback: live bytes decrease at once, and the next
//! peak is computed from them.
//
// expect totals allocations=3 frees=3 live_bytes=0
// expect totals peak_bytes>=20000 peak_bytes<=20100
#include "api_guest.h"

static void *given;

static void on_allocated(void *context, void *block, size_t requested, size_t usable)
{
    (void)context, (void)block, (void)requested, (void)usable;
    free(given);
    given = NULL;
}

int main(void)
{
    struct heaptide_monitor monitor = {
        .version = HEAPTIDE_MONITOR_VERSION,
        .size = sizeof monitor,
        .name = "frees",
        .allocated = on_allocated,
    };
    uint64_t id;
    given = keep(malloc(10000));
    id = heaptide_register(&monitor);
    free(keep(malloc(10)));
    KNOWN(heaptide_process_figures().live_bytes == 0);
    KNOWN(heaptide_process_figures().frees == 2);
    if (!heaptide_loaded())
        free(given);
    KNOWN(heaptide_deregister(id));
    free(keep(malloc(20000)));
    return 0;
}
