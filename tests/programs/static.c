//! A static program at a fixed address: it has no loader, so it is not recorded, and not affected.
//
// build: -static -no-pie
// not recorded
#include "guest.h"

int main(void)
{
    for (size_t i = 0; i < 1000; i++)
        free(keep(malloc(i)));
    say("static\n");
    return 12;
}
