//! Performs one step for each letter on standard input, and echoes the letter when it is done.
//
// a: small allocates 10 blocks of 100 bytes. b: large allocates 5 blocks of 5000 bytes. f: release
// frees all of them. t: touch allocates and frees one byte. u: raises USR2. s: takes a snapshot of
// itself. 1, 0: turns its recording on, off. w: scope `work` allocates 60 bytes and frees the last
// kept block. l: puts label `cache` on the last kept block. m: 300 scopes `part 0` to
// `part 299` inside `many`, each with one block of 100 bytes. q, or end of input: exits.
#include "../../include/heaptide.h"
#include "guest.h"
#include <signal.h>

enum { KEPT = 4096 };
static void *kept[KEPT];
static int held;

static NOINLINE void small(void)
{
    for (int i = 0; i < 10 && held < KEPT; i++)
        kept[held++] = keep(malloc(100));
    stay();
}
static NOINLINE void large(void)
{
    for (int i = 0; i < 5 && held < KEPT; i++)
        kept[held++] = keep(malloc(5000));
    stay();
}
static NOINLINE void release(void)
{
    while (held > 0)
        free(kept[--held]);
    stay();
}
static NOINLINE void work(void)
{
    heaptide_begin("work");
    void *p = keep(malloc(60));
    free(held > 0 ? kept[--held] : NULL);
    heaptide_end("work");
    if (held < KEPT)
        kept[held++] = p;
}
static NOINLINE void label(void)
{
    if (held > 0)
        heaptide_label_block(kept[held - 1], "cache");
}
static NOINLINE void many(void)
{
    heaptide_begin("many");
    for (int i = 0; i < 300 && held < KEPT; i++) {
        char name[16];
        snprintf(name, sizeof name, "part %d", i);
        heaptide_begin(name);
        kept[held++] = keep(malloc(100));
        heaptide_end(name);
    }
    heaptide_end("many");
}
static NOINLINE void touch(void) { free(keep(malloc(1))); stay(); }

int main(void)
{
    char step;
    while (read(0, &step, 1) == 1 && step != 'q') {
        switch (step) {
        case 'a': small(); break;
        case 'b': large(); break;
        case 'f': release(); break;
        case 't': touch(); break;
        case 'u': raise(SIGUSR2); break;
        case 's': heaptide_snapshot_now("from inside"); break;
        case 'w': work(); break;
        case 'l': label(); break;
        case 'm': many(); break;
        case '1': heaptide_turn(1); break;
        case '0': heaptide_turn(0); break;
        default: return 98;
        }
        if (write(1, &step, 1) != 1)
            return 97;
    }
    return 0;
}
