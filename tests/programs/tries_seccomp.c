//! The program only checks whether it could confine itself, like libraries: the recorder keeps
//! making system calls, and a profile that grows by megabytes loses nothing.
//
// expect recording lost_events=0
// expect function:main allocations=30000 requested_bytes=1200000
#include "guest.h"
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(void)
{
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == -1 && errno == EFAULT);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1);
    for (unsigned i = 0; i < 30000; i++)
        CHECK(branch(i, 15, 40) != NULL);
    say("not confined\n");
    return 0;
}
