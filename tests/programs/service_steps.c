//! Performs one step for each letter on standard input, and echoes the letter when it is done.
//
// m: grows allocates a block of 1 MiB and touches it. d: frees the last allocated block. c: forks a
// child that performs the steps up to the next `q` or `x` and echoes them; the parent waits for it.
// x: exits with status 3. k: kills itself. q, or end of input: exits with status 0.
#include "guest.h"
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { KEPT = 4096, BLOCK = 1 << 20 };
static void *kept[KEPT];
static int held;

static NOINLINE void grows(void)
{
    if (held < KEPT) {
        kept[held] = keep(malloc(BLOCK));
        memset(kept[held++], 1, BLOCK);
    }
    stay();
}

int main(void)
{
    char step;
    while (read(0, &step, 1) == 1) {
        switch (step) {
        case 'm': grows(); break;
        case 'd':
            if (held > 0)
                free(kept[--held]);
            break;
        case 'c': {
            pid_t child = fork();
            if (child == 0)
                continue;
            waitpid(child, NULL, 0);
            break;
        }
        case 'x': exit(3);
        case 'k': raise(SIGKILL); break;
        case 'q': exit(0);
        default: return 98;
        }
        if (write(1, &step, 1) != 1)
            return 97;
    }
    return 0;
}
