//! Preloaded with `libc_malloc_debug.so.0`, whose functions have versions that `dlsym` does not
//! find: its `mtrace` logs all allocations of the program, and `MALLOC_CHECK_` still aborts it.
//
// With the argument `overrun`, the program frees a block behind which it has written.
//
// expect recording lost_events=0
// expect function:traced allocations=6 reallocations=1 frees=3 requested_bytes=843 live_blocks=3
#include "guest.h"
#include <mcheck.h>

static NOINLINE void traced(void)
{
    void *block = keep(malloc(100));
    block = keep(realloc(block, 200));
    keep(malloc(300));
    free(block);
    CHECK(posix_memalign(&block, 64, 100) == 0);
    keep(aligned_alloc(64, 128));
    free(keep(calloc(3, 5)));
    stay();
}

static NOINLINE void overrun(void)
{
    char *block = keep(malloc(24));
    memset(block, 1, 25);
    free(block);
    say("not detected\n");
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "overrun") == 0) {
        overrun();
        return 0;
    }
    CHECK(setenv("MALLOC_TRACE", "lines", 1) == 0);
    mtrace();
    traced();
    muntrace();
    FILE *lines = fopen("lines", "r");
    CHECK(lines);
    char line[256], kinds[64] = "";
    while (fgets(line, sizeof line, lines)) {
        const char *kind = strchr(line, ']');
        if (line[0] == '@' && kind && strlen(kinds) + 2 < sizeof kinds)
            strncat(kinds, kind + 2, 1);
    }
    fclose(lines);
    say("%s\n", kinds); // "+<>+-+++-"
    return strcmp(kinds, "+<>+-+++-") == 0 ? 0 : 1;
}
