//! Coroutines on their own stacks, switched with swapcontext: each block is charged to the stack of
//! its coroutine.
//
// expect function:even allocations=400 frees=400 requested_bytes=4000
// expect function:odd allocations=400 frees=400 requested_bytes=8000
// expect function:in_main allocations=100 frees=100
// expect function:main>in_main allocations=100
// expect function:odd>even allocations=0
// expect function:even>odd allocations=0
#include "guest.h"
#include <ucontext.h>

static ucontext_t home, contexts[8];
static char stacks[8][64 * 1024] __attribute__((aligned(64)));

static NOINLINE void *even(int depth) { return depth ? keep(even(depth - 1)) : keep(malloc(10)); }
static NOINLINE void *odd(int depth) { return depth ? keep(odd(depth - 1)) : keep(malloc(20)); }
static NOINLINE void in_main(void) { free(keep(malloc(30))); stay(); }

static void body(int number)
{
    for (int i = 0; i < 100; i++) {
        void *p = number % 2 ? odd(number) : even(number);
        swapcontext(&contexts[number], &home);
        free(p);
    }
    swapcontext(&contexts[number], &home);
}

int main(void)
{
    for (int i = 0; i < 8; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = sizeof stacks[i];
        contexts[i].uc_link = &home;
        makecontext(&contexts[i], (void (*)(void))body, 1, i);
    }
    for (int round = 0; round < 101; round++) {
        for (int i = 0; i < 8; i++)
            swapcontext(&home, &contexts[i]);
        if (round < 100)
            in_main();
    }
    say("switched\n");
    return 0;
}
