//! Caliper's core as a class, for programs written for Caliper: attributes, values, memory
//! regions.
//
// Covers what a program needs for annotations, without channels, snapshots and events of services.

#ifndef HEAPTIDE_COMPAT_CALIPER_CLASS_H
#define HEAPTIDE_COMPAT_CALIPER_CLASS_H

#include "cali.h"
#include "cali_datatracker.h"
#include "common/Variant.h"

#include <string>

namespace cali {

/// An attribute; invalid if no attribute has the given name.
class Attribute {
public:
    explicit Attribute(cali_id_t id = CALI_INV_ID) : id_(id) {}

    cali_id_t id() const { return id_; }
    std::string name() const
    {
        const char *name = cali_attribute_name(id_);
        return name ? name : "";
    }
    const char *name_c_str() const { return cali_attribute_name(id_); }
    cali_attr_type type() const { return cali_attribute_type(id_); }
    int properties() const { return cali_attribute_properties(id_); }
    explicit operator bool() const { return id_ != CALI_INV_ID; }
    friend bool operator==(const Attribute &a, const Attribute &b) { return a.id_ == b.id_; }
    friend bool operator!=(const Attribute &a, const Attribute &b) { return a.id_ != b.id_; }

private:
    cali_id_t id_;
};

/// The library as seen by the calling thread.
class Caliper {
public:
    static Caliper instance() { return Caliper(); }
    static bool is_initialized() { return cali_is_initialized() != 0; }
    explicit operator bool() const { return true; }

    Attribute create_attribute(const std::string &name, cali_attr_type type,
                               int properties = CALI_ATTR_DEFAULT)
    {
        return Attribute(cali_create_attribute(name.c_str(), type, properties));
    }
    Attribute get_attribute(const std::string &name) const
    {
        return Attribute(cali_find_attribute(name.c_str()));
    }
    bool attribute_exists(const std::string &name) const { return bool(get_attribute(name)); }

    void begin(const Attribute &attribute, const Variant &value)
    {
        heaptide_cali_begin_at_(attribute.id(), value.c_variant());
    }
    void set(const Attribute &attribute, const Variant &value)
    {
        heaptide_cali_set_at_(attribute.id(), value.c_variant());
    }
    void end(const Attribute &attribute) { cali_end(attribute.id()); }

    void memory_region_begin(const void *ptr, const char *label, std::size_t elem_size,
                             std::size_t ndims, const std::size_t dims[])
    {
        cali_datatracker_track_dimensional(ptr, label, elem_size, dims, ndims);
    }
    void memory_region_end(const void *ptr) { cali_datatracker_untrack(ptr); }
};

} // namespace cali

#endif
