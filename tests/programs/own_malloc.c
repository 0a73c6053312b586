//! A program with its own malloc hooks, which look up the next ones with dlsym, which itself
//! allocates.
//
// expect function:counted>malloc allocations=1000 frees=1000 requested_bytes=32000
// build: -ldl -fno-builtin
#include "guest.h"
#include <dlfcn.h>

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void (*next_free)(void *);
static char pool[1 << 16];
static size_t used, calls, looking;

static void *from_pool(size_t size)
{
    void *p = pool + used;
    used += (size + 15) & ~(size_t)15;
    CHECK(used <= sizeof pool);
    return p;
}
void *malloc(size_t size)
{
    if (looking)
        return from_pool(size);
    if (!next_malloc) {
        looking = 1;
        next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
        looking = 0;
    }
    calls++;
    return keep(next_malloc(size));
}
void *calloc(size_t n, size_t size)
{
    if (looking)
        return from_pool(n * size);
    if (!next_calloc) {
        looking = 1;
        next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
        looking = 0;
    }
    return keep(next_calloc(n, size));
}
void free(void *p)
{
    if (looking || ((char *)p >= pool && (char *)p < pool + sizeof pool))
        return;
    if (!next_free)
        next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next_free(p);
    stay();
}

static NOINLINE void counted(void)
{
    for (int i = 0; i < 1000; i++)
        free(keep(malloc(32)));
}

int main(void)
{
    counted();
    CHECK(dlsym(RTLD_DEFAULT, "no_such_function") == NULL && dlerror() != NULL);
    CHECK(calls >= 1000);
    say("hooked\n");
    return 0;
}
