//! Confines itself, and executes the program in its other arguments: with `mdwe` the kernel denies
//! executable memory, and `errno` and `kill` are filters that deny it or kill the program for it.
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { SET_MDWE = 65, REFUSE_EXEC_GAIN = 1, NOT_HERE = 77 };

// The low half of the third argument of mprotect.
#define PROTECTION (offsetof(struct seccomp_data, args) + 2 * sizeof(long))

static int filter(unsigned action)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, PROTECTION),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int count, char **words)
{
    CHECK(count > 2);
    int status = -1;
    if (!strcmp(words[1], "mdwe"))
        status = prctl(SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0);
    else if (!strcmp(words[1], "errno"))
        status = filter(SECCOMP_RET_ERRNO | EPERM);
    else
        status = filter(SECCOMP_RET_KILL_PROCESS);
    if (status != 0)
        return NOT_HERE;
    execv(words[2], words + 2);
    return NOT_HERE;
}
