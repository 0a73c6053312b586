// A trace for queries: blocks of 16 to 512 bytes that replace each other in a window, from sixteen
// functions, inside two scopes, one block in 256 with a label.
//
//   events N        N allocations and N frees, and as many changes of label as there are labels
#include <stdint.h>
#include <stdlib.h>

#include "heaptide.h"

enum { WINDOW = 100000 };

static uint64_t next(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

#define SITE(n) \
    static __attribute__((noinline)) char *site_##n(size_t size) { \
        char *block = malloc(size); \
        *block = n; \
        return block; \
    }
SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7)
SITE(8) SITE(9) SITE(10) SITE(11) SITE(12) SITE(13) SITE(14) SITE(15)

static char *(*const sites[16])(size_t) = {
    site_0, site_1, site_2,  site_3,  site_4,  site_5,  site_6,  site_7,
    site_8, site_9, site_10, site_11, site_12, site_13, site_14, site_15,
};
static const char *const labels[4] = {"rows", "columns", "index", "cache"};

static void run(uint64_t n, uint64_t *s, char **slots) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t random = next(s);
        unsigned slot = (uint32_t)random % WINDOW;
        free(slots[slot]);
        slots[slot] = sites[random >> 60](16 + (random >> 32) % 497);
        if ((random >> 52) % 256 == 0) heaptide_label_block(slots[slot], labels[random >> 50 & 3]);
    }
}

int main(int argc, char **argv) {
    static char *slots[WINDOW];
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000, s = 88172645463325252ull;
    HEAPTIDE_BEGIN("fill");
    run(n / 2, &s, slots);
    HEAPTIDE_END("fill");
    HEAPTIDE_BEGIN("work");
    run(n - n / 2, &s, slots);
    for (unsigned i = 0; i < WINDOW; i++) free(slots[i]);
    HEAPTIDE_END("work");
    return 0;
}
