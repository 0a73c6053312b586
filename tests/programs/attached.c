// A program that a command attaches to while it waits. It does a step for each byte that it reads,
// and answers with that byte.
//
//   a: 1000 blocks of 100 bytes by malloc, of which 990 are freed; 10 from before by calloc are
//      freed, and 3 from before are resized to 300 bytes and kept
//   m: 100 blocks of 5000 bytes through a library's own import (strdup), all freed
//   p: 100 blocks of 48 bytes by a pointer to malloc that was taken before, all freed by one
//   e: ends with status 7
//
// Between a first attach and its detach, `a` counts 1003 allocations (1000 and 3 that were resized),
// 990 frees that match, 13 that do not, 1300 requested bytes live at the end.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *before[10], *kept[16], *resized[3];
static void *(*volatile take)(size_t) = malloc;
static void (*volatile give)(void *) = free;

static void known(void) {
    static void *block[1000];
    for (int i = 0; i < 1000; i++)
        block[i] = malloc(100);
    for (int i = 0; i < 990; i++)
        free(block[i]);
    memcpy(kept, block + 990, 10 * sizeof *block);
    for (int i = 0; i < 10; i++) {
        free(before[i]);
        before[i] = NULL;
    }
    for (int i = 0; i < 3; i++)
        resized[i] = realloc(resized[i], 300);
}

static void imported(void) {
    static char text[5000];
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < 100; i++)
        free(strdup(text));
}

static void pointed(void) {
    for (int i = 0; i < 100; i++)
        give(take(48));
}

int main(void) {
    for (int i = 0; i < 10; i++)
        before[i] = calloc(1, 64 + i);
    for (int i = 0; i < 3; i++)
        resized[i] = malloc(40);
    char step;
    while (read(0, &step, 1) == 1) {
        if (step == 'a')
            known();
        if (step == 'm')
            imported();
        if (step == 'p')
            pointed();
        if (step == 'e')
            return 7;
        if (write(1, &step, 1) != 1)
            return 1;
    }
    return 0;
}
