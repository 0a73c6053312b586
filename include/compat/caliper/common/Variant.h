//! Caliper's variant as a class, for programs written for Caliper.

#ifndef HEAPTIDE_COMPAT_CALI_VARIANT_CLASS_H
#define HEAPTIDE_COMPAT_CALI_VARIANT_CLASS_H

#include "cali_variant.h"

#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <type_traits>

namespace cali {

class Variant {
public:
    Variant() : value_(cali_make_empty_variant()) {}
    Variant(const cali_variant_t &value) : value_(value) {}
    explicit Variant(bool value) : value_(cali_make_variant_from_bool(value)) {}
    explicit Variant(int value) : value_(cali_make_variant_from_int(value)) {}
    explicit Variant(double value) : value_(cali_make_variant_from_double(value)) {}
    /// Refers to the text, which must outlive the variant.
    explicit Variant(const char *value) : value_(cali_make_variant_from_string(value)) {}
    explicit Variant(cali_attr_type value) : value_(cali_make_variant_from_type(value)) {}
    template <typename Unsigned,
              typename std::enable_if<std::is_unsigned<Unsigned>::value, int>::type = 0>
    explicit Variant(Unsigned value) : value_(cali_make_variant_from_uint(value))
    {
    }
    Variant(cali_attr_type type, const void *data, std::size_t size)
        : value_(cali_make_variant(type, data, size))
    {
    }

    bool empty() const { return cali_variant_is_empty(value_); }
    operator bool() const { return !empty(); }

    cali_variant_t c_variant() const { return value_; }
    cali_attr_type type() const { return cali_variant_get_type(value_); }
    const void *data() const { return cali_variant_get_data(&value_); }
    std::size_t size() const { return cali_variant_get_size(value_); }
    void *get_ptr() const { return cali_variant_get_ptr(value_); }

    cali_id_t to_id(bool *ok = nullptr) const { return cali_variant_to_uint(value_, ok); }
    int to_int(bool *ok = nullptr) const { return cali_variant_to_int(value_, ok); }
    std::int64_t to_int64(bool *ok = nullptr) const { return cali_variant_to_int64(value_, ok); }
    std::uint64_t to_uint(bool *ok = nullptr) const { return cali_variant_to_uint(value_, ok); }
    bool to_bool(bool *ok = nullptr) const { return cali_variant_to_bool(value_, ok); }
    double to_double(bool *ok = nullptr) const { return cali_variant_to_double(value_, ok); }
    cali_attr_type to_attr_type(bool *ok = nullptr) const
    {
        return cali_variant_to_type(value_, ok);
    }

    std::string to_string() const
    {
        char text[64];
        switch (type()) {
        case CALI_TYPE_USR:
        case CALI_TYPE_STRING:
            return std::string(static_cast<const char *>(data()), size());
        case CALI_TYPE_BOOL:
            return value_.value.v_bool ? "true" : "false";
        case CALI_TYPE_INT:
            return std::to_string(value_.value.v_int);
        case CALI_TYPE_UINT:
            return std::to_string(value_.value.v_uint);
        case CALI_TYPE_DOUBLE:
            std::snprintf(text, sizeof text, "%g", value_.value.v_double);
            return text;
        case CALI_TYPE_TYPE:
            return cali_type2string(value_.value.v_type);
        case CALI_TYPE_ADDR:
        case CALI_TYPE_PTR:
            std::snprintf(text, sizeof text, "%llx",
                          static_cast<unsigned long long>(value_.value.v_uint));
            return text;
        default:
            return "";
        }
    }

    friend bool operator==(const Variant &a, const Variant &b)
    {
        return cali_variant_eq(a.value_, b.value_);
    }
    friend bool operator!=(const Variant &a, const Variant &b) { return !(a == b); }
    friend bool operator<(const Variant &a, const Variant &b)
    {
        return cali_variant_compare(a.value_, b.value_) < 0;
    }
    friend bool operator>(const Variant &a, const Variant &b) { return b < a; }
    friend std::ostream &operator<<(std::ostream &out, const Variant &value)
    {
        return out << value.to_string();
    }

private:
    cali_variant_t value_;
};

} // namespace cali

#endif
