//! Makes one kind of thing COUNT times, three times over: threads, loads of a library, mappings,
//! mapped files, scopes, marks, windows, labels or snapshots. After each third it prints how large
//! the profile has grown and how much memory is resident. What the recorder keeps is flat after the
//! first third.
//
// It is run as `churn KIND COUNT [LIBRARY]`, by `churn.rs` of the tests and `benches/soak.py`.
// plugin: churned.so plugin.c -DWORK=churned_work
// build: -pthread -ldl
#include "api_guest.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *library;

static NOINLINE void *block_of(size_t n) { return keep(malloc(n)); }

static void *thread(void *unused)
{
    free(block_of(3000));
    return unused;
}

static void threads(long i)
{
    pthread_t made;
    (void)i;
    CHECK(pthread_create(&made, NULL, thread, NULL) == 0 && pthread_join(made, NULL) == 0);
}

static void modules(long i)
{
    void *loaded = dlopen(library, RTLD_NOW);
    (void)i;
    CHECK(loaded != NULL);
    void *(*enter)(size_t) = (void *(*)(size_t))dlsym(loaded, "enter");
    free(keep(enter(20)));
    CHECK(dlclose(loaded) == 0);
}

static void mappings(long i)
{
    size_t bytes = 4096 * (1 + (size_t)i % 16);
    void *mapped = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED && munmap(mapped, bytes) == 0);
}

static void files(long i)
{
    char name[64];
    snprintf(name, sizeof name, "churn-%ld.tmp", i);
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    CHECK(mapped != MAP_FAILED && munmap(mapped, 4096) == 0);
    CHECK(close(file) == 0 && unlink(name) == 0);
}

static void scopes(long i)
{
    char name[64];
    snprintf(name, sizeof name, "scope %ld", i);
    heaptide_begin(name);
    free(block_of(100));
    heaptide_end(name);
}

static void marks(long i)
{
    char name[64];
    snprintf(name, sizeof name, "mark %ld", i);
    heaptide_mark_now(name);
}

static void windows(long i)
{
    char name[64];
    snprintf(name, sizeof name, "window %ld", i);
    uint32_t window = heaptide_window_open(name);
    free(block_of(100));
    heaptide_window_close(window, NULL);
}

static void labels(long i)
{
    char name[64];
    snprintf(name, sizeof name, "label %ld", i);
    void *block = block_of(100);
    heaptide_label_block(block, name);
    free(block);
}

static void snapshots(long i)
{
    (void)i;
    heaptide_snapshot_now("again");
    free(block_of(100));
}

/* Returns the end of the profile's extents, which its header has at byte 64; 0 without one. */
static unsigned long profile_bytes(void)
{
    static char line[8192];
    char *path = NULL;
    unsigned long end = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (path == NULL && fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, ".profile\n") != NULL)
            path = strchr(line, '/');
    fclose(maps);
    if (path == NULL)
        return 0;
    path[strcspn(path, "\n")] = 0;
    int file = open(path, O_RDONLY);
    CHECK(file >= 0 && pread(file, &end, sizeof end, 64) == sizeof end);
    close(file);
    return end;
}

static unsigned long resident_bytes(void)
{
    unsigned long all, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm != NULL && fscanf(statm, "%lu %lu", &all, &resident) == 2);
    fclose(statm);
    return resident * (unsigned long)sysconf(_SC_PAGESIZE);
}

int main(int count, char **words)
{
    static const struct { const char *name; void (*act)(long); } kinds[] = {
        {"threads", threads}, {"modules", modules}, {"mappings", mappings},
        {"files", files}, {"scopes", scopes}, {"marks", marks},
        {"windows", windows}, {"labels", labels}, {"snapshots", snapshots},
    };
    CHECK(count >= 3);
    library = words[count - 1];
    long number = 0, per_third = atol(words[2]);
    for (int third = 0; third < 3; third++)
        for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
            if (strcmp(kinds[kind].name, words[1]) != 0)
                continue;
            for (long i = 0; i < per_third; i++)
                kinds[kind].act(number++);
            printf("%lu %lu\n", profile_bytes(), resident_bytes());
            fflush(stdout);
        }
    return 0;
}
