//! A static program with musl: not recorded, and not affected.
//
// compiler: musl-gcc
// build: -static
// not recorded
#include "guest.h"

int main(void)
{
    for (size_t i = 0; i < 1000; i++)
        free(keep(malloc(i)));
    say("static musl\n");
    return 14;
}
