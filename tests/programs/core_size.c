//! A core file hardly grows by the recorder, because its reservations are marked MADV_DONTDUMP.
//
// expect function:main allocations>=1000
#include "guest.h"

int main(void)
{
    for (int i = 0; i < 1000; i++)
        keep(malloc(100));
    FILE *file = fopen("/proc/self/smaps", "r");
    CHECK(file != NULL);
    char line[4096];
    long size = 0, dumped = 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "Size:", 5) == 0)
            size = strtol(line + 5, NULL, 10);
        if (strncmp(line, "VmFlags:", 8) == 0 && !strstr(line, " dd"))
            dumped += size;
    }
    fclose(file);
    say("a core file of less than 40 MB: %d\n", dumped < 40 << 10);
    return 0;
}
