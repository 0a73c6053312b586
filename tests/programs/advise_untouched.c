//! `heaptide advise`: 64 buffers of 1 MiB, of which only 10,000 bytes each are touched. With
//! -DALIKE all bytes are touched. With -DONE there is one buffer of 64 MiB instead.
//
// clock: set
//   open_channel  64 blocks of 1 MiB
//   read_config   one block of 1 MiB, touched completely
#include "clock.h"

#ifdef ONE
enum { CHANNELS = 1, BUFFER = 64 << 20 };
#else
enum { CHANNELS = 64, BUFFER = 1 << 20 };
#endif
enum { CONFIG = 1 << 20, TICKS = 300, TICK_US = 2000, TICK_BYTES = 300000 };

#ifdef ALIKE
enum { USED = BUFFER };
#else
enum { USED = 10000 };
#endif

static NOINLINE char *open_channel(void) { return keep(malloc(BUFFER)); }
static NOINLINE char *read_config(void) { return keep(malloc(CONFIG)); }

int main(void)
{
    char *channels[CHANNELS], *config = read_config();
    memset(config, 1, CONFIG);
    for (int i = 0; i < CHANNELS; i++) {
        channels[i] = open_channel();
        memset(channels[i], 1, USED);
    }
    // Waits for an account of memory, which is taken with samples.
    for (int i = 0; i < TICKS; i++) {
        free(keep(malloc(TICK_BYTES)));
        pass_us(TICK_US);
    }
    for (int i = 0; i < CHANNELS; i++)
        free(channels[i]);
    free(config);
    return 0;
}
