//! Few allocations in a long time, and an end that is not recorded: it aborts.
//
// expect function:main allocations=20 requested_bytes=20000
#include "guest.h"

int main(void)
{
    for (int i = 0; i < 20; i++) {
        keep(malloc(1000));
        usleep(20000);
    }
    abort();
}
