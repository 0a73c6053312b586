//! mlockall locks the program's memory, but not the recorder's reservations: resident and locked
//! bytes stay small, also for future memory.
//
// losses: allowed
// expect function:main allocations>=10100 requested_bytes>=5050000
#include "guest.h"
#include <sys/mman.h>
#include <sys/syscall.h>

// Returns a field of /proc/self/status, in kB.
static long status(const char *field)
{
    char text[8192], *line;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    line = strstr(text, field);
    CHECK(line != NULL);
    return strtol(line + strlen(field), NULL, 10);
}

int main(void)
{
    for (int i = 0; i < 100; i++)
        keep(malloc(500));
    CHECK(mlockall(MCL_CURRENT) == 0);
    say("locked: %d\n", status("VmLck:") > 1000 && status("VmLck:") < 16 << 10);
    CHECK(munlockall() == 0 && status("VmLck:") == 0);
    CHECK(syscall(SYS_mlockall, MCL_CURRENT | MCL_FUTURE) == 0);
    for (int i = 0; i < 10000; i++)
        keep(malloc(500));
    say("and what came later: %d\n", status("VmLck:") > 5000 && status("VmLck:") < 32 << 10);
    say("resident: %d\n", status("VmRSS:") < 32 << 10);
    CHECK(munlockall() == 0);
    return 0;
}
