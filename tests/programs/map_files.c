//! Mapped files, memory with only a descriptor, stacks, and mappings made with `syscall`: their
//! classes and names.
//
// expect recording processes=1
// mapped class:file live_bytes=4096
// mapped class:library live_bytes=4096
// mapped class:shared live_bytes=12288
// mapped class:thread_stack live_bytes=16384
// mapped class:other live_bytes=8192
// mapped leaf:[/memfd:known] allocations=1 usable_bytes=8192
// mapped leaf:[/proc/self/exe] allocations=0
// mapped function:by_syscall allocations=2 frees=1 usable_bytes=20480 live_bytes=8192
// mapped totals allocations=7
#include "guest.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096L

static NOINLINE char *map(size_t bytes, int protection, int flags, int fd)
{
    char *start = mmap(NULL, bytes, protection, flags, fd, 0);
    CHECK(start != MAP_FAILED);
    return keep(start);
}
static NOINLINE void by_syscall(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    long start = syscall(SYS_mmap, 0, 3 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(start != -1);
    start = syscall(SYS_mremap, start, 3 * PAGE, 2 * PAGE, 0, 0);
    CHECK(start != -1 && *(char *)start == 0);
    errno = 0;
    CHECK(syscall(SYS_munmap, start + 1, PAGE) == -1 && errno == EINVAL);
    stay();
}

int main(void)
{
    int program = open("/proc/self/exe", O_RDONLY);
    CHECK(program >= 0);
    map(100, PROT_READ, MAP_PRIVATE, program);
    map(100, PROT_READ | PROT_EXEC, MAP_PRIVATE, program);
    int memory = memfd_create("known", 0);
    CHECK(memory >= 0 && ftruncate(memory, 2 * PAGE) == 0);
    map(2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory);
    map(PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1);
    map(4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1);
    by_syscall();
    return 0;
}
