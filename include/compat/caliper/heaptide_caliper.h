//! The state behind Caliper's interface: attributes, values of threads, configuration, output.
//
// Not for programs, which include cali.h and the other headers with Caliper's names. Requires C99
// or C++98. Without the recorder and RegionProfile.h, a call costs two loads and two branches;
// attributes are created even then, so that programs can query their names and types.

#ifndef HEAPTIDE_COMPAT_CALIPER_H
#define HEAPTIDE_COMPAT_CALIPER_H

#include "../../heaptide.h"
#include "cali_definitions.h"
#include "common/cali_variant.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

// Shared by the modules of a process if the linker merges it, so that an attribute created in one
// module is found in another.
#define HEAPTIDE_CALI_SHARED_ __attribute__((weak))

// ---- Attributes: their ids are the addresses of these records, which are never freed

struct heaptide_cali_attribute_ {
    struct heaptide_cali_attribute_ *next;
    const char *name;
    cali_attr_type type;
    int properties;
    int is_address;  // has the metadata class.memoryaddress
};

#define HEAPTIDE_CALI_ATTRIBUTE_(variable, id, name, type, properties)                   \
    HEAPTIDE_CALI_SHARED_ struct heaptide_cali_attribute_ variable                       \
        = {NULL, name, type, properties, 0};                                             \
    HEAPTIDE_CALI_SHARED_ cali_id_t id = (cali_id_t) & variable

HEAPTIDE_CALI_ATTRIBUTE_(heaptide_cali_function_, cali_function_attr_id, "function",
                         CALI_TYPE_STRING, CALI_ATTR_NESTED);
HEAPTIDE_CALI_ATTRIBUTE_(heaptide_cali_loop_, cali_loop_attr_id, "loop", CALI_TYPE_STRING,
                         CALI_ATTR_NESTED);
HEAPTIDE_CALI_ATTRIBUTE_(heaptide_cali_region_, cali_region_attr_id, "region", CALI_TYPE_STRING,
                         CALI_ATTR_NESTED);
HEAPTIDE_CALI_ATTRIBUTE_(heaptide_cali_phase_, cali_phase_attr_id, "phase", CALI_TYPE_STRING,
                         CALI_ATTR_NESTED | CALI_ATTR_LEVEL_4);
HEAPTIDE_CALI_ATTRIBUTE_(heaptide_cali_comm_, cali_comm_region_attr_id, "comm.region",
                         CALI_TYPE_STRING, CALI_ATTR_NESTED);
HEAPTIDE_CALI_ATTRIBUTE_(heaptide_cali_memory_, cali_class_memoryaddress_attr_id,
                         "class.memoryaddress", CALI_TYPE_BOOL, CALI_ATTR_SKIP_EVENTS);
HEAPTIDE_CALI_ATTRIBUTE_(heaptide_cali_iteration_, cali_class_iteration_attr_id,
                         "class.iteration", CALI_TYPE_BOOL, CALI_ATTR_SKIP_EVENTS);
HEAPTIDE_CALI_ATTRIBUTE_(heaptide_cali_sums_, cali_class_aggregatable_attr_id,
                         "class.aggregatable", CALI_TYPE_BOOL, CALI_ATTR_SKIP_EVENTS);

// The attribute that CALI_MARK_BEGIN uses in Caliper 2.0; later versions use `region`.
HEAPTIDE_CALI_SHARED_ cali_id_t cali_annotation_attr_id = (cali_id_t)&heaptide_cali_region_;

HEAPTIDE_CALI_SHARED_ struct heaptide_cali_attribute_ *heaptide_cali_attributes_;

static inline struct heaptide_cali_attribute_ *heaptide_cali_attribute_at_(cali_id_t id)
{
    return id == CALI_INV_ID ? NULL : (struct heaptide_cali_attribute_ *)(uintptr_t)id;
}

static __attribute__((unused)) struct heaptide_cali_attribute_ *
heaptide_cali_attribute_named_(const char *name)
{
    struct heaptide_cali_attribute_ *own[] = {
        &heaptide_cali_function_, &heaptide_cali_loop_,   &heaptide_cali_region_,
        &heaptide_cali_phase_,    &heaptide_cali_comm_,   &heaptide_cali_memory_,
        &heaptide_cali_sums_,     &heaptide_cali_iteration_};
    struct heaptide_cali_attribute_ *at;
    size_t i;
    for (i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(own[i]->name, name))
            return own[i];
    at = __atomic_load_n(&heaptide_cali_attributes_, __ATOMIC_ACQUIRE);
    while (at && strcmp(at->name, name))
        at = at->next;
    return at;
}

