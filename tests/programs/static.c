//! A static program at a fixed address: no loader, so not recorded, and unharmed.
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
