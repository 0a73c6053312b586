//! A program for the shipped monitors: 103 blocks of 6250 bytes, two of them in a part that it
//! marks, and with an argument a child that allocates 10 more.

#include "guest.h"
#include <sys/wait.h>

void heaptide_window_monitor_begin(void) __attribute__((weak));
void heaptide_window_monitor_end(void) __attribute__((weak));

static NOINLINE void *block(size_t size) { return keep(malloc(size)); }

int main(int argc, char **argv)
{
    void *a = block(1000), *b, *c;
    (void)argv;
    if (heaptide_window_monitor_begin)
        heaptide_window_monitor_begin();
    b = block(100);
    c = block(200);
    free(a);
    free(b);
    if (heaptide_window_monitor_end)
        heaptide_window_monitor_end();
    free(c);
    for (size_t i = 0; i < 100; i++)
        free(block(i));
    if (argc > 1) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 10; i++)
                free(block(10));
            exit(0);
        }
        CHECK(waitpid(child, NULL, 0) == child);
    }
    say("done\n");
    return 0;
}
