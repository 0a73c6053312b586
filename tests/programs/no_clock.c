//! A program that disables the time stamp counter for itself, which the C library's clocks use,
//! too: the recorder still takes samples and records events.
//
// expect function:churn allocations=20000 frees=20000
#include "guest.h"
#include <sys/prctl.h>

static NOINLINE void churn(void) { free(keep(malloc(1000))); stay(); }

int main(void)
{
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) != 0)
        return 1;
    for (int i = 0; i < 20000; i++)
        churn();
    return 0;
}
