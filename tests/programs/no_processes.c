//! Sets its limit of processes to zero, so that none can be started at its exit.
//
// Root is exempt from the limit, so it switches to another user first.
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

int main(void)
{
    struct rlimit none = {0, 0};
    free(keep(malloc(100)));
    if (geteuid() == 0)
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
    CHECK(fork() == -1 && errno == EAGAIN);
    say("no processes\n");
    return 7;
}
