//! Memory that is reserved without access (`PROT_NONE`) and opened in parts by mprotect: each part
//! is a mapping of the code that opens it, and memory of the program until it is closed or
//! unmapped. Other changes of protection are no mappings.
//
// expect recording processes=1
// mapped function:reserve allocations=1 frees=0 usable_bytes=262144 freed_bytes=53248
// mapped function:open_first allocations=1 frees=1 usable_bytes=16384 live_bytes=0
// mapped function:open_more allocations=1 frees=0 usable_bytes=24576 live_bytes=8192
// mapped function:by_syscall allocations=1 frees=0 usable_bytes=12288 live_bytes=12288
// mapped function:close_part allocations=1 frees=0 usable_bytes=8192 live_bytes=4096
// mapped function:open_again allocations=1 frees=0 usable_bytes=4096 live_bytes=4096
// mapped function:readable allocations=1 frees=0 usable_bytes=16384 live_bytes=16384
// mapped totals allocations=7 live_bytes=253952
// program function:main at_peak_bytes=69632 live_bytes=40960
// program function:reserve live_bytes=0
// program function:open_first at_peak_bytes=16384 live_bytes=0
// program function:open_more at_peak_bytes=24576 live_bytes=8192
// program function:by_syscall at_peak_bytes=12288 live_bytes=12288
// program function:open_again at_peak_bytes=0 live_bytes=4096
// program function:readable at_peak_bytes=16384 live_bytes=16384
#include "guest.h"
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096L

enum { READ_WRITE = PROT_READ | PROT_WRITE };

static NOINLINE char *map(size_t bytes, int protection)
{
    char *start = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    return keep(start);
}
static NOINLINE char *reserve(void) { return keep(map(64 * PAGE, PROT_NONE)); }
static NOINLINE char *readable(void) { return keep(map(4 * PAGE, PROT_READ)); }
static NOINLINE void protect(char *at, long pages, int protection)
{
    CHECK(mprotect(at, pages * PAGE, protection) == 0);
    stay();
}
static NOINLINE void open_first(char *at) { protect(at, 4, READ_WRITE); stay(); }
static NOINLINE void open_more(char *at) { protect(at + 2 * PAGE, 8, READ_WRITE); stay(); }
static NOINLINE void by_syscall(char *at)
{
    CHECK(syscall(SYS_mprotect, at + 20 * PAGE, 3 * PAGE, READ_WRITE) == 0);
    stay();
}
static NOINLINE void close_part(char *at) { protect(at + 8 * PAGE, 4, PROT_NONE); stay(); }
static NOINLINE void open_again(char *at) { protect(at + 8 * PAGE, 1, PROT_READ); stay(); }
static NOINLINE void changes_nothing(char *reserved, char *others)
{
    protect(reserved, 2, PROT_READ);
    protect(others, 1, PROT_NONE);  // was not reserved: a guard page
    protect(others, 1, READ_WRITE);
    errno = 0;
    CHECK(mprotect(reserved + 40 * PAGE + 1, PAGE, READ_WRITE) == -1 && errno == EINVAL);
    stay();
}

int main(void)
{
    char *others = readable(), *reserved = reserve();
    open_first(reserved);
    open_more(reserved);
    by_syscall(reserved);
    memset(reserved, 1, 10 * PAGE);
    memset(reserved + 20 * PAGE, 1, 3 * PAGE);
    changes_nothing(reserved, others);
    close_part(reserved);
    open_again(reserved);
    CHECK(munmap(reserved, 6 * PAGE) == 0);
    return 0;
}
