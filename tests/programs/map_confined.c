//! A program confined by seccomp: mappings are recorded, except shared memory, whose size requires
//! a system call.
//
// losses: allowed
// expect recording processes=1
// mapped totals allocations=1 frees=1 usable_bytes=8192 freed_bytes=8192 live_bytes=0
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>

int main(void)
{
    struct sock_filter filter[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, filter};
    free(keep(malloc(100)));
    int id = shmget(IPC_PRIVATE, 8192, IPC_CREAT | 0600);
    CHECK(id >= 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    char *mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    char *shared = shmat(id, NULL, 0);
    CHECK(shared != (char *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    mapped[0] = shared[0] = 1;
    CHECK(shmdt(shared) == 0 && munmap(mapped, 8192) == 0);
    return 0;
}
