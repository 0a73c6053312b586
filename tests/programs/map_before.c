//! Ranges unknown to the recorder, because they were mapped by direct system calls, like those
//! mapped before its start: unmapping them counts nothing, and mappings over them count only their
//! own pages.
//
// expect recording processes=1
// mapped function:known allocations=2 frees=2 usable_bytes=24576 freed_bytes=24576 live_bytes=0
// mapped function:moved allocations=1 frees=0 usable_bytes=65536 live_bytes=65536
// mapped totals live_bytes=65536 freed_bytes=24576
#include "guest.h"
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096L

static NOINLINE char *direct(size_t pages)
{
    register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS;
    register long fd __asm__("r8") = -1;
    register long offset __asm__("r9") = 0;
    char *start = (char *)SYS_mmap;
    __asm__ volatile("syscall"
                     : "+a"(start)
                     : "D"(0L), "S"(pages * PAGE), "d"(PROT_READ | PROT_WRITE), "r"(flags),
                       "r"(fd), "r"(offset)
                     : "rcx", "r11", "memory");
    CHECK((uintptr_t)start < -4096UL);
    return start;
}
static NOINLINE void known(char *at, size_t pages)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    CHECK(mmap(at, pages * PAGE, PROT_READ, flags, -1, 0) == at);
}
static NOINLINE char *moved(char *p)
{
    return keep(mremap(p, 4 * PAGE, 16 * PAGE, MREMAP_MAYMOVE));
}

int main(void)
{
    char *first = direct(16);
    CHECK(munmap(first, 2 * PAGE) == 0);
    known(first + 4 * PAGE, 4);
    CHECK(munmap(first, 6 * PAGE) == 0);   // two known pages, and unknown ones
    CHECK(munmap(first, 16 * PAGE) == 0);  // the other two
    CHECK(moved(direct(4)) != MAP_FAILED);
    char *third = direct(2);
    known(third, 2);
    CHECK(munmap(third, 2 * PAGE) == 0);
    return 0;
}
