//! `heaptide advise`: blocks of 25 bytes, whose usable size in glibc is 40. With -DALIKE they have
//! 40 bytes.
//
//   add_entry  50,000 blocks
#include "guest.h"

enum { ENTRIES = 50000 };
#ifdef ALIKE
enum { BYTES = 40 };
#else
enum { BYTES = 25 };
#endif

static NOINLINE void *add_entry(void) { return keep(malloc(BYTES)); }

int main(void)
{
    static void *entries[ENTRIES];
    for (int i = 0; i < ENTRIES; i++)
        entries[i] = add_entry();
    for (int i = 0; i < ENTRIES; i++)
        free(entries[i]);
    return 0;
}