// Returns the attribute of a name, creating it if necessary. Two threads that create it at once may
// get separate records with the same meaning. NULL if out of memory.
static __attribute__((unused)) struct heaptide_cali_attribute_ *
heaptide_cali_make_attribute_(const char *name, cali_attr_type type, int properties)
{
    struct heaptide_cali_attribute_ *made = heaptide_cali_attribute_named_(name);
    size_t bytes = strlen(name) + 1;
    if (made)
        return made;
    heaptide_pause(0);
    made = (struct heaptide_cali_attribute_ *)malloc(sizeof *made + bytes);
    heaptide_resume(0);
    if (!made)
        return NULL;
    memcpy(made + 1, name, bytes);
    made->name = (const char *)(made + 1);
    made->type = type;
    made->properties = properties;
    made->is_address = 0;
    made->next = __atomic_load_n(&heaptide_cali_attributes_, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(&heaptide_cali_attributes_, &made->next, made, 1,
                                        __ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
        continue;
    return made;
}

// Returns the number of the scope `attribute=value`.
static __attribute__((unused)) uint32_t
heaptide_cali_name_(const struct heaptide_interface *t,
                    const struct heaptide_cali_attribute_ *attribute, cali_variant_t value)
{
    size_t length = strlen(attribute->name);
    const char *text = NULL;
    char digits[64];
    switch (cali_variant_get_type(value)) {
    case CALI_TYPE_INT:
        return t->intern_int(attribute->name, length, value.value.v_int);
    case CALI_TYPE_UINT:
        if (value.value.v_uint <= INT64_MAX)
            return t->intern_int(attribute->name, length, value.value.v_int);
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)value.value.v_uint);
        break;
    case CALI_TYPE_STRING:
    case CALI_TYPE_USR:
        return t->intern(attribute->name, length, (const char *)value.value.unmanaged_const_ptr,
                         cali_variant_get_size(value));
    case CALI_TYPE_DOUBLE:
        snprintf(digits, sizeof digits, "%g", value.value.v_double);
        break;
    case CALI_TYPE_BOOL:
        text = value.value.v_bool ? "true" : "false";
        break;
    case CALI_TYPE_TYPE:
        text = cali_type2string(value.value.v_type);
        break;
    default:
        snprintf(digits, sizeof digits, "0x%llx", (unsigned long long)value.value.v_uint);
    }
    text = text ? text : digits;
    return t->intern(attribute->name, length, text, strlen(text));
}

// ---- Observation of regions and values, for RegionProfile.h

enum heaptide_cali_event_ {
    HEAPTIDE_CALI_BEGIN_,
    HEAPTIDE_CALI_SET_,
    HEAPTIDE_CALI_END_,        // of the attribute's innermost value; ignores the value passed
    HEAPTIDE_CALI_END_NAMED_,  // of the attribute's innermost value that equals the one passed
    HEAPTIDE_CALI_SNAPSHOT_    // without an attribute
};
typedef void (*heaptide_cali_observer_)(enum heaptide_cali_event_ event, const char *attribute,
                                        int properties, cali_variant_t value);

// Called before each event takes effect, with or without the recorder. NULL if no part of the
// process includes RegionProfile.h. The visibility lets modules share it that hide their symbols.
__attribute__((weak, visibility("default"))) heaptide_cali_observer_ heaptide_cali_observes_;

// Relaxed, because the observer needs no data of the thread that sets it.
static inline heaptide_cali_observer_ heaptide_cali_observing_(void)
{
    return __atomic_load_n(&heaptide_cali_observes_, __ATOMIC_RELAXED);
}
// Returns whether annotations have an effect.
static inline int heaptide_cali_is_used_(void)
{
    return heaptide_loaded() || heaptide_cali_observing_();
}

