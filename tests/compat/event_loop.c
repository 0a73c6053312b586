//! A program that marks its event loop for the monitors of monitors/cms, if they are loaded.
//
// Before the loop it allocates blocks of 5000 and 1000 bytes, and frees the second; in the loop 4
// blocks of 1000, of which it frees 3, and the block of 5000; after it, it frees the last one.
// Event processing: 4000 bytes requested in 4 allocations, 4 deallocations, at most 2000 used, 1000
// not deallocated. In total: 10000 requested in 6 allocations, at most 7000 used. These are usable
// sizes of glibc, too.
#include "../programs/guest.h"

void alloc_monitor_begin_event_loop(void) __attribute__((weak));
void alloc_monitor_end_event_loop(void) __attribute__((weak));

int main(void)
{
    void *before = keep(malloc(5000)), *last = keep(malloc(1000));
    int i;
    free(last);
    if (alloc_monitor_begin_event_loop)
        alloc_monitor_begin_event_loop();
    last = keep(malloc(1000));
    for (i = 0; i < 3; i++) {
        void *next = keep(malloc(1000));
        free(last);
        last = next;
    }
    free(before);
    if (alloc_monitor_end_event_loop)
        alloc_monitor_end_event_loop();
    free(last);
    return 0;
}
