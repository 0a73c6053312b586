//! Caliper's C interface, for programs written for Caliper: annotations become scopes of the
//! recording, tracked memory becomes labels, and the output that Caliper's variables request is
//! written at exit.
//
// Written from Caliper's public interface. Requires C99 or C++11; header only; a no-op without the
// recorder. docs/replaces.md lists the differences. In short:
// - Functions are scopes of the attribute `function`, which Caliper's page on tracking allocations
//   uses in queries. Define HEAPTIDE_CALIPER_FUNCTION as "region" to use the attribute of later
//   versions.
// - All attributes are part of the scope path of a thread, regardless of their properties.
// - All channels share one recording.
// - Snapshots that a program pushes become marks on the timeline, and records of the table
//   `caliper`.

#ifndef HEAPTIDE_COMPAT_CALI_H
#define HEAPTIDE_COMPAT_CALI_H

#include "heaptide_caliper.h"

#ifndef HEAPTIDE_CALIPER_FUNCTION
#define HEAPTIDE_CALIPER_FUNCTION "function"
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- Library

static inline const char *cali_caliper_version(void)
{
    return "2.14.0";
}

// Reads the configuration. Calling it is optional.
static inline void cali_init(void)
{
    heaptide_cali_init_();
}
static inline int cali_is_initialized(void)
{
    return heaptide_cali_exits_;
}

// Writes the configured output immediately. With CALI_FLUSH_CLEAR_BUFFERS, nothing more is written
// at exit.
static inline void cali_flush(int flush_opts)
{
    heaptide_cali_flush_all_();
    if (flush_opts & CALI_FLUSH_CLEAR_BUFFERS)
        heaptide_cali_cleared_ = 1;
}

// ---- Attributes

static inline cali_id_t cali_create_attribute(const char *name, cali_attr_type type,
                                              int properties)
{
    struct heaptide_cali_attribute_ *made = heaptide_cali_make_attribute_(name, type, properties);
    return made ? (cali_id_t)(uintptr_t)made : CALI_INV_ID;
}

// Only class.memoryaddress of the metadata has an effect.
static inline cali_id_t cali_create_attribute_with_metadata(const char *name, cali_attr_type type,
                                                            int properties, int n,
                                                            const cali_id_t meta_attr_list[],
                                                            const cali_variant_t meta_val_list[])
{
    struct heaptide_cali_attribute_ *made = heaptide_cali_make_attribute_(name, type, properties);
    int i;
    for (i = 0; made && i < n; i++)
        if (meta_attr_list[i] == cali_class_memoryaddress_attr_id)
            made->is_address = cali_variant_to_bool(meta_val_list[i], NULL);
    return made ? (cali_id_t)(uintptr_t)made : CALI_INV_ID;
}

static inline cali_id_t cali_find_attribute(const char *name)
{
    struct heaptide_cali_attribute_ *found = heaptide_cali_attribute_named_(name);
    return found ? (cali_id_t)(uintptr_t)found : CALI_INV_ID;
}
static inline const char *cali_attribute_name(cali_id_t attr_id)
{
    struct heaptide_cali_attribute_ *at = heaptide_cali_attribute_at_(attr_id);
    return at ? at->name : NULL;
}
static inline cali_attr_type cali_attribute_type(cali_id_t attr_id)
{
    struct heaptide_cali_attribute_ *at = heaptide_cali_attribute_at_(attr_id);
    return at ? at->type : CALI_TYPE_INV;
}
static inline int cali_attribute_properties(cali_id_t attr_id)
{
    struct heaptide_cali_attribute_ *at = heaptide_cali_attribute_at_(attr_id);
    return at ? at->properties : 0;
}
static inline cali_id_t cali_make_loop_iteration_attribute(const char *name)
{
    char full[256];
    if (!heaptide_cali_is_used_())
        return CALI_INV_ID;
    snprintf(full, sizeof full, "iteration#%s", name);
    return cali_create_attribute(full, CALI_TYPE_INT, CALI_ATTR_ASVALUE);
}

