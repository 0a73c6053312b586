//! 100 000 distinct names of scopes, and as many integers, each a path of its own.
//
// expect leaf:block allocations=200000 requested_bytes=3200000 live_blocks=0
#include "api_guest.h"

enum { NAMES = 100000 };

int main(void)
{
    static uint64_t texts[NAMES], numbers[NAMES];
    char name[32];
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "name%d", i);
        heaptide_begin(name);
        texts[i] = heaptide_context();
        free(block(16));
        heaptide_end(name);
        heaptide_begin_int("iteration#names", i);
        numbers[i] = heaptide_context();
        free(block(16));
        heaptide_end_int("iteration#names", i);
    }
    for (int i = 0; i < NAMES; i += 9973) {
        KNOWN(own(texts[i]).allocations == 1 && own(numbers[i]).allocations == 1);
        KNOWN(texts[i] != numbers[i] && (i == 0 || texts[i] != texts[i - 1]));
    }
    KNOWN(own(texts[NAMES - 1]).frees == 1);
    say("names\n");
    return 0;
}
