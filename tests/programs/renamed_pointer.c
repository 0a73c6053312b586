//! Linked to other programs, refers to a function of the process's allocator by a name of its own.
#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)

#ifdef __cplusplus
extern "C"
#endif
    void NAMED(NAME, free)(void *);

void (*volatile renamed_free)(void *) = NAMED(NAME, free);