// ---- Regions

static inline void cali_begin_region(const char *name)
{
    const struct heaptide_interface *t = heaptide_table_();
    heaptide_cali_observe_(HEAPTIDE_CALI_BEGIN_, "region", CALI_ATTR_NESTED, name);
    if (!t)
        return;
    heaptide_cali_enter_(name);
    t->scope_begin_named(NULL, 0, name, strlen(name));
}
static inline void cali_end_region(const char *name)
{
    const struct heaptide_interface *t = heaptide_table_();
    heaptide_cali_observe_(HEAPTIDE_CALI_END_NAMED_, "region", CALI_ATTR_NESTED, name);
    if (!t)
        return;
    heaptide_cali_leave_();
    t->scope_end_named(NULL, 0, name, strlen(name));
}
static inline void cali_begin_phase(const char *name)
{
    heaptide_cali_observe_(HEAPTIDE_CALI_BEGIN_, "phase", CALI_ATTR_NESTED, name);
    heaptide_begin_string("phase", name);
}
static inline void cali_end_phase(const char *name)
{
    heaptide_cali_observe_(HEAPTIDE_CALI_END_NAMED_, "phase", CALI_ATTR_NESTED, name);
    heaptide_end_string("phase", name);
}
static inline void cali_begin_comm_region(const char *name)
{
    heaptide_cali_observe_(HEAPTIDE_CALI_BEGIN_, "comm.region", CALI_ATTR_NESTED, name);
    heaptide_begin_string("comm.region", name);
}
static inline void cali_end_comm_region(const char *name)
{
    heaptide_cali_observe_(HEAPTIDE_CALI_END_NAMED_, "comm.region", CALI_ATTR_NESTED, name);
    heaptide_end_string("comm.region", name);
}

// Returns the name of the thread's innermost region or function, as the pointer that the caller
// passed; else `alt`.
static inline const char *cali_get_current_region_or(const char *alt)
{
    const char *current = heaptide_cali_current_;
    return current ? current : alt;
}

// ---- Values of attributes

static inline void heaptide_cali_begin_at_(cali_id_t attr, cali_variant_t value)
{
    const struct heaptide_interface *t = heaptide_table_();
    heaptide_cali_observe_value_(HEAPTIDE_CALI_BEGIN_, heaptide_cali_attribute_at_(attr), value);
    if (t)
        heaptide_cali_begin_(t, heaptide_cali_attribute_at_(attr), value);
}
static inline void heaptide_cali_set_at_(cali_id_t attr, cali_variant_t value)
{
    const struct heaptide_interface *t = heaptide_table_();
    heaptide_cali_observe_value_(HEAPTIDE_CALI_SET_, heaptide_cali_attribute_at_(attr), value);
    if (t)
        heaptide_cali_set_(t, heaptide_cali_attribute_at_(attr), value);
}
static inline void cali_begin(cali_id_t attr)
{
    heaptide_cali_begin_at_(attr, cali_make_variant_from_bool(true));
}
static inline void cali_begin_double(cali_id_t attr, double val)
{
    heaptide_cali_begin_at_(attr, cali_make_variant_from_double(val));
}
static inline void cali_begin_int(cali_id_t attr, int val)
{
    heaptide_cali_begin_at_(attr, cali_make_variant_from_int(val));
}
static inline void cali_begin_string(cali_id_t attr, const char *val)
{
    heaptide_cali_begin_at_(attr, cali_make_variant_from_string(val));
}
static inline void cali_end(cali_id_t attr)
{
    heaptide_cali_observe_value_(HEAPTIDE_CALI_END_, heaptide_cali_attribute_at_(attr),
                                 cali_make_empty_variant());
    heaptide_cali_end_(heaptide_cali_attribute_at_(attr));
}
// Ends a value that is expected to be `val`; a different value is ended, too.
static inline void cali_safe_end_string(cali_id_t attr, const char *val)
{
    (void)val;
    cali_end(attr);
}
// `value` has the attribute's type.
static inline void cali_set(cali_id_t attr, const void *value, size_t size)
{
    heaptide_cali_set_at_(attr, cali_make_variant(cali_attribute_type(attr), value, size));
}
static inline void cali_set_double(cali_id_t attr, double val)
{
    heaptide_cali_set_at_(attr, cali_make_variant_from_double(val));
}
static inline void cali_set_int(cali_id_t attr, int val)
{
    heaptide_cali_set_at_(attr, cali_make_variant_from_int(val));
}
static inline void cali_set_string(cali_id_t attr, const char *val)
{
    heaptide_cali_set_at_(attr, cali_make_variant_from_string(val));
}

