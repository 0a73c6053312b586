//! A program that pauses MaxMemoryPreload while it allocates; with -DPAUSE, the library in which it
//! defines the functions for that.
//
// Known: blocks of 100000 and 5000 bytes, of which the first is freed: 100008 and 5000 usable bytes
// with glibc. A block of 1000000 bytes is not counted.
void pauseMaxMemoryPreload();
void unpauseMaxMemoryPreload();

#ifdef PAUSE

void pauseMaxMemoryPreload() {}
void unpauseMaxMemoryPreload() {}

#else
#include <cstdlib>

static void *volatile kept;

int main()
{
    kept = std::malloc(100000);
    std::free(kept);
    pauseMaxMemoryPreload();
    kept = std::malloc(1000000);
    unpauseMaxMemoryPreload();
    kept = std::malloc(5000);
    return 0;
}
#endif
