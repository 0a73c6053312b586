//! A seccomp filter that denies every call with which a file could grow or be mapped: the program
//! continues.
//
// losses: allowed
// order: varies
// expect function:before allocations=100 frees=100
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define REFUSE(call)                                                                      \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1),                                   \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

static NOINLINE void before(void) { free(keep(malloc(1000))); stay(); }

int main(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        REFUSE(SYS_openat), REFUSE(SYS_open), REFUSE(SYS_fallocate), REFUSE(SYS_ftruncate),
        REFUSE(SYS_mmap), REFUSE(SYS_mremap), REFUSE(SYS_madvise), REFUSE(SYS_pwrite64),
        REFUSE(SYS_fcntl), REFUSE(SYS_gettid), REFUSE(SYS_getpid), REFUSE(SYS_clock_gettime),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    for (int i = 0; i < 100; i++)
        before();
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    for (unsigned i = 0; i < 100000; i++) {
        char *p = (char *)branch(i, 16, 40);
        CHECK(p != NULL);
        p[39] = 1;
    }
    say("filtered\n");
    return 16;
}
