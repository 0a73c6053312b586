//! Allocates on 65 536 distinct stacks: far more than a small disk can hold.

#include "guest.h"

int main(void)
{
    unsigned long sum = 0;
    for (unsigned i = 0; i < 100000; i++) {
        unsigned char *p = (unsigned char *)branch(i, 16, 30);
        p[29] = (unsigned char)i;
        sum += p[29];
    }
    say("sum %lu\n", sum);
    return 3;
}
