//! Generated code under strict seccomp: code that the recorder has not seen before runs while only
//! read, write and exit are allowed. Its address is the same in every run.
//
// expect function:before allocations=1 requested_bytes=100
// expect function:within allocations=1 requested_bytes=200
#include "guest.h"
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

typedef void *(*function)(void *(*)(size_t), size_t);

static NOINLINE void before(function call) { free(keep(call(malloc, 100))); stay(); }
static NOINLINE void within(function call) { free(keep(call(malloc, 200))); stay(); }

int main(void)
{
    // push %rbp; mov %rsp, %rbp; mov %rdi, %rax; mov %rsi, %rdi; call *%rax; pop %rbp; ret
    unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48,
                            0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
    unsigned char *place = mmap((void *)0x600000000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(place != MAP_FAILED);
    memcpy(place, code, sizeof code);
    memcpy(place + 1024, code, sizeof code);
    before((function)place);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    within((function)(place + 1024));
    say("strict\n");
    syscall(SYS_exit, 15);
    return 0;
}
