//! Allocations before main, in constructors, and after main, in destructors.
//
// expect function:before_all allocations=3 requested_bytes=300 frees=3
// expect function:in_constructor allocations=2 requested_bytes=200 frees=2
// expect function:in_initializer allocations=1 requested_bytes=1000 frees=1
// expect function:in_destructor allocations=4 requested_bytes=400 frees=4
// expect function:at_the_end allocations=1 requested_bytes=64 frees=1
#include "guest.h"

static void *early[5];

static NOINLINE void before_all(int, char **, char **)
{
    for (int i = 0; i < 3; i++)
        early[i] = keep(malloc(100));
}
typedef void early_function(int, char **, char **);
__attribute__((section(".preinit_array"), used)) static early_function *preinit = before_all;

__attribute__((constructor)) static void in_constructor(void)
{
    for (int i = 3; i < 5; i++)
        early[i] = keep(malloc(100));
}
__attribute__((destructor)) static void in_destructor(void)
{
    for (int i = 0; i < 4; i++)
        free(keep(malloc(100)));
    say("destructor\n");
}

static NOINLINE char *in_initializer() { return keep(new char[1000]); }
static NOINLINE void at_the_end() { free(keep(malloc(64))); stay(); }

struct Static {
    char *bytes = in_initializer();
    ~Static()
    {
        delete[] bytes;
        at_the_end();
    }
};
static Static object;

int main()
{
    for (void *p : early)
        free(p);
    say("main\n");
    return 0;
}
