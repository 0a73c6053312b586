//! Live bytes of the process in scopes, without a trace: the maximum while a thread was in a scope
//! or in one nested in it, and the value when the scope was left. With one thread, all are exact.
//
//   scope           live: at the begin  highest  at the end
//   outer                 1000           6000     1000   5000 allocated and freed in it
//   outer > quiet         1000           1000     1000   nothing
//   outer > grows         1000           4000     4000   3000 allocated
//   outer > frees         4000           4000     1000   and freed
//   again                 1000           6000     1000   in three rounds 1000, 5000, 3000
//   around                1000           9008     1000   nothing directly
//   around > inside       1000           9008     1000   8008 allocated and freed
//   below                 1000           1104     1104   104 allocated, far below the peak
//   open                  1104           1208            104 allocated, not ended
//
// expect scope:outer>quiet entered=1
// expect scope:again entered=3
#include "api_guest.h"

static void temporary(size_t bytes) { free(block(bytes)); }

int main(void)
{
    static const size_t rounds[3] = {1000, 5000, 3000};
    void *kept = block(1000), *grown;
    HEAPTIDE_BEGIN("outer");
    temporary(5000);
    HEAPTIDE_BEGIN("quiet");
    HEAPTIDE_END("quiet");
    HEAPTIDE_BEGIN("grows");
    grown = block(3000);
    HEAPTIDE_END("grows");
    HEAPTIDE_BEGIN("frees");
    free(grown);
    HEAPTIDE_END("frees");
    HEAPTIDE_END("outer");
    for (int i = 0; i < 3; i++) {
        HEAPTIDE_BEGIN("again");
        temporary(rounds[i]);
        HEAPTIDE_END("again");
    }
    HEAPTIDE_BEGIN("around");
    HEAPTIDE_BEGIN("inside");
    temporary(8008);
    HEAPTIDE_END("inside");
    HEAPTIDE_END("around");
    HEAPTIDE_BEGIN("below");
    keep(block(104));
    HEAPTIDE_END("below");
    HEAPTIDE_BEGIN("open");
    keep(block(104));
    keep(kept);
    return 0;
}
