//! A program that is linked with the recorder and started without recording: it records and writes
//! nothing until it starts recording itself, which it does with the argument `start`.
//
// Known in the report that it writes: leaf:block has 2 allocations of 30 bytes in total; earlier
// allocations are unknown.
#include "api_guest.h"

int main(int argc, char **argv)
{
    void *before = block(1000);
    CHECK(argc > 1 || !heaptide_recording());
    if (argc > 1 && !strcmp(argv[1], "start")) {
        CHECK(heaptide_start() == 1 && heaptide_recording() && heaptide_start() == 1);
        keep(block(10));
        free(block(20));
        free(before);
        CHECK(heaptide_process_figures().allocations == 2);
        CHECK(heaptide_write("out.json", "json") == 1);
    }
    printf("start\n");
    CHECK(heaptide_write("stdout", "query:SELECT count()") == (argc > 1));
    return 0;
}
