//! Known numbers for pictures: two functions that hold three quarters and one quarter of live
//! memory, a scope nested in itself, labelled blocks and a pool, and names that are markup or
//! commands in other formats.
//
// build: -pthread
// expect function:holds_more live_blocks=750 requested_bytes=750000
// expect function:holds_less live_blocks=250 requested_bytes=250000
// expect scope:load>parse>load live_blocks=750 entered=1
// expect window:window count=1
#include "api_guest.h"
#include <pthread.h>

static NOINLINE void holds_more(void)
{
    for (int i = 0; i < 750; i++)
        block(1000);
    stay();
}

static NOINLINE void holds_less(void)
{
    for (int i = 0; i < 250; i++)
        block(1000);
    stay();
}

static void *in_lane(void *none)
{
    pthread_setname_np(pthread_self(), "</script><i>");
    heaptide_begin("</script><img src=x onerror=alert(1)> \"quoted\" \\N, {a|b}\n");
    holds_less();
    heaptide_end("</script><img src=x onerror=alert(1)> \"quoted\" \\N, {a|b}\n");
    return none;
}

int main(void)
{
    pthread_t thread;
    heaptide_begin("load");
    heaptide_begin("parse");
    heaptide_begin("load");
    holds_more();
    heaptide_end("load");
    heaptide_end("parse");
    heaptide_end("load");
    for (int i = 0; i < 10; i++)
        heaptide_label_block(block(100), "</script><b>");
    void *chunk = block(4096);
    uint32_t pool = heaptide_pool_named("=pool,\"1\"");
    heaptide_pool_add(pool, chunk, 4096);
    heaptide_pool_allocated(pool, chunk, 1000, 1024);
    heaptide_mark_now("</script><u>mark");
    uint32_t window = heaptide_window_open("window");
    CHECK(pthread_create(&thread, 0, in_lane, 0) == 0);
    CHECK(pthread_join(thread, 0) == 0);
    heaptide_window_close(window, 0);
    return 0;
}
