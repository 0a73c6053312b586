//! A handler allocates on the smallest alternate stack that suffices without the recorder, plus 2
//! KiB for the recorder.
//
// expect function:handler allocations=50 frees=49
#include "guest.h"
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>

enum { HANDLER = 1280, RECORDER = 2048, PAGE = 4096 };

static volatile sig_atomic_t handled;

static NOINLINE void handler(int signal)
{
    (void)signal;
    for (unsigned i = 1; i < 50; i++)
        free(keep(malloc(i * 10)));
    keep(malloc(5000));
    handled = 1;
}

int main(void)
{
    size_t frame = getauxval(AT_MINSIGSTKSZ) ? getauxval(AT_MINSIGSTKSZ) : MINSIGSTKSZ;
    size_t size = (frame + HANDLER + RECORDER + 15) & ~(size_t)15;
    size_t whole = (size + PAGE - 1) / PAGE * PAGE;
    char *memory = (char *)mmap(NULL, PAGE + whole, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory, PAGE, PROT_NONE) == 0);
    // Its lower end is a page that must not be touched.
    stack_t stack = {.ss_sp = memory + PAGE, .ss_size = size};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    say("handled: %d\n", handled);
    return 0;
}
