//! Caliper's data tracker, which labels memory, for programs written for Caliper.
//
// A tracked heap block remains one block, with a label for its bytes, whereas Caliper counts it a
// second time. Static memory and mappings can be tracked, too. Dimensions of 0 elements and
// elements of 0 bytes are accepted; Caliper divides by zero.

#ifndef HEAPTIDE_COMPAT_CALI_DATATRACKER_H
#define HEAPTIDE_COMPAT_CALI_DATATRACKER_H

#include "../../heaptide.h"

static inline void cali_datatracker_track(const void *ptr, const char *label, size_t size)
{
    if (ptr && size)
        heaptide_label_region(ptr, label, size, 1);
}

static inline void cali_datatracker_track_dimensional(const void *ptr, const char *label,
                                                      size_t elem_size, const size_t *dimensions,
                                                      size_t num_dimensions)
{
    const struct heaptide_interface *t = heaptide_table_();
    size_t bytes = elem_size, i;
    if (!t || !ptr)
        return;
    for (i = 0; i < num_dimensions; i++)
        if (__builtin_mul_overflow(bytes, dimensions[i], &bytes))
            return;
    if (bytes)
        t->label(ptr, label, strlen(label), elem_size, dimensions, num_dimensions, bytes);
}

static inline void cali_datatracker_untrack(const void *ptr)
{
    if (ptr)
        heaptide_unlabel(ptr);
}

// Allocates and tracks, as in Caliper 1. Returns NULL if out of memory or if the size overflows.
static inline void *cali_datatracker_allocate_dimensional(const char *label, size_t elem_size,
                                                          const size_t *dimensions,
                                                          size_t num_dimensions)
{
    size_t bytes = elem_size, i;
    void *ptr;
    for (i = 0; i < num_dimensions; i++)
        if (__builtin_mul_overflow(bytes, dimensions[i], &bytes))
            return NULL;
    ptr = malloc(bytes);
    cali_datatracker_track_dimensional(ptr, label, elem_size, dimensions, num_dimensions);
    return ptr;
}
static inline void cali_datatracker_free(void *ptr)
{
    cali_datatracker_untrack(ptr);
    free(ptr);
}

#define CALI_DATATRACKER_TRACK(ptr, size) cali_datatracker_track(ptr, #ptr, size)
#define CALI_DATATRACKER_TRACK_DIMENSIONAL(ptr, elem_size, dimensions, num_dimensions) \
    cali_datatracker_track_dimensional(ptr, #ptr, elem_size, dimensions, num_dimensions)
#define CALI_DATATRACKER_UNTRACK(ptr) cali_datatracker_untrack(ptr)

#endif
