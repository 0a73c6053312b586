//! Exec in place: one process, three images, each with a profile; a failed exec has no effect.
//
// expect recording processes=3
// expect function:image_0 allocations=12 live_blocks=12
// expect function:image_1 allocations=24 live_blocks=24
// expect function:image_2 allocations=36 live_blocks=36
#include "guest.h"

static NOINLINE void *image_0(void) { return keep(malloc(10)); }
static NOINLINE void *image_1(void) { return keep(malloc(10)); }
static NOINLINE void *image_2(void) { return keep(malloc(10)); }

int main(int count, char **words)
{
    static char *const next[] = {"exec", "1", NULL}, *const last[] = {"exec", "1", "2", NULL};
    char *path = count == 1 ? words[0] : getenv("PROGRAM");
    switch (count) {
    case 1:
        for (int i = 0; i < 6; i++)
            image_0();
        CHECK(execv("/no/such/program", next) == -1 && errno == ENOENT);
        for (int i = 0; i < 6; i++)
            image_0();
        setenv("PROGRAM", path, 1);
        execv(path, next);
        return 97;
    case 2:
        for (int i = 0; i < 24; i++)
            image_1();
        execve(path, last, environ);
        return 96;
    default:
        for (int i = 0; i < 36; i++)
            image_2();
        say("third image\n");
        return 6;
    }
}
