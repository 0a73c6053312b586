//! Repeats one operation, each time with something new; its argument selects what grows.
//
// Each time it allocates one block of 100 bytes, keeps the last 16 of them, and, by argument:
// stacks: allocates on a new stack. scopes: allocates in a scope with a new value. labels: with a
// new label. names: in a thread with a new name, one thread at a time. marks: sets a mark with a
// new name. windows: allocates in a window with a new name. modules: loads a library (the third
// argument) and unloads it. mappings: maps and unmaps a page on a new stack. random: also
// reallocates one of these blocks to a random size. nothing: does nothing else. The second argument
// is the number of repetitions.
#include "../../include/heaptide.h"
#include "guest.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { KEPT = 16, NAME = 64 };
static void *kept[KEPT];

static NOINLINE void put(unsigned i, void *block)
{
    free(kept[i % KEPT]);
    kept[i % KEPT] = keep(block);
}
static NOINLINE void work(unsigned i) { put(i, malloc(100)); stay(); }
static NOINLINE void *maps(unsigned i, int depth)
{
    if (depth == 0) {
        void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED && munmap(page, 4096) == 0);
        return page;
    }
    if (i & 1)
        return keep(maps(i >> 1, depth - 1));
    return keep(maps(i >> 1, depth - 1));
}
static unsigned at;
static unsigned any(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 40);
}
static NOINLINE void resize(unsigned i)
{
    kept[i % KEPT] = keep(realloc(kept[i % KEPT], 1 + any() % 5000));
    stay();
}
static void *thread(void *name)
{
    CHECK(prctl(PR_SET_NAME, name) == 0); // before it allocates
    work(at);
    return NULL;
}

int main(int count, char **words)
{
    CHECK(count >= 3);
    const char *kind = words[1];
    unsigned times = (unsigned)atoi(words[2]);
    char name[NAME];
    for (unsigned i = 0; i < times; i++) {
        snprintf(name, sizeof name, "%s-%u", kind, i); // thread names have at most 15 characters
        if (strcmp(kind, "stacks") == 0) {
            put(i, branch(i, 16, 100));
        } else if (strcmp(kind, "scopes") == 0) {
            heaptide_begin_string("request", name);
            work(i);
            heaptide_end_string("request", name);
        } else if (strcmp(kind, "labels") == 0) {
            work(i);
            heaptide_label_block(kept[i % KEPT], name);
        } else if (strcmp(kind, "names") == 0) {
            pthread_t id;
            at = i;
            CHECK(pthread_create(&id, NULL, thread, name) == 0 && pthread_join(id, NULL) == 0);
        } else if (strcmp(kind, "marks") == 0) {
            heaptide_mark_now(name);
            work(i);
        } else if (strcmp(kind, "windows") == 0) {
            uint32_t window = heaptide_window_open(name);
            work(i);
            heaptide_window_close(window, NULL);
        } else if (strcmp(kind, "modules") == 0) {
            void *library = dlopen(words[3], RTLD_NOW);
            CHECK(library != NULL);
            void *(*enter)(size_t) = (void *(*)(size_t))dlsym(library, "enter");
            put(i, enter(100));
            CHECK(dlclose(library) == 0);
        } else if (strcmp(kind, "mappings") == 0) {
            maps(i, 16);
            work(i);
        } else if (strcmp(kind, "random") == 0) {
            work(any());
            resize(any());
        } else {
            work(i);
        }
    }
    say("%s\n", kind);
    return 4;
}