// Variants that take the attribute's name, and create the attribute if it does not exist.
static inline void cali_begin_byname(const char *attr_name)
{
    if (heaptide_cali_is_used_())
        cali_begin(cali_create_attribute(attr_name, CALI_TYPE_BOOL, CALI_ATTR_DEFAULT));
}
static inline void cali_begin_double_byname(const char *attr_name, double val)
{
    if (heaptide_cali_is_used_())
        cali_begin_double(cali_create_attribute(attr_name, CALI_TYPE_DOUBLE, 0), val);
}
static inline void cali_begin_int_byname(const char *attr_name, int val)
{
    if (heaptide_cali_is_used_())
        cali_begin_int(cali_create_attribute(attr_name, CALI_TYPE_INT, 0), val);
}
static inline void cali_begin_string_byname(const char *attr_name, const char *val)
{
    if (heaptide_cali_is_used_())
        cali_begin_string(cali_create_attribute(attr_name, CALI_TYPE_STRING, 0), val);
}
static inline void cali_set_double_byname(const char *attr_name, double val)
{
    if (heaptide_cali_is_used_())
        cali_set_double(
            cali_create_attribute(attr_name, CALI_TYPE_DOUBLE, CALI_ATTR_UNALIGNED), val);
}
static inline void cali_set_int_byname(const char *attr_name, int val)
{
    if (heaptide_cali_is_used_())
        cali_set_int(cali_create_attribute(attr_name, CALI_TYPE_INT, CALI_ATTR_UNALIGNED), val);
}
static inline void cali_set_string_byname(const char *attr_name, const char *val)
{
    if (heaptide_cali_is_used_())
        cali_set_string(
            cali_create_attribute(attr_name, CALI_TYPE_STRING, CALI_ATTR_UNALIGNED), val);
}
static inline void cali_end_byname(const char *attr_name)
{
    if (heaptide_cali_is_used_())
        cali_end(cali_find_attribute(attr_name));
}

// Returns the thread's current value of an attribute, valid until it ends; empty if there is none.
static inline cali_variant_t cali_get(cali_id_t attr)
{
    struct heaptide_cali_attribute_ *at = heaptide_cali_attribute_at_(attr);
    struct heaptide_cali_value_ *open = at && heaptide_loaded() ? heaptide_cali_open_(at) : NULL;
    return open ? open->value : cali_make_empty_variant();
}

// Records a value that applies to the whole run, as a mark `name=value`.
static inline void cali_set_global_string_byname(const char *attr_name, const char *val)
{
    char text[512];
    if (!heaptide_loaded())
        return;
    snprintf(text, sizeof text, "%s=%s", attr_name, val);
    heaptide_mark_now(text);
}
static inline void cali_set_global_double_byname(const char *attr_name, double val)
{
    char text[64];
    snprintf(text, sizeof text, "%g", val);
    cali_set_global_string_byname(attr_name, text);
}
static inline void cali_set_global_int_byname(const char *attr_name, int val)
{
    char text[64];
    snprintf(text, sizeof text, "%d", val);
    cali_set_global_string_byname(attr_name, text);
}
static inline void cali_set_global_uint_byname(const char *attr_name, uint64_t val)
{
    char text[64];
    snprintf(text, sizeof text, "%llu", (unsigned long long)val);
    cali_set_global_string_byname(attr_name, text);
}

