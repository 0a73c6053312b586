//! Landlock forbids opening files for writing, as in xz: what is allocated afterwards, also by a
//! thread, is recorded. Where the kernel lacks Landlock, nothing is forbidden.
//
// build: -pthread
// expect function:here allocations=16384 frees=16384 requested_bytes=655360
// expect function:worker allocations=16384 frees=16384 requested_bytes=655360
#include "guest.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self 446
#endif

// LANDLOCK_ACCESS_FS_WRITE_FILE and LANDLOCK_ACCESS_FS_MAKE_REG: older systems lack the header.
static const uint64_t WRITING = 1 << 1 | 1 << 8;

static NOINLINE void here(void)
{
    for (unsigned i = 0; i < 16384; i++)
        free(branch(i, 14, 40));
}

static NOINLINE void *worker(void *unused)
{
    for (unsigned i = 0; i < 16384; i++)
        free(branch(i, 14, 40));
    return unused;
}

int main(void)
{
    int rules = (int)syscall(SYS_landlock_create_ruleset, &WRITING, sizeof WRITING, 0);
    if (rules >= 0) {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(syscall(SYS_landlock_restrict_self, rules, 0) == 0);
        CHECK(open("landlocked", O_CREAT | O_WRONLY, 0600) == -1 && errno == EACCES);
        close(rules);
    }
    here();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, worker, NULL) == 0 && pthread_join(thread, NULL) == 0);
    say("landlocked\n");
    return 0;
}
