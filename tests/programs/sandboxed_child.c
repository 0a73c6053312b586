//! A child confines itself before it allocates, with a filter that kills it for opening or mapping
//! a file; and a confined process has such a child, too. Neither is killed, and the first is
//! recorded, with several pages of stacks.
//
// losses: allowed
// expect recording processes=2
// expect function:in_parent allocations=1 requested_bytes=100
// expect function:main>sandboxed>several_pages>in_sandbox allocations=50 requested_bytes=10000
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define KILL(call)                                                                        \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1),                                   \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static NOINLINE void *in_parent(void) { return keep(malloc(100)); }
static NOINLINE void *in_sandbox(void) { return keep(malloc(200)); }
static NOINLINE void several_pages(void)
{
    volatile char pages[3 << 12];
    pages[0] = 1;
    in_sandbox();
    pages[sizeof pages - 1] = 1;
}
static NOINLINE void *not_recorded(void) { return keep(malloc(300)); }

static void confine(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        KILL(SYS_openat), KILL(SYS_open), KILL(SYS_mkdir), KILL(SYS_fallocate), KILL(SYS_madvise),
        KILL(SYS_readlink), KILL(SYS_uname), KILL(SYS_prlimit64),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}

static int wait_for(pid_t pid)
{
    int status = 0;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int sandboxed(void)
{
    confine();
    for (int i = 0; i < 50; i++)
        several_pages();
    pid_t pid = fork();
    if (pid == 0) {
        not_recorded();
        _exit(5);
    }
    return wait_for(pid) + 1;
}

int main(void)
{
    in_parent();
    pid_t pid = fork();
    if (pid == 0)
        _exit(sandboxed());
    say("%d\n", wait_for(pid));
    return 0;
}
