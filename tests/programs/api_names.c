//! 100 000 distinct scope names and 1000 integers, each a separate path; every tenth allocates.
//
// expect leaf:block allocations=10100 requested_bytes=161600 live_blocks=0
// expect scope:name50000 allocations=1 entered=1
// expect scope:name99999 allocations=0 entered=1
// order: varies
#include "api_guest.h"

enum { NAMES = 100000, NUMBERS = 1000 };

static uint64_t enter_and_leave(uint32_t name, int number)
{
    uint64_t context;
    heaptide_scope_begin(name);
    context = heaptide_context();
    if (number % 10 == 0)
        free(block(16));
    heaptide_scope_end(name);
    return context;
}

int main(void)
{
    static uint64_t texts[NAMES], numbers[NUMBERS];
    char name[32];
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "name%d", i);
        texts[i] = enter_and_leave(heaptide_name(name), i);
    }
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = enter_and_leave(heaptide_name_int("iteration#names", i), i);
    for (int i = 10; i < NAMES; i += 9970) {
        KNOWN(own(texts[i]).allocations == 1 && own(texts[i]).frees == 1);
        KNOWN(own(texts[i + 1]).allocations == 0 && texts[i] != texts[i - 1]);
    }
    KNOWN(own(numbers[990]).allocations == 1 && own(numbers[991]).allocations == 0);
    say("names\n");
    return 0;
}
