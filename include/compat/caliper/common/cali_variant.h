//! Caliper's variant, a value of any of its types, for programs written for Caliper.

#ifndef HEAPTIDE_COMPAT_CALI_VARIANT_H
#define HEAPTIDE_COMPAT_CALI_VARIANT_H

#include "cali_types.h"

#include <stdbool.h>
#include <stdlib.h>

typedef struct {
    uint64_t type_and_size;  // low 8 bits: type; for text and data, size from bit 32 on
    union {
        uint64_t v_uint;
        bool v_bool;
        double v_double;
        int64_t v_int;
        cali_attr_type v_type;
        void *unmanaged_ptr;
        const void *unmanaged_const_ptr;
    } value;
} cali_variant_t;

#define CALI_VARIANT_TYPE_MASK 0xFF

static inline cali_variant_t cali_make_empty_variant(void)
{
    cali_variant_t v;
    v.type_and_size = 0;
    v.value.v_uint = 0;
    return v;
}

static inline bool cali_variant_is_empty(cali_variant_t v)
{
    return v.type_and_size == 0;
}

static inline cali_attr_type cali_variant_get_type(cali_variant_t v)
{
    return (cali_attr_type)(v.type_and_size & CALI_VARIANT_TYPE_MASK);
}

static inline size_t cali_variant_get_size(cali_variant_t v)
{
    switch (cali_variant_get_type(v)) {
    case CALI_TYPE_INV:
        return 0;
    case CALI_TYPE_USR:
    case CALI_TYPE_STRING:
        return (size_t)(v.type_and_size >> 32);
    case CALI_TYPE_BOOL:
        return sizeof(bool);
    case CALI_TYPE_TYPE:
        return sizeof(cali_attr_type);
    default:
        return sizeof(uint64_t);
    }
}

// For text and data this is the caller's memory; for other types, the value in the variant itself.
static inline const void *cali_variant_get_data(const cali_variant_t *v)
{
    cali_attr_type type = cali_variant_get_type(*v);
    if (type == CALI_TYPE_USR || type == CALI_TYPE_STRING)
        return v->value.unmanaged_const_ptr;
    return &v->value;
}

static inline cali_variant_t heaptide_cali_variant_(cali_attr_type type, uint64_t bits)
{
    cali_variant_t v;
    v.type_and_size = (uint64_t)type;
    v.value.v_uint = bits;
    return v;
}

static inline cali_variant_t cali_make_variant_from_bool(bool value)
{
    return heaptide_cali_variant_(CALI_TYPE_BOOL, value);
}
static inline cali_variant_t cali_make_variant_from_int64(int64_t value)
{
    return heaptide_cali_variant_(CALI_TYPE_INT, (uint64_t)value);
}
static inline cali_variant_t cali_make_variant_from_int(int value)
{
    return cali_make_variant_from_int64(value);
}
static inline cali_variant_t cali_make_variant_from_uint(uint64_t value)
{
    return heaptide_cali_variant_(CALI_TYPE_UINT, value);
}
static inline cali_variant_t cali_make_variant_from_double(double value)
{
    cali_variant_t v = heaptide_cali_variant_(CALI_TYPE_DOUBLE, 0);
    v.value.v_double = value;
    return v;
}
static inline cali_variant_t cali_make_variant_from_type(cali_attr_type value)
{
    return heaptide_cali_variant_(CALI_TYPE_TYPE, (uint64_t)value);
}
static inline cali_variant_t cali_make_variant_from_ptr(void *value)
{
    cali_variant_t v = heaptide_cali_variant_(CALI_TYPE_PTR, 0);
    v.value.unmanaged_ptr = value;
    return v;
}