// Appends a value to the text of a snapshot, in the form of its type: quoted text, 0xADDRESS,
// number.
static __attribute__((unused)) size_t heaptide_cali_show_(char *text, size_t size,
                                                          cali_variant_t v)
{
    const char *from = (const char *)v.value.unmanaged_const_ptr;
    const size_t length = cali_variant_get_size(v);
    size_t used = 0, i;
    if (size < 8)
        return 0;
    switch (cali_variant_get_type(v)) {
    case CALI_TYPE_STRING:
    case CALI_TYPE_USR:
        text[used++] = '"';
        for (i = 0; i < length && used + 4 < size; i++) {
            if (from[i] == '"' || from[i] == '\\')
                text[used++] = '\\';
            text[used++] = from[i];
        }
        text[used++] = '"';
        text[used] = 0;
        return used;
    case CALI_TYPE_DOUBLE:
        used = (size_t)snprintf(text, size, "%.17g", v.value.v_double);
        break;
    case CALI_TYPE_BOOL:
        used = (size_t)snprintf(text, size, "%s", v.value.v_bool ? "true" : "false");
        break;
    case CALI_TYPE_ADDR:
    case CALI_TYPE_PTR:
        used = (size_t)snprintf(text, size, "0x%llx", (unsigned long long)v.value.v_uint);
        break;
    case CALI_TYPE_UINT:
        used = (size_t)snprintf(text, size, "%llu", (unsigned long long)v.value.v_uint);
        break;
    default:
        used = (size_t)snprintf(text, size, "%lld", (long long)v.value.v_int);
    }
    return used < size ? used : size - 1;
}

// Records a snapshot: a mark with the values, which is a record of `.cali` files if there is a
// trace. For attributes with the metadata class.memoryaddress, the record has the label, number and
// element of the block at the address, as `alloc.label#NAME` and similar names; the mark, those of
// labelled memory.
static inline void cali_push_snapshot(int scope, int n, const cali_id_t trigger_info_attr_list[],
                                      const cali_variant_t trigger_info_val_list[])
{
    char text[1024] = "snapshot";
    size_t used = strlen(text);
    int i;
    (void)scope;
    heaptide_cali_observe_(HEAPTIDE_CALI_SNAPSHOT_, "", 0, "");
    if (!heaptide_loaded())
        return;
    for (i = 0; i < n && used + 64 < sizeof text; i++) {
        struct heaptide_cali_attribute_ *at
            = heaptide_cali_attribute_at_(trigger_info_attr_list[i]);
        cali_variant_t v = trigger_info_val_list[i];
        struct heaptide_block block;
        int more;
        if (!at || strlen(at->name) + 64 > sizeof text - used)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, ",%s=%s", at->name,
                                 at->is_address ? "@" : "");
        used += heaptide_cali_show_(text + used, sizeof text - used, v);
        if (!at->is_address || !heaptide_resolve((const void *)(uintptr_t)v.value.v_uint, &block)
            || !block.label)
            continue;
        more = snprintf(text + used, sizeof text - used,
                        ",alloc.label#%s=\"%s\",alloc.uid#%s=%llu,alloc.index#%s=%llu", at->name,
                        block.label, at->name, (unsigned long long)block.uid, at->name,
                        (unsigned long long)block.index);
        if (more > 0 && (size_t)more < sizeof text - used)
            used += (size_t)more;
        else
            text[used] = 0;
    }
    heaptide_mark_now(text);
}

// ---- Snapshots that the program reads

// An entry of a snapshot in a buffer: an attribute with the type of the value in its highest byte,
// and a number or the address of a text. Texts stay valid until their value ends.
struct heaptide_cali_entry_ {
    uint64_t attribute, value;
};

