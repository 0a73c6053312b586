//! A library that registers monitors, is loaded late, and is unloaded with them registered.

#include "api_guest.h"

// Belongs to the program, and outlives the library.
static int *counts;

static void on_allocated(void *context, void *p, size_t requested, size_t usable)
{
    (void)context, (void)p, (void)requested, (void)usable;
    counts[0]++;
}
static void on_freed(void *context, void *p, size_t usable)
{
    (void)context, (void)p, (void)usable;
    counts[1]++;
}
static void on_destroy(void *context)
{
    (void)context;
    counts[2]++;
}

// Two monitors: one through the header, and one that nothing deregisters.
void late_watch(int *host_counts)
{
    struct heaptide_monitor monitor = {
        .version = HEAPTIDE_MONITOR_VERSION,
        .size = sizeof monitor,
        .name = "late",
        .allocated = on_allocated,
        .freed = on_freed,
        .destroy = on_destroy,
    };
    counts = host_counts;
    if (!heaptide_loaded())
        return;
    CHECK(heaptide_register(&monitor) != 0);
    CHECK(heaptide_table_()->monitor_register(&monitor) != 0);
}
