//! Threads with stacks of 16 KiB whose handlers allocate on alternate stacks of the smallest size:
//! that which suffices without the recorder, plus 2 KiB for the recorder.
//
// expect function:handler allocations=1600 frees=1600
// expect function:work allocations=6400 frees=6400
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>

enum { HANDLER = 1280, RECORDER = 2048, PAGE = 4096, SMALLEST = 16384 };

static __thread int handled;

static NOINLINE void handler(int signal)
{
    (void)signal;
    for (size_t i = 0; i < 5; i++)
        free(keep(malloc(10 + i)));
    handled++;
}
static NOINLINE void work(void)
{
    for (int i = 0; i < 20; i++)
        free(keep(malloc(64)));
}

static void *run(void *unused)
{
    size_t frame = getauxval(AT_MINSIGSTKSZ) ? getauxval(AT_MINSIGSTKSZ) : MINSIGSTKSZ;
    size_t size = (frame + HANDLER + RECORDER + 15) & ~(size_t)15;
    size_t whole = PAGE + (size + PAGE - 1) / PAGE * PAGE;
    char *memory =
        (char *)mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // Its lower end is a page that must not be touched.
    CHECK(memory != MAP_FAILED && mprotect(memory, PAGE, PROT_NONE) == 0);
    stack_t stack = {.ss_sp = memory + PAGE, .ss_size = size};
    CHECK(sigaltstack(&stack, NULL) == 0);
    for (int i = 0; i < 5; i++) {
        work();
        CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
    }
    CHECK(handled == 5);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0 && munmap(memory, whole) == 0);
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstacksize(&attributes, SMALLEST) == 0);
    for (int round = 0; round < 8; round++) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++)
            CHECK(pthread_create(&threads[i], &attributes, run, NULL) == 0);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
    }
    say("handled\n");
    return 0;
}
