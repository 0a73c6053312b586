//! Exports its own malloc, which forwards nothing: no call reaches the recorder.
//
// expect totals allocations=0
#include "guest.h"

static char memory[1 << 20];
static size_t used;

void *malloc(size_t size)
{
    used = (used + 15) & ~(size_t)15;
    if (size > sizeof memory - used)
        return NULL;
    used += size;
    return memory + used - size;
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *block, size_t size)
{
    void *moved = malloc(size);
    if (moved && block)
        memcpy(moved, block, size);
    return moved;
}

int main(void)
{
    for (int i = 0; i < 100; i++)
        keep(malloc(100));
    say("%d\n", used >= 10000);
    return 0;
}
