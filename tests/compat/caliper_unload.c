//! A thread uses Caliper's interface in a library that is unloaded before the thread ends.
//
// With -DLIBRARY this is the library. 3 allocations in value=text, from 3 threads.
#include <caliper/cali.h>

#include "../programs/guest.h"

#ifdef LIBRARY

void annotate(void)
{
    cali_begin_string_byname("value", "text");
    CALI_MARK_BEGIN("region");
    free(keep(malloc(100)));
    CALI_MARK_END("region");
    cali_end_byname("value");
}

#else

#include <dlfcn.h>

static void *work(void *path)
{
    void *library = dlopen((const char *)path, RTLD_NOW | RTLD_LOCAL);
    void (*annotate)(void);
    CHECK(library);
    *(void **)&annotate = dlsym(library, "annotate");
    CHECK(annotate);
    annotate();
    CHECK(dlclose(library) == 0);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int i;
    CHECK(argc == 2);
    for (i = 0; i < 3; i++) {
        CHECK(pthread_create(&thread, NULL, work, argv[1]) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    say("unloaded\n");
    return 0;
}

#endif
