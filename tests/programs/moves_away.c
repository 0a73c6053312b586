//! chdir, a removed working directory, chroot and dropped privileges after the start; then a fork.
//
// expect function:branch allocations>=4096
// losses: allowed
// order: varies
#include "guest.h"
#include <sys/stat.h>
#include <sys/wait.h>

int main(void)
{
    char place[] = "/tmp/heaptide-away-XXXXXX";
    CHECK(mkdtemp(place) != NULL && chdir(place) == 0);
    int rooted = chroot(place) == 0;  // works only as root
    CHECK(!rooted || rmdir("/") == -1);
    if (!rooted)
        CHECK(rmdir(place) == 0);
    if (geteuid() == 0)
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    for (unsigned i = 0; i < 50000; i++)
        free(branch(i, 12, 20));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (unsigned i = 0; i < 1000; i++)
            free(branch(i, 12, 20));
        _exit(5);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    say("moved away\n");
    return 0;
}
