//! Four processes hold 8 MiB one after the other: together they never hold more than that. Each of
//! them passes a token to the next one once it has freed its block, and lives until all have.
//
// clock: set
// expect recording processes=5
// expect totals allocations=4
#include "clock.h"
#include <sys/wait.h>

#define PROCESSES 4
#define BYTES (8 << 20)

int main(void)
{
    int turns[PROCESSES + 1][2], end[2];
    char token = 1;
    for (int i = 0; i <= PROCESSES; i++)
        CHECK(pipe(turns[i]) == 0);
    CHECK(pipe(end) == 0);
    for (int i = 0; i < PROCESSES; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child > 0)
            continue;
        close(end[1]);
        CHECK(read(turns[i][0], &token, 1) == 1);
        char *block = memset(keep(malloc(BYTES)), 1, BYTES);
        pass_us(20000);
        free(block);
        pass_us(20000);
        CHECK(write(turns[i + 1][1], &token, 1) == 1);
        CHECK(read(end[0], &token, 1) == 0); // until the parent closes it
        _exit(0);
    }
    CHECK(write(turns[0][1], &token, 1) == 1 && read(turns[PROCESSES][0], &token, 1) == 1);
    CHECK(close(end[1]) == 0);
    for (int i = 0; i < PROCESSES; i++)
        CHECK(wait(NULL) > 0);
    return 0;
}
