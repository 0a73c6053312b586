//! Installs a seccomp filter, and then performs a step for each byte that it reads, and echoes the
//! byte: `m` allocates and frees 100 blocks. Ends with status 7, or 8 if a call failed. Its
//! argument names the filter:
//
//   container: system calls with unknown numbers fail, as in containers
//   unknown: they end the program
//   deny: all calls except those that the program makes fail
//   kill, trap: they end the program
#include "guest.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

// Above all numbers of system calls, but not above that which stands for none.
enum { UNKNOWN = 1000 };

static const int own[] = {SYS_read,  SYS_write,      SYS_brk,     SYS_mmap,  SYS_munmap,
                          SYS_futex, SYS_exit_group, SYS_madvise, SYS_fstat, SYS_mprotect,
                          SYS_getrandom};
enum { OWN = sizeof own / sizeof *own };

static unsigned action_of(const char *name)
{
    if (strcmp(name, "container") == 0)
        return SECCOMP_RET_ERRNO | ENOSYS;
    if (strcmp(name, "deny") == 0)
        return SECCOMP_RET_ERRNO | EPERM;
    return strcmp(name, "trap") == 0 ? SECCOMP_RET_TRAP : SECCOMP_RET_KILL_PROCESS;
}

static void install(const char *name)
{
    struct sock_filter code[OWN + 4], load = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    unsigned short count = 0;
    code[count++] = load;
    if (strcmp(name, "container") == 0 || strcmp(name, "unknown") == 0) {
        struct sock_filter jump = BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, UNKNOWN, 0, 1);
        code[count++] = jump;
    } else {
        for (unsigned char i = 0; i < OWN; i++) {
            unsigned number = (unsigned)own[i];
            struct sock_filter jump = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, OWN - i, 0);
            code[count++] = jump;
        }
    }
    struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, action_of(name));
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[count++] = refuse;
    code[count++] = allow;
    struct sock_fprog program = {count, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static NOINLINE void known(void)
{
    for (int i = 0; i < 100; i++)
        free(keep(malloc(100)));
}

int main(int count, char **words)
{
    CHECK(count == 2);
    install(words[1]);
    say("r");
    char step;
    ssize_t length;
    while ((length = read(0, &step, 1)) == 1) {
        if (step == 'm')
            known();
        if (write(1, &step, 1) != 1)
            return 8;
    }
    return length == 0 ? 7 : 8;
}
