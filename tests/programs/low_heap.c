//! The heap starts below 4 MiB: a program linked at 2 MiB, run without address randomisation.
//
// expect function:low allocations=10 requested_bytes=1000 frees=5 live_blocks=5
// build: -fno-pie -no-pie -Wl,-Ttext-segment=0x200000
#include "guest.h"
#include <stdint.h>
#include <sys/personality.h>

static NOINLINE void *low(void)
{
    void *p = keep(malloc(100));
    stay();
    return p;
}

int main(int argc, char **argv)
{
    int now = personality(0xffffffff);
    int may = now != -1;
    if (argc > 0 && may && !(now & ADDR_NO_RANDOMIZE)) {
        may = personality((unsigned long)now | ADDR_NO_RANDOMIZE) != -1;
        if (may)
            execv("/proc/self/exe", argv);
    }
    for (int i = 0; i < 10; i++) {
        void *p = low();
        CHECK(!may || (uintptr_t)p < 4u << 20);
        if (i % 2)
            free(p);
    }
    say("10 blocks\n");
    return 0;
}
