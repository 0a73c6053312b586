//! Performs a step for each byte that it reads, and echoes the byte: commands attach while it
//! waits.
//
//   a: 1000 blocks of 100 bytes by malloc, of which 990 are freed; 10 older ones are freed, and 3
//      older ones are resized to 300 bytes and kept
//   m: 100 texts of 5000 bytes with their ends (strdup), all freed
//   p: 100 blocks of 48 bytes through pointers to malloc and free that were read before
//   l: limits its address space to 512 MB by setrlimit64, and allocates 64 MiB below that
//   o: 20,000 blocks of 1000 bytes, which are written and kept
//   t: writes the title "name *:1" over its arguments, where name is that of its first argument
//   e: ends with status 7
//
// `amp` after a first attach: 1203 allocations (three of them by realloc), 1190 frees, 13 frees of
// older blocks, 13 live blocks with 1900 requested bytes, 1000 of them the largest.
#include "guest.h"
#include <sys/resource.h>
#include <unistd.h>

static void *before[10], *kept[10], *resized[3];
static void *(*volatile take)(size_t) = malloc;
static void (*volatile give)(void *) = free;

static NOINLINE void known(void)
{
    static void *blocks[1000];
    for (int i = 0; i < 1000; i++)
        blocks[i] = malloc(100);
    for (int i = 0; i < 990; i++)
        free(blocks[i]);
    memcpy(kept, blocks + 990, sizeof kept);
    for (int i = 0; i < 10; i++) {
        free(before[i]);
        before[i] = NULL;
    }
    for (int i = 0; i < 3; i++)
        resized[i] = realloc(resized[i], 300);
}

static NOINLINE void imported(void)
{
    static char text[5000];
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < 100; i++)
        free(strdup(text));
}

static NOINLINE void pointed(void)
{
    for (int i = 0; i < 100; i++)
        give(take(48));
}

static NOINLINE void limited(void)
{
    struct rlimit64 limit = {512000000, RLIM64_INFINITY}, set;
    CHECK(setrlimit64(RLIMIT_AS, &limit) == 0);
    CHECK(getrlimit64(RLIMIT_AS, &set) == 0 && set.rlim_cur == limit.rlim_cur);
    void *block = keep(malloc(64 << 20));
    CHECK(block != NULL);
    free(block);
}

static NOINLINE void kept_for_good(void)
{
    for (int i = 0; i < 20000; i++)
        memset(keep(malloc(1000)), 1, 1000);
}

static void set_title(char *first)
{
    size_t length = strlen(first);
    const char *name = strrchr(first, '/') + 1;
    char title[256];
    snprintf(title, sizeof title, "%s *:1", name);
    CHECK(strlen(title) <= length);
    memset(first, 0, length);
    strcpy(first, title);
}

int main(int count, char **words)
{
    CHECK(count == 1);
    for (int i = 0; i < 10; i++)
        before[i] = calloc(1, 64 + i);
    for (int i = 0; i < 3; i++)
        resized[i] = malloc(40);
    char step;
    CHECK(write(1, "r", 1) == 1);
    while (read(0, &step, 1) == 1) {
        if (step == 'a')
            known();
        if (step == 'm')
            imported();
        if (step == 'p')
            pointed();
        if (step == 'o')
            kept_for_good();
        if (step == 't')
            set_title(words[0]);
        if (step == 'l')
            limited();
        if (step == 'e')
            return 7;
        CHECK(write(1, &step, 1) == 1);
    }
    return 0;
}