static inline struct heaptide_cali_entry_ heaptide_cali_pack_(cali_id_t attribute,
                                                              cali_variant_t value)
{
    struct heaptide_cali_entry_ entry;
    entry.attribute = (uint64_t)attribute | (uint64_t)cali_variant_get_type(value) << 56;
    entry.value = value.value.v_uint;
    return entry;
}
static inline cali_variant_t heaptide_cali_unpack_(const struct heaptide_cali_entry_ *entry)
{
    const cali_attr_type type = (cali_attr_type)(entry->attribute >> 56);
    cali_variant_t value;
    if (type == CALI_TYPE_STRING || type == CALI_TYPE_USR)
        return cali_make_variant_from_string((const char *)(uintptr_t)entry->value);
    value = cali_make_variant_from_uint(entry->value);
    value.type_and_size = (uint64_t)type;
    return value;
}

typedef int (*cali_entry_proc_fn)(void *user_arg, cali_id_t attr_id, cali_variant_t val);

// Copies the open values and regions of the thread into the buffer, innermost first, for the
// functions below. Regions and functions have the attribute `region`. Returns the bytes of all; if
// they exceed `len`, not all are copied. 0 without the recorder, or if nothing is open.
static inline size_t cali_channel_pull_snapshot(cali_id_t chn_id, int scopes, size_t len,
                                                unsigned char *buf)
{
    struct heaptide_cali_thread_ *own = heaptide_loaded() ? heaptide_cali_own_ : NULL;
    struct heaptide_cali_entry_ entry;
    const char *region = heaptide_loaded() ? heaptide_cali_current_ : NULL;
    size_t used = sizeof(uint64_t);
    uint32_t i = own ? own->count : 0, depth = own ? own->regions : 0;
    uint64_t count = 0;
    (void)chn_id;
    (void)scopes;
    while (i || region) {
        if (i) {
            i--;
            entry = heaptide_cali_pack_((cali_id_t)(uintptr_t)own->values[i].attribute,
                                        own->values[i].value);
        } else {
            entry = heaptide_cali_pack_(cali_region_attr_id,
                                        cali_make_variant_from_string(region));
            depth = depth > HEAPTIDE_CALI_REGIONS_ ? HEAPTIDE_CALI_REGIONS_ : depth;
            region = depth ? own->region[--depth] : NULL;
        }
        if (used + sizeof entry <= len) {
            memcpy(buf + used, &entry, sizeof entry);
            count++;
        }
        used += sizeof entry;
    }
    if (used == sizeof count)
        return 0;
    if (len >= sizeof count)
        memcpy(buf, &count, sizeof count);
    return used;
}

// Calls `proc_fn` with each entry until it returns 0.
static inline void cali_unpack_snapshot(const unsigned char *buf, size_t *bytes_read,
                                        cali_entry_proc_fn proc_fn, void *user_arg)
{
    struct heaptide_cali_entry_ entry;
    uint64_t count, i;
    int wants_more = 1;
    memcpy(&count, buf, sizeof count);
    for (i = 0; i < count && wants_more; i++) {
        memcpy(&entry, buf + sizeof count + i * sizeof entry, sizeof entry);
        wants_more = proc_fn(user_arg, (cali_id_t)(entry.attribute & UINT64_MAX >> 8),
                             heaptide_cali_unpack_(&entry));
    }
    if (bytes_read)
        *bytes_read += sizeof count + (size_t)count * sizeof entry;
}

struct heaptide_cali_search_ {
    cali_id_t attribute;
    cali_entry_proc_fn proc_fn;
    void *user_arg;
    cali_variant_t found;
};
static inline int heaptide_cali_first_(void *search, cali_id_t attribute, cali_variant_t value)
{
    struct heaptide_cali_search_ *of = (struct heaptide_cali_search_ *)search;
    if (attribute == of->attribute)
        of->found = value;
    return attribute != of->attribute;
}
static inline int heaptide_cali_each_(void *search, cali_id_t attribute, cali_variant_t value)
{
    struct heaptide_cali_search_ *of = (struct heaptide_cali_search_ *)search;
    return attribute != of->attribute || of->proc_fn(of->user_arg, attribute, value);
}

