//! Twenty allocations, each followed by 20 ms, and an end that is not recorded: it aborts.
//
// expect function:main allocations=20 requested_bytes=20000
#include "clock.h"

int main(void)
{
    for (int i = 0; i < 20; i++) {
        keep(malloc(1000));
        pass_us(20000);
    }
    abort();
}
