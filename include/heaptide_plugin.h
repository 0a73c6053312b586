//! Monitor plug-ins in C and C++: their options, and the macro that turns a shared library into a
//! plug-in. Part of heaptide.h, which includes this file.

#ifndef HEAPTIDE_PLUGIN_H
#define HEAPTIDE_PLUGIN_H

#include "heaptide.h"

#ifdef __cplusplus
extern "C" {
#endif

// Copies the options of a monitor library, the text after `:` in `heaptide run --monitor
// LIBRARY:TEXT`, to `buffer`, zero-terminated. Returns its length + 1; if that exceeds `size`, the
// copy is truncated. Returns 0, with an empty `buffer`, if the command line does not name the
// library, or not loaded.
static inline size_t heaptide_monitor_text(const char *library, char *buffer, size_t size)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (size)
        buffer[0] = 0;
    return t ? t->monitor_options(library, strlen(library), buffer, size) : 0;
}

// Extracts the first option of `NAME=VALUE,NAME=VALUE…`: splits the text into zero-terminated
// strings in place and advances `*text`. 1: extracted. 0: no more options. -1: the option has no
// `=`. Does not need the recorder.
static inline int heaptide_next_option(char **text, const char **name, const char **value)
{
    char *start = *text, *end = start + strcspn(start, ","), *sign;
    if (!*start)
        return 0;
    *text = *end ? end + 1 : end;
    *end = 0;
    *name = start;
    sign = strchr(start, '=');
    if (!sign)
        return -1;
    *sign = 0;
    *value = sign + 1;
    return 1;
}

// Parses a whole number with an optional suffix K, M or G (powers of 1024). 1: done. 0: not a
// number.
static inline int heaptide_option_number(const char *value, uint64_t *out)
{
    static const char units[] = "KMG";
    uint64_t number = 0;
    const char *unit;
    if (*value < '0' || *value > '9')
        return 0;
    for (; *value >= '0' && *value <= '9'; value++) {
        uint64_t digit = (uint64_t)(*value - '0');
        if (number > ((uint64_t)-1 - digit) / 10)
            return 0;
        number = number * 10 + digit;
    }
    unit = *value ? strchr(units, *value) : NULL;
    if (*value && (!unit || value[1]))
        return 0;
    for (; unit && unit >= units; unit--) {
        if (number > (uint64_t)-1 / 1024)
            return 0;
        number *= 1024;
    }
    *out = number;
    return 1;
}

// The loaded file that contains an address, in the layout of Dl_info. The function is weak because
// some C libraries have it in a library of its own.
struct heaptide_object_ {
    const char *file;
    void *base;
    const char *symbol;
    void *symbol_address;
};
extern int heaptide_object_of_(const void *address, struct heaptide_object_ *out) __asm__("dladdr")
    __attribute__((weak));

// Copies the options of the library that contains `own`, by the name of its file; else those given
// for the name `library`.
static inline size_t heaptide_own_text_(const void *own, const char *library, char *buffer,
                                        size_t size)
{
    struct heaptide_object_ object;
    memset(&object, 0, sizeof object);
    if (heaptide_object_of_ && heaptide_object_of_(own, &object) && object.file) {
        const char *slash = strrchr(object.file, '/');
        size_t length = heaptide_monitor_text(slash ? slash + 1 : object.file, buffer, size);
        if (length)
            return length;
    }
    return heaptide_monitor_text(library, buffer, size);
}

// The longest options of a plug-in, with the terminating zero; longer ones are rejected.
#define HEAPTIDE_OPTIONS_BYTES_ 4096

// Turns a shared library into a monitor plug-in. When the library is loaded together with the
// recorder, preloaded in any order or by `heaptide run --monitor`, it calls `create(options)` with
// its options as a string, which is empty without options and which `create` may modify.
// Allocations in create() are not recorded. Without the recorder, or with `--mode off`, nothing is
// called. Options longer than 4095 bytes are rejected with a line on stderr. `library` is a string
// literal with the name of the library for this line; the options are those of the file that
// contains the code, even if it was renamed.
#define HEAPTIDE_MONITOR_PLUGIN(library, create)                                         \
    static __attribute__((constructor, used)) void heaptide_plugin_start_(void)          \
    {                                                                                    \
        char options[HEAPTIDE_OPTIONS_BYTES_];                                           \
        if (!heaptide_recording())                                                       \
            return;                                                                      \
        heaptide_pause(0);                                                               \
        if (heaptide_own_text_(library, library, options, sizeof options) >              \
            sizeof options)                                                              \
            fputs(library ": options: longer than 4095 bytes\n", stderr);                \
        else                                                                             \
            create(options);                                                             \
        heaptide_resume(0);                                                              \
    }                                                                                    \
    struct heaptide_monitor

#ifdef __cplusplus
}
#endif

#endif