// Returns the innermost value of an attribute; empty if there is none.
static inline cali_variant_t cali_find_first_in_snapshot(const unsigned char *buf,
                                                         cali_id_t attr_id, size_t *bytes_read)
{
    struct heaptide_cali_search_ search;
    search.attribute = attr_id;
    search.found = cali_make_empty_variant();
    cali_unpack_snapshot(buf, bytes_read, heaptide_cali_first_, &search);
    return search.found;
}

// Calls `proc_fn` with each entry of an attribute.
static inline void cali_find_all_in_snapshot(const unsigned char *buf, cali_id_t attr_id,
                                             size_t *bytes_read, cali_entry_proc_fn proc_fn,
                                             void *userdata)
{
    struct heaptide_cali_search_ search;
    search.attribute = attr_id;
    search.proc_fn = proc_fn;
    search.user_arg = userdata;
    cali_unpack_snapshot(buf, bytes_read, heaptide_cali_each_, &search);
}

// ---- Configuration and channels

// Sets a default, before the first annotation; the environment takes precedence.
static inline void cali_config_preset(const char *key, const char *value)
{
    heaptide_cali_add_(&heaptide_cali_settings_, key, value, 1);
    heaptide_cali_init_();
}
// Ignores the values of the environment.
static inline void cali_config_set(const char *key, const char *value)
{
    heaptide_cali_add_(&heaptide_cali_settings_, key, value, 0);
    heaptide_cali_init_();
}
static inline void cali_config_allow_read_env(int allow)
{
    heaptide_cali_ignores_environment_ = !allow;
}

struct _cali_configset_t {
    struct heaptide_cali_setting_ *settings;
};
typedef struct _cali_configset_t *cali_configset_t;

static inline void cali_configset_set(cali_configset_t cfg, const char *key, const char *value)
{
    if (cfg)
        heaptide_cali_add_(&cfg->settings, key, value, 0);
}
// Reads pairs of key and value, up to the first key that is NULL.
static inline cali_configset_t cali_create_configset(const char *keyvallist[][2])
{
    cali_configset_t made;
    heaptide_pause(0);
    made = (cali_configset_t)calloc(1, sizeof *made);
    heaptide_resume(0);
    for (; keyvallist && (*keyvallist)[0]; keyvallist++)
        cali_configset_set(made, (*keyvallist)[0], (*keyvallist)[1]);
    return made;
}
static inline void cali_delete_configset(cali_configset_t cfg)
{
    heaptide_pause(0);
    while (cfg && cfg->settings) {
        struct heaptide_cali_setting_ *first = cfg->settings;
        cfg->settings = first->next;
        free(first->key);
        free(first->value);
        free(first);
    }
    free(cfg);
    heaptide_resume(0);
}

