//! Contains every feature of other tools' formats: recursion, scopes, a label, two lanes, a window
//! and a mark.
//
// A recursive function includes its callees once: the outermost call counts everything.
// expect function:even requested_bytes=9000 allocations=6
// expect leaf:even requested_bytes=3000
// expect function:odd requested_bytes=8000 allocations=5
// expect function:down requested_bytes=2000 allocations=4
// expect leaf:burst requested_bytes=400000 live_blocks=0
// expect scope:grow requested_bytes=11000
// expect scope:help requested_bytes=3000
// expect label:rows allocations=1
#include "api_guest.h"
#include <pthread.h>

static NOINLINE void odd(int n);

static NOINLINE void even(int n)
{
    keep(malloc(1000));
    if (n > 0)
        odd(n - 1);
    stay();
}
static NOINLINE void odd(int n)
{
    keep(malloc(2000));
    if (n > 0)
        even(n - 1);
    stay();
}
static NOINLINE void down(int n)
{
    keep(malloc(500));
    if (n > 0)
        down(n - 1);
    stay();
}
static NOINLINE void burst(void)
{
    void *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = keep(malloc(100000));
    for (int i = 0; i < 4; i++)
        free(blocks[i]);
}
static void *help(void *unused)
{
    pthread_setname_np(pthread_self(), "helper");
    heaptide_begin("help");
    keep(malloc(3000));
    heaptide_end("help");
    return unused;
}

int main(void)
{
    pthread_t thread;
    heaptide_begin("grow");
    even(5);
    down(3);
    heaptide_end("grow");
    heaptide_mark_now("grown");
    uint32_t window = heaptide_window_open("burst");
    burst();
    heaptide_window_close(window, 0);
    heaptide_label_block(keep(malloc(800)), "rows");
    CHECK(pthread_create(&thread, 0, help, 0) == 0);
    CHECK(pthread_join(thread, 0) == 0);
    return 0;
}
