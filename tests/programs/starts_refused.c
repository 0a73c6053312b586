//! Makes the kernel deny system calls, and executes the program in its other arguments: `ERRNO
//! NUMBER,NUMBER,… PROGRAM …`. Children inherit that.
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

enum { CALLS_MAX = 64, NOT_HERE = 77 };

int main(int count, char **words)
{
    CHECK(count > 3);
    struct sock_filter code[2 * CALLS_MAX + 2] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)};
    unsigned short length = 1;
    for (char *next = words[2]; *next; next += *next == ',') {
        unsigned call = (unsigned)strtoul(next, &next, 10);
        CHECK(length < 2 * CALLS_MAX);
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(
            BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)strtoul(words[1], NULL, 10));
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {length, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return NOT_HERE;
    execv(words[3], words + 3);
    return NOT_HERE;
}