static inline void heaptide_cali_observe_(enum heaptide_cali_event_ event, const char *attribute,
                                          int properties, const char *text)
{
    const heaptide_cali_observer_ call = heaptide_cali_observing_();
    if (__builtin_expect(call != NULL, 0))
        call(event, attribute, properties, cali_make_variant_from_string(text));
}
static inline void heaptide_cali_observe_value_(enum heaptide_cali_event_ event,
                                                const struct heaptide_cali_attribute_ *attribute,
                                                cali_variant_t value)
{
    const heaptide_cali_observer_ call = heaptide_cali_observing_();
    if (__builtin_expect(call != NULL, 0) && attribute)
        call(event, attribute->name, attribute->properties, value);
}

// ---- Open regions and values of a thread

// A value of an attribute that was begun or set and has not ended.
struct heaptide_cali_value_ {
    struct heaptide_cali_attribute_ *attribute;
    uint32_t name;
    cali_variant_t value;
    char *text;  // copy of the text that `value` refers to; else NULL
};

// Deeper regions can be open, but their names are not kept.
#define HEAPTIDE_CALI_REGIONS_ 64

struct heaptide_cali_thread_ {
    uint32_t regions;  // number of open regions
    const char *region[HEAPTIDE_CALI_REGIONS_];  // for each, the enclosing region
    uint32_t count, capacity;
    struct heaptide_cali_value_ *values;  // in the order of their begins
};

HEAPTIDE_SHARED_ __thread struct heaptide_cali_thread_ *heaptide_cali_own_
    __attribute__((tls_model("initial-exec")));
// Returns the innermost region of the thread; NULL outside of all regions.
HEAPTIDE_SHARED_ __thread const char *heaptide_cali_current_
    __attribute__((tls_model("initial-exec")));
HEAPTIDE_SHARED_ pthread_key_t heaptide_cali_key_;
HEAPTIDE_SHARED_ pthread_once_t heaptide_cali_once_ = PTHREAD_ONCE_INIT;
HEAPTIDE_SHARED_ int heaptide_cali_has_key_;

static __attribute__((unused)) void heaptide_cali_thread_ends_(void *memory)
{
    struct heaptide_cali_thread_ *own = (struct heaptide_cali_thread_ *)memory;
    heaptide_pause(0);
    while (own->count)
        free(own->values[--own->count].text);
    free(own->values);
    free(own);
    heaptide_cali_own_ = NULL;
    heaptide_resume(0);
}
static __attribute__((unused)) void heaptide_cali_make_key_(void)
{
    heaptide_cali_has_key_
        = pthread_key_create(&heaptide_cali_key_, heaptide_cali_thread_ends_) == 0;
}

// The key's destructor is unloaded with the module, so the key is deleted; data of threads remains.
static __attribute__((destructor, used)) void heaptide_cali_unload_(void)
{
    if (__atomic_exchange_n(&heaptide_cali_has_key_, 0, __ATOMIC_ACQ_REL))
        pthread_key_delete(heaptide_cali_key_);
}

static __attribute__((noinline, cold, unused)) struct heaptide_cali_thread_ *
heaptide_cali_new_thread_(void)
{
    struct heaptide_cali_thread_ *own;
    heaptide_pause(0);
    own = (struct heaptide_cali_thread_ *)calloc(1, sizeof *own);
    pthread_once(&heaptide_cali_once_, heaptide_cali_make_key_);
    if (own && (!heaptide_cali_has_key_ || pthread_setspecific(heaptide_cali_key_, own))) {
        free(own);
        own = NULL;
    }
    heaptide_cali_own_ = own;
    heaptide_resume(0);
    return own;
}

// Returns NULL if out of memory.
static inline struct heaptide_cali_thread_ *heaptide_cali_mine_(void)
{
    struct heaptide_cali_thread_ *own = heaptide_cali_own_;
    return __builtin_expect(own != NULL, 1) ? own : heaptide_cali_new_thread_();
}

// Stores a region until it is ended by name. Guards save the enclosing name themselves.
static inline void heaptide_cali_enter_(const char *region)
{
    struct heaptide_cali_thread_ *own = heaptide_cali_mine_();
    if (own && own->regions++ < HEAPTIDE_CALI_REGIONS_)
        own->region[own->regions - 1] = heaptide_cali_current_;
    heaptide_cali_current_ = region;
}
static inline void heaptide_cali_leave_(void)
{
    struct heaptide_cali_thread_ *own = heaptide_cali_own_;
    uint32_t open = own ? own->regions : 0;
    if (open)
        own->regions--;
    heaptide_cali_current_
        = open && open <= HEAPTIDE_CALI_REGIONS_ ? own->region[open - 1] : NULL;
}

