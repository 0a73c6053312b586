//! A monitor library that counts, and writes its counts to the file in its options.
//
// Loaded by `heaptide run --monitor LIB:FILE`; the file gets `allocated N freed N` at the end.
#include "../../include/heaptide.h"
#include <fcntl.h>
#include <unistd.h>

static struct counts {
    uint64_t allocated, freed;
    char file[4096];
} counts;

static void allocated(void *context, void *block, size_t requested, size_t usable)
{
    (void)block, (void)usable;
    if (requested == 100)
        __atomic_fetch_add(&((struct counts *)context)->allocated, 1, __ATOMIC_RELAXED);
}
static void freed(void *context, void *block, size_t usable)
{
    (void)block;
    if (usable >= 100 && usable < 120)
        __atomic_fetch_add(&((struct counts *)context)->freed, 1, __ATOMIC_RELAXED);
}
static void finish(void *context)
{
    struct counts *c = (struct counts *)context;
    char line[128];
    int length = snprintf(line, sizeof line, "allocated %llu freed %llu\n",
                          (unsigned long long)c->allocated, (unsigned long long)c->freed);
    int fd = open(c->file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd >= 0 && write(fd, line, (size_t)length) == length)
        close(fd);
}

__attribute__((constructor)) static void begin(void)
{
    const char *name = "libctl_monitor.so";
    if (heaptide_monitor_text(name, counts.file, sizeof counts.file) < 2)
        return;
    static struct heaptide_monitor monitor = {1,         sizeof monitor, "ctl_monitor", &counts,
                                              allocated, freed,          finish};
    heaptide_register(&monitor);
}