// A channel writes the output of its services, at its flush and at exit, from the common recording.
static inline cali_id_t cali_create_channel(const char *name, int flags, cali_configset_t cfg)
{
    const struct heaptide_cali_setting_ *each = cfg ? cfg->settings : NULL;
    struct heaptide_cali_channel_ *made;
    (void)name;
    heaptide_pause(0);
    made = (struct heaptide_cali_channel_ *)calloc(1, sizeof *made);
    heaptide_resume(0);
    if (!made)
        return CALI_INV_ID;
    for (; each; each = each->next)
        if (each->key && each->value && !heaptide_cali_find_(made->settings, each->key, 0))
            heaptide_cali_add_(&made->settings, each->key, each->value, 0);
    made->is_active = !(flags & CALI_CHANNEL_LEAVE_INACTIVE);
    made->reads_environment = (flags & CALI_CHANNEL_ALLOW_READ_ENV) != 0;
    made->next = heaptide_cali_channels_;
    heaptide_cali_channels_ = made;
    heaptide_cali_init_();
    return (cali_id_t)(uintptr_t)made;
}
static inline struct heaptide_cali_channel_ *heaptide_cali_channel_at_(cali_id_t chn_id)
{
    struct heaptide_cali_channel_ *each = heaptide_cali_channels_;
    while (each && (cali_id_t)(uintptr_t)each != chn_id)
        each = each->next;
    return each;
}
static inline void cali_delete_channel(cali_id_t chn_id)
{
    struct heaptide_cali_channel_ *channel = heaptide_cali_channel_at_(chn_id);
    if (channel)
        channel->is_deleted = 1;
}
static inline void cali_activate_channel(cali_id_t chn_id)
{
    struct heaptide_cali_channel_ *channel = heaptide_cali_channel_at_(chn_id);
    if (channel)
        channel->is_active = 1;
}
static inline void cali_deactivate_channel(cali_id_t chn_id)
{
    struct heaptide_cali_channel_ *channel = heaptide_cali_channel_at_(chn_id);
    if (channel)
        channel->is_active = 0;
}
static inline int cali_channel_is_active(cali_id_t chn_id)
{
    struct heaptide_cali_channel_ *channel = heaptide_cali_channel_at_(chn_id);
    return channel && channel->is_active && !channel->is_deleted;
}
static inline void cali_channel_flush(cali_id_t chn_id, int flush_opts)
{
    struct heaptide_cali_channel_ *channel = heaptide_cali_channel_at_(chn_id);
    if (!channel || !heaptide_recording())
        return;
    heaptide_pause(0);
    heaptide_cali_flush_(channel);
    heaptide_resume(0);
    if (flush_opts & CALI_FLUSH_CLEAR_BUFFERS)
        channel->is_deleted = 1;
}
static inline void cali_channel_push_snapshot(cali_id_t chn_id, int scope, int n,
                                              const cali_id_t trigger_info_attr_list[],
                                              const cali_variant_t trigger_info_val_list[])
{
    (void)chn_id;
    cali_push_snapshot(scope, n, trigger_info_attr_list, trigger_info_val_list);
}
static inline cali_variant_t cali_channel_get(cali_id_t chn_id, cali_id_t attr)
{
    (void)chn_id;
    return cali_get(attr);
}

#ifdef __cplusplus
} // extern "C"

#include <iostream>
#include <map>
#include <string>

namespace cali {

typedef std::map<std::string, std::string> config_map_t;

inline cali_id_t create_channel(const char *name, int flags, const config_map_t &config)
{
    cali_configset_t settings = cali_create_configset(NULL);
    for (config_map_t::const_iterator each = config.begin(); each != config.end(); ++each)
        cali_configset_set(settings, each->first.c_str(), each->second.c_str());
    const cali_id_t made = cali_create_channel(name, flags, settings);
    cali_delete_configset(settings);
    return made;
}

/// Writes the result of a query to a stream; writes nothing without the recorder.
inline void write_report_for_query(cali_id_t channel, const char *query, int, std::ostream &out)
{
    char arguments[256];
    const heaptide_cali_channel_ *const at = heaptide_cali_channel_at_(channel);
    heaptide_cali_arguments_(at, heaptide_cali_value_of_(at, "CALI_SERVICES_ENABLE"), arguments,
                             sizeof arguments);
    std::FILE *file = heaptide_recording() ? std::tmpfile() : NULL;
    if (!file)
        return;
    heaptide_pause(0);
    char *format = heaptide_cali_query_(query, arguments), part[4096];
    heaptide_resume(0);
    if (format && heaptide_write_to(fileno(file), format)) {
        std::rewind(file);
        for (std::size_t n; (n = std::fread(part, 1, sizeof part, file)) > 0;)
            out.write(part, static_cast<std::streamsize>(n));
    }
    heaptide_pause(0);
    std::free(format);
    heaptide_resume(0);
    std::fclose(file);
}

} // namespace cali
#endif

#include "cali_macros.h"

#endif
