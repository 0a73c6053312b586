//! Caliper's types and attribute properties, for programs written for Caliper.

#ifndef HEAPTIDE_COMPAT_CALI_TYPES_H
#define HEAPTIDE_COMPAT_CALI_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t cali_id_t;

#define CALI_INV_ID 0xFFFFFFFFFFFFFFFF

typedef enum {
    CALI_TYPE_INV = 0,
    CALI_TYPE_USR = 1,
    CALI_TYPE_INT = 2,
    CALI_TYPE_UINT = 3,
    CALI_TYPE_STRING = 4,
    CALI_TYPE_ADDR = 5,
    CALI_TYPE_DOUBLE = 6,
    CALI_TYPE_BOOL = 7,
    CALI_TYPE_TYPE = 8,
    CALI_TYPE_PTR = 9
} cali_attr_type;

#define CALI_MAXTYPE CALI_TYPE_PTR

// Properties of an attribute. All attributes are per thread and part of the scope path; other
// properties are stored and returned, but have an effect only on RegionProfile.h.
typedef enum {
    CALI_ATTR_DEFAULT = 0,
    CALI_ATTR_ASVALUE = 1,
    CALI_ATTR_NOMERGE = 2,
    CALI_ATTR_SCOPE_PROCESS = 12,
    CALI_ATTR_SCOPE_THREAD = 20,
    CALI_ATTR_SCOPE_TASK = 24,
    CALI_ATTR_SKIP_EVENTS = 64,
    CALI_ATTR_HIDDEN = 128,
    CALI_ATTR_NESTED = 256,
    CALI_ATTR_GLOBAL = 512,
    CALI_ATTR_UNALIGNED = 1024,
    CALI_ATTR_AGGREGATABLE = 2048,
    CALI_ATTR_LEVEL_1 = 0x10000,
    CALI_ATTR_LEVEL_2 = 0x20000,
    CALI_ATTR_LEVEL_3 = 0x30000,
    CALI_ATTR_LEVEL_4 = 0x40000,
    CALI_ATTR_LEVEL_5 = 0x50000,
    CALI_ATTR_LEVEL_6 = 0x60000,
    CALI_ATTR_LEVEL_7 = 0x70000
} cali_attr_properties;

#define CALI_ATTR_LEVEL_0 0x0
#define CALI_ATTR_SCOPE_MASK 60
#define CALI_ATTR_LEVEL_MASK 0x70000

static const char *const heaptide_cali_types_[] = {"inv",  "usr",    "int",  "uint", "string",
                                                   "addr", "double", "bool", "type", "ptr"};

static inline const char *cali_type2string(cali_attr_type type)
{
    return (unsigned)type <= CALI_MAXTYPE ? heaptide_cali_types_[type] : "";
}

static inline cali_attr_type cali_string2type(const char *name)
{
    int i;
    for (i = 0; i <= CALI_MAXTYPE; i++)
        if (!strcmp(name, heaptide_cali_types_[i]))
            return (cali_attr_type)i;
    return CALI_TYPE_INV;
}

#endif
