//! `heaptide advise`: a buffer of 32 MiB is live for a twentieth of the run at most, on a machine
//! of any speed, in addition to 1 MiB. With -DALIKE it is live for a third of the run or more. With
//! -DSLOW other memory grows in small steps before and after.
//
// clock: set
//   sort_all  one block
#include "clock.h"

#ifdef SLOW
enum { TICK_BYTES = 100000 };
#else
enum { TICK_BYTES = 300000 };
#endif
enum { TICKS = 100, TICK_US = 2000, BUFFER = 32 << 20, RUN_TO_PEAK = 20 };

#ifdef SLOW
// Each tick leaves a little.
static NOINLINE void *result(void) { return keep(malloc(20000)); }
#endif

static NOINLINE void *tick(void) { return keep(malloc(TICK_BYTES)); }

#ifdef STEPS
enum { PARTS = 64, PART = BUFFER / PARTS - 64 };

static void *parts[PARTS];

static NOINLINE void *sort_all(void)
{
    for (int i = 0; i < PARTS; i++) {
        parts[i] = keep(memset(malloc(PART), 1, PART));
        pass_us(TICK_US / 10);
    }
    return NULL;
}

static void release(void *unused)
{
    (void)unused;
    for (int i = 0; i < PARTS; i++)
        free(parts[i]);
}
#else
static NOINLINE void *sort_all(void) { return keep(memset(malloc(BUFFER), 1, BUFFER)); }
static void release(void *buffer) { free(buffer); }
#endif

// Works for `ticks` at least, each with a sample, and until `end_us`.
static void work(int ticks, uint64_t end_us)
{
    for (int i = 0; i < ticks || now_us() < end_us; i++) {
        free(tick());
        pass_us(TICK_US);
#ifdef SLOW
        result();
#endif
    }
}

int main(void)
{
    void *base = keep(malloc(1 << 20)), *buffer;
    uint64_t began = now_us(), lasts;
    work(TICKS, 0);
    lasts = now_us();
    work(1, 0);
    buffer = sort_all();
#ifdef ALIKE
    work(TICKS, 2 * now_us() - began);
#endif
    release(buffer);
    work(1, 0);
    lasts = now_us() - lasts;
#ifdef ALIKE
    work(TICKS, 0);
#else
    work(TICKS, now_us() + lasts * RUN_TO_PEAK);
#endif
    free(base);
    return 0;
}