// Creates a variant from memory that holds a value of the given type. Text and data are not copied
// and must outlive the variant.
static inline cali_variant_t cali_make_variant(cali_attr_type type, const void *data, size_t size)
{
    cali_variant_t v = heaptide_cali_variant_(type, 0);
    if (type == CALI_TYPE_USR || type == CALI_TYPE_STRING) {
        v.type_and_size |= (uint64_t)size << 32;
        v.value.unmanaged_const_ptr = data;
    } else {
        memcpy(&v.value, data, size < sizeof v.value ? size : sizeof v.value);
    }
    return v;
}
static inline cali_variant_t cali_make_variant_from_string(const char *value)
{
    return cali_make_variant(CALI_TYPE_STRING, value, strlen(value));
}

static inline void *cali_variant_get_ptr(cali_variant_t v)
{
    return cali_variant_get_type(v) == CALI_TYPE_PTR ? v.value.unmanaged_ptr : NULL;
}

// Conversions. `*ok`, unless `ok` is NULL, receives whether the value is a number of that kind.
static inline double cali_variant_to_double(cali_variant_t v, bool *ok)
{
    cali_attr_type type = cali_variant_get_type(v);
    if (ok)
        *ok = type == CALI_TYPE_DOUBLE || type == CALI_TYPE_INT || type == CALI_TYPE_UINT;
    return type == CALI_TYPE_DOUBLE ? v.value.v_double
           : type == CALI_TYPE_INT  ? (double)v.value.v_int
           : type == CALI_TYPE_UINT ? (double)v.value.v_uint
                                    : 0;
}
static inline int64_t cali_variant_to_int64(cali_variant_t v, bool *ok)
{
    cali_attr_type type = cali_variant_get_type(v);
    if (ok)
        *ok = type == CALI_TYPE_DOUBLE || type == CALI_TYPE_INT || type == CALI_TYPE_UINT
              || type == CALI_TYPE_BOOL;
    return type == CALI_TYPE_DOUBLE                             ? (int64_t)v.value.v_double
           : type == CALI_TYPE_INT                              ? v.value.v_int
           : type == CALI_TYPE_UINT || type == CALI_TYPE_BOOL ? (int64_t)v.value.v_uint
                                                                : 0;
}
static inline int cali_variant_to_int(cali_variant_t v, bool *ok)
{
    return (int)cali_variant_to_int64(v, ok);
}
static inline uint64_t cali_variant_to_uint(cali_variant_t v, bool *ok)
{
    if (cali_variant_get_type(v) == CALI_TYPE_ADDR) {
        if (ok)
            *ok = true;
        return v.value.v_uint;
    }
    return (uint64_t)cali_variant_to_int64(v, ok);
}
static inline bool cali_variant_to_bool(cali_variant_t v, bool *ok)
{
    return cali_variant_to_int64(v, ok) != 0;
}
static inline cali_attr_type cali_variant_to_type(cali_variant_t v, bool *ok)
{
    bool is_type = cali_variant_get_type(v) == CALI_TYPE_TYPE;
    if (ok)
        *ok = is_type;
    return is_type ? v.value.v_type : CALI_TYPE_INV;
}

static inline int cali_variant_compare(cali_variant_t a, cali_variant_t b)
{
    size_t as = cali_variant_get_size(a), bs = cali_variant_get_size(b);
    int order;
    if (cali_variant_get_type(a) != cali_variant_get_type(b))
        return cali_variant_get_type(a) < cali_variant_get_type(b) ? -1 : 1;
    switch (cali_variant_get_type(a)) {
    case CALI_TYPE_USR:
    case CALI_TYPE_STRING:
        order = memcmp(cali_variant_get_data(&a), cali_variant_get_data(&b), as < bs ? as : bs);
        return order ? order : (as > bs) - (as < bs);
    case CALI_TYPE_DOUBLE:
        return (a.value.v_double > b.value.v_double) - (a.value.v_double < b.value.v_double);
    case CALI_TYPE_INT:
        return (a.value.v_int > b.value.v_int) - (a.value.v_int < b.value.v_int);
    default:
        return (a.value.v_uint > b.value.v_uint) - (a.value.v_uint < b.value.v_uint);
    }
}
static inline bool cali_variant_eq(cali_variant_t a, cali_variant_t b)
{
    return cali_variant_compare(a, b) == 0;
}

#endif
