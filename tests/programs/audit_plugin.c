//! An audit library of audited.c: a namespace of its own, with a second C library, whose blocks are
//! recorded.
#define _GNU_SOURCE
#include "guest.h"
#include <link.h>

unsigned int la_version(unsigned int version) { return version; }

static NOINLINE void on_load(void)
{
    keep(malloc(1000));
    free(keep(malloc(500)));
}

unsigned int la_objopen(struct link_map *map, Lmid_t id, uintptr_t *cookie)
{
    (void)id;
    (void)cookie;
    if (strstr(map->l_name, "audited_plugin"))
        on_load();
    return 0;
}