// Returns the last open value of an attribute.
static __attribute__((unused)) struct heaptide_cali_value_ *
heaptide_cali_open_(const struct heaptide_cali_attribute_ *attribute)
{
    struct heaptide_cali_thread_ *own = heaptide_cali_own_;
    uint32_t i;
    for (i = own ? own->count : 0; i--;)
        if (own->values[i].attribute == attribute
            || !strcmp(own->values[i].attribute->name, attribute->name))
            return &own->values[i];
    return NULL;
}

static __attribute__((unused)) void
heaptide_cali_assign_(const struct heaptide_interface *t, struct heaptide_cali_value_ *at,
                      cali_variant_t value)
{
    cali_attr_type type = cali_variant_get_type(value);
    at->name = heaptide_cali_name_(t, at->attribute, value);
    at->value = value;
    t->pause(0);
    free(at->text);
    at->text = NULL;
    if (type == CALI_TYPE_STRING || type == CALI_TYPE_USR) {
        size_t bytes = cali_variant_get_size(value);
        at->text = (char *)malloc(bytes + 1);
        if (at->text) {
            memcpy(at->text, value.value.unmanaged_const_ptr, bytes);
            at->text[bytes] = 0;
        }
        at->value = at->text ? cali_make_variant(type, at->text, bytes) : cali_make_empty_variant();
    }
    t->resume(0);
}

static __attribute__((unused)) void
heaptide_cali_begin_(const struct heaptide_interface *t, struct heaptide_cali_attribute_ *attribute,
                     cali_variant_t value)
{
    struct heaptide_cali_thread_ *own = heaptide_cali_mine_();
    struct heaptide_cali_value_ *at;
    if (!own || !attribute)
        return;
    if (own->count == own->capacity) {
        uint32_t capacity = own->capacity ? 2 * own->capacity : 16;
        t->pause(0);
        at = (struct heaptide_cali_value_ *)realloc(own->values, capacity * sizeof *at);
        t->resume(0);
        if (!at)
            return;
        own->values = at;
        own->capacity = capacity;
    }
    at = &own->values[own->count++];
    at->attribute = attribute;
    at->text = NULL;
    heaptide_cali_assign_(t, at, value);
    t->scope_begin(at->name);
}

// Leaves the scopes of `at` and of the values begun after it, and enters the latter again after the
// new value of `at`, because values of different attributes need not nest.
static __attribute__((unused)) void heaptide_cali_reopen_(const struct heaptide_interface *t,
                                                          struct heaptide_cali_value_ *at,
                                                          const cali_variant_t *value)
{
    struct heaptide_cali_thread_ *own = heaptide_cali_own_;
    struct heaptide_cali_value_ *end = own->values + own->count, *each;
    for (each = end; each-- > at;)
        heaptide_scope_end(each->name);
    if (value) {
        heaptide_cali_assign_(t, at, *value);
    } else {
        if (at->text) {
            t->pause(0);
            free(at->text);
            t->resume(0);
        }
        memmove(at, at + 1, (size_t)(end - at - 1) * sizeof *at);
        end--;
        own->count--;
    }
    for (each = at; each < end; each++)
        heaptide_scope_begin(each->name);
}

static __attribute__((unused)) void
heaptide_cali_end_(struct heaptide_cali_attribute_ *attribute)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_cali_value_ *at = t && attribute ? heaptide_cali_open_(attribute) : NULL;
    if (at)
        heaptide_cali_reopen_(t, at, NULL);
}

static __attribute__((unused)) void
heaptide_cali_set_(const struct heaptide_interface *t, struct heaptide_cali_attribute_ *attribute,
                   cali_variant_t value)
{
    struct heaptide_cali_value_ *at = attribute ? heaptide_cali_open_(attribute) : NULL;
    if (at)
        heaptide_cali_reopen_(t, at, &value);
    else
        heaptide_cali_begin_(t, attribute, value);
}

#ifdef __cplusplus
}
#endif

#include "heaptide_output.h"

#endif
