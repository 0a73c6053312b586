//! A program writes its own report in every format while it runs, without visible effects: no
//! child, no signal, no open file, no change of errno.
//
// Known in "json" and the others: leaf:block has 3 allocations of 100, 200 and 300 bytes, of which
// the first is freed; two are in scope region=load, one in region=load > region=grid.
//
// expect leaf:block allocations=4 frees=1 requested_bytes=1000
#include "api_guest.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static volatile sig_atomic_t children;

static void on_child(int signal)
{
    (void)signal;
    children++;
}

static int open_files(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    CHECK(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

// Returns whether a file exists and is not empty.
static int is_there(const char *path)
{
    char first;
    int file = open(path, O_RDONLY);
    int is = file >= 0 && read(file, &first, 1) == 1;
    if (file >= 0)
        close(file);
    return is;
}

static void formats(void)
{
    static const char *const all[][2] = {
        {"out.json", "json"},     {"out.txt", "text"},
        {"out.dot", "dot"},       {"out.folded", "folded --metric requested_bytes"},
        {"out.stacks", "stacks"}, {"out.csv", "csv"},
        {"out.tree", "tree --scopes --metric allocations"},
        {"out.query", "query:SELECT function,count() WHERE function=\"block\" GROUP BY function "
                      "FORMAT json"},
    };
    size_t i;
    for (i = 0; i < sizeof all / sizeof *all; i++) {
        errno = 77;
        KNOWN(heaptide_write(all[i][0], all[i][1]) == 1);
        CHECK(errno == 77);
        KNOWN(is_there(all[i][0]));
    }
    // The second call replaces the file.
    KNOWN(heaptide_write("out.txt", "text --by scope") == 1);
    KNOWN(heaptide_write("copy.heaptide", "snapshot") == 1);
    KNOWN(is_there("copy.heaptide/recording.json"));
}

static void failures(void)
{
    CHECK(heaptide_write("out.no", "nonsense") == 0 && !is_there("out.no"));
    CHECK(heaptide_write("out.no", "") == 0 && heaptide_write("", "text") == 0);
    CHECK(heaptide_write("missing/out.no", "text") == 0);
    CHECK(heaptide_write("out.no", "query:SELECT") == 0 && !is_there("out.no"));
    CHECK(heaptide_write_to(-1, "text") == 0 && heaptide_write_to(999, "text") == 0);
}

// No descriptor is free: the child makes room in its own table.
static void full_table(void)
{
    enum { MOST = 64 };
    int files[MOST], count = 0;
    struct rlimit before, small;
    getrlimit(RLIMIT_NOFILE, &before);
    small = before;
    small.rlim_cur = MOST;
    setrlimit(RLIMIT_NOFILE, &small);
    while (count < MOST && (files[count] = dup(1)) >= 0)
        count++;
    KNOWN(heaptide_write("full.txt", "text") == 1);
    while (count > 0)
        close(files[--count]);
    setrlimit(RLIMIT_NOFILE, &before);
    KNOWN(is_there("full.txt"));
}

int main(void)
{
    struct sigaction action;
    void *first;
    int before, status;
    sigset_t mask, after;
    memset(&action, 0, sizeof action);
    memset(&mask, 0, sizeof mask);
    memset(&after, 0, sizeof after);
    action.sa_handler = on_child;
    sigaction(SIGCHLD, &action, NULL);
    heaptide_begin("load");
    first = block(100);
    keep(block(200));
    heaptide_begin("grid");
    keep(block(300));
    heaptide_end("grid");
    heaptide_end("load");
    free(first);
    before = open_files();
    sigprocmask(SIG_BLOCK, NULL, &mask);
    formats();
    failures();
    full_table();
    CHECK(open_files() == before);
    sigprocmask(SIG_BLOCK, NULL, &after);
    CHECK(memcmp(&mask, &after, sizeof mask) == 0);
    CHECK(children == 0 && waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
    // Also if the program ignores SIGCHLD, so that children cannot be waited for.
    action.sa_handler = SIG_IGN;
    sigaction(SIGCHLD, &action, NULL);
    KNOWN(heaptide_write("ignored.txt", "text") == 1 && is_there("ignored.txt"));
    CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
    keep(block(400));
    say("output\n");
    return 0;
}
