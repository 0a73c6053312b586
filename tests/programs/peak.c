//! The peak and its owners: a rise, a fall, a higher rise, a fall; known in usable bytes.
//
// The program computes the sums itself with malloc_usable_size, and prints them.
#include "guest.h"

enum { BLOCKS = 400 };
static void *held_by[3][BLOCKS];
static size_t live, peak, own[3], own_at_peak[3], blocks[3], blocks_at_peak[3];

static void took(int who, void *p)
{
    size_t size = malloc_usable_size(p);
    live += size;
    own[who] += size;
    blocks[who]++;
    if (live > peak) {
        peak = live;
        memcpy(own_at_peak, own, sizeof own);
        memcpy(blocks_at_peak, blocks, sizeof blocks);
    }
}
static void gave(int who, void *p)
{
    live -= malloc_usable_size(p);
    own[who] -= malloc_usable_size(p);
    blocks[who]--;
    free(p);
}
static NOINLINE void *first(size_t n) { return keep(malloc(n)); }
static NOINLINE void *second(size_t n) { return keep(malloc(n)); }
static NOINLINE void *third(size_t n) { return keep(calloc(1, n)); }

static void fill(int who, void *(*allocate)(size_t), int from, int to, size_t size)
{
    for (int i = from; i < to; i++)
        took(who, held_by[who][i] = allocate(size + 7 * (size_t)i));
}
static void drop(int who, int from, int to)
{
    for (int i = from; i < to; i++)
        gave(who, held_by[who][i]);
}

int main(void)
{
    fill(0, first, 0, 300, 1000);   // first peak
    drop(0, 100, 300);
    fill(1, second, 0, 350, 900);   // second peak, higher
    drop(0, 0, 50);
    fill(2, third, 0, 200, 600);    // the highest point is during these
    drop(1, 0, 300);
    fill(0, first, 100, 200, 500);  // rises, but not as high
    drop(2, 0, 200);
    drop(0, 50, 200);
    static const char *names[] = {"first", "second", "third"};
    for (int who = 0; who < 3; who++)
        say("known function:%s at_peak_bytes=%zu at_peak_blocks=%zu live_bytes=%zu "
            "live_blocks=%zu\n",
            names[who], own_at_peak[who], blocks_at_peak[who], own[who], blocks[who]);
    say("known function:main at_peak_bytes=%zu live_bytes=%zu\n", peak, live);
    say("known totals peak_bytes>=%zu\n", peak);
    return 0;
}
