//! Monitor plug-ins in C and C++: their options, and the macro that makes a shared library one.
//! Part of heaptide.h, which includes it.

#ifndef HEAPTIDE_PLUGIN_H
#define HEAPTIDE_PLUGIN_H

#include "heaptide.h"

#ifdef __cplusplus
extern "C" {
#endif

// The options of a monitor library: the text behind `:` in `heaptide run --monitor LIBRARY:TEXT`,
// zero-terminated. Its length + 1, which may exceed `size`; then it is cut. 0: the library is not
// named there, or not loaded; `*buffer` is then empty.
static inline size_t heaptide_monitor_text(const char *library, char *buffer, size_t size)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (size)
        buffer[0] = 0;
    return t ? t->monitor_options(library, strlen(library), buffer, size) : 0;
}

// Takes the first of `NAME=VALUE,NAME=VALUE…` off `*text`: cuts the text into zero-terminated
// pieces and moves `*text` on. 1: there was one. 0: no more. -1: no `=` in it. No recorder needed.
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

// Reads a whole number with K, M or G (of 1024) behind it or not. 1: done. 0: it is none.
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

// The most bytes of options that a plug-in gets; longer ones are refused.
#define HEAPTIDE_OPTIONS_BYTES_ 4096

// Makes a shared library a monitor plug-in: when it is loaded beside the recorder, preloaded in
// either order or by `heaptide run --monitor`, `create(options)` is called with its options as text
// that it may cut up, empty without any. What create() allocates is not recorded. Without the
// recorder, or with `--mode off`, nothing is called; options longer than 4095 bytes are refused
// with a line on stderr. `library` is the file's name, as a string.
#define HEAPTIDE_MONITOR_PLUGIN(library, create)                                         \
    static __attribute__((constructor, used)) void heaptide_plugin_start_(void)          \
    {                                                                                    \
        char options[HEAPTIDE_OPTIONS_BYTES_];                                           \
        if (!heaptide_recording())                                                       \
            return;                                                                      \
        heaptide_pause(0);                                                               \
        if (heaptide_monitor_text((library), options, sizeof options) > sizeof options)  \
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
