//! System V shared memory, attached twice and detached.
//
// expect recording processes=1
// mapped function:attach allocations=2 frees=1 requested_bytes=20000 usable_bytes=24576
// mapped function:attach live_bytes=12288 freed_bytes=12288
// mapped class:shared live_bytes=12288 at_peak_bytes=24576
// mapped leaf:[/SYSV00000000] allocations=2
#include "guest.h"
#include <sys/ipc.h>
#include <sys/shm.h>

static NOINLINE char *attach(int id, int flags)
{
    char *start = shmat(id, NULL, flags);
    CHECK(start != (void *)-1);
    return keep(start);
}

int main(void)
{
    int id = shmget(IPC_PRIVATE, 10000, IPC_CREAT | 0600);
    CHECK(id >= 0);
    char *first = attach(id, 0), *second = attach(id, SHM_RDONLY);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    strcpy(first, "shared");
    CHECK(strcmp(second, "shared") == 0);
    CHECK(shmdt(first + 1) == -1 && errno == EINVAL);
    CHECK(shmdt(first) == 0);
    errno = 0;
    CHECK(shmat(-1, NULL, 0) == (void *)-1 && errno == EINVAL);
    return 0;
}
