//! Caliper's annotation classes, for programs written for Caliper: guards of scopes.

#ifndef HEAPTIDE_COMPAT_CALI_ANNOTATION_H
#define HEAPTIDE_COMPAT_CALI_ANNOTATION_H

#include "cali.h"
#include "common/Variant.h"

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

namespace cali {

/// Opens a named scope until the end of the enclosing block.
class NamedScope {
public:
    /// Enters a scope by a name that was looked up before; 0 does nothing. Inlined, so that begin
    /// and end use the thread's region of the same calling module.
    __attribute__((always_inline)) NamedScope(const char *attribute, std::uint32_t number,
                                              const char *name)
        : attribute_(attribute), number_(number), outer_(nullptr)
    {
        heaptide_cali_observe_(HEAPTIDE_CALI_BEGIN_, attribute, CALI_ATTR_NESTED, name);
        if (!number)
            return;
        outer_ = heaptide_cali_current_;
        heaptide_cali_current_ = name;
        heaptide_scope_begin(number);
    }
    NamedScope(const NamedScope &) = delete;
    NamedScope &operator=(const NamedScope &) = delete;
    __attribute__((always_inline)) ~NamedScope()
    {
        heaptide_cali_observe_(HEAPTIDE_CALI_END_, attribute_, CALI_ATTR_NESTED, "");
        if (!number_)
            return;
        heaptide_cali_current_ = outer_;
        heaptide_scope_end(number_);
    }

private:
    const char *attribute_;
    std::uint32_t number_;
    const char *outer_;
};

/// Opens a scope for a function until the end of the enclosing block.
class Function : NamedScope {
public:
    explicit Function(const char *name)
        : NamedScope(HEAPTIDE_CALIPER_FUNCTION,
                     heaptide_name_string(HEAPTIDE_CALIPER_FUNCTION, name), name)
    {
    }
    Function(std::uint32_t number, const char *name)
        : NamedScope(HEAPTIDE_CALIPER_FUNCTION, number, name)
    {
    }
};

/// Opens a scope for a region until the end of the enclosing block.
class ScopeAnnotation : NamedScope {
public:
    explicit ScopeAnnotation(const char *name) : NamedScope("region", heaptide_name(name), name) {}
};

/// Opens a scope for a loop until end(), or until its last copy is destroyed.
class Loop {
    struct Impl {
        std::uint32_t number;
        std::string iteration;
        int copies;
        bool is_open;
    };
    Impl *impl_;

public:
    /// Opens a scope for an iteration until the end of the enclosing block.
    class Iteration {
    public:
        Iteration(const Impl *impl, int i)
            : number_(impl ? heaptide_name_int(impl->iteration.c_str(), i) : 0)
        {
            heaptide_cali_observe_(HEAPTIDE_CALI_SNAPSHOT_, "", 0, "");
            heaptide_scope_begin(number_);
        }
        Iteration(Iteration &&other) noexcept : number_(other.number_) { other.number_ = 0; }
        Iteration(const Iteration &) = delete;
        Iteration &operator=(const Iteration &) = delete;
        ~Iteration()
        {
            heaptide_cali_observe_(HEAPTIDE_CALI_SNAPSHOT_, "", 0, "");
            heaptide_scope_end(number_);
        }

    private:
        std::uint32_t number_;
    };

    explicit Loop(const char *name) : impl_(nullptr)
    {
        heaptide_cali_observe_(HEAPTIDE_CALI_BEGIN_, "loop", CALI_ATTR_NESTED, name);
        if (!heaptide_cali_is_used_())
            return;
        heaptide_pause(0);
        impl_ = new Impl{heaptide_name_string("loop", name), std::string("iteration#") + name, 1,
                         true};
        heaptide_resume(0);
        heaptide_scope_begin(impl_->number);
    }
    Loop(const Loop &other) : impl_(other.impl_)
    {
        if (impl_)
            impl_->copies++;
    }
    Loop &operator=(const Loop &) = delete;
    ~Loop()
    {
        if (!impl_ || --impl_->copies)
            return;
        end();
        heaptide_pause(0);
        delete impl_;
        heaptide_resume(0);
    }

    Iteration iteration(int i) const { return Iteration(impl_, i); }

    void end()
    {
        if (!impl_ || !impl_->is_open)
            return;
        heaptide_cali_observe_(HEAPTIDE_CALI_END_, "loop", CALI_ATTR_NESTED, "");
        heaptide_scope_end(impl_->number);
        impl_->is_open = false;
    }
};

/// An attribute whose values can be begun, set and ended.
class Annotation {
public:
    typedef std::map<const char *, Variant> MetadataListType;

    explicit Annotation(const char *name, int properties = 0)
        : attribute_(heaptide_cali_is_used_()
                         ? cali_create_attribute(name, CALI_TYPE_INV, properties)
                         : CALI_INV_ID)
    {
    }
    Annotation(const char *name, const MetadataListType &, int properties = 0)
        : Annotation(name, properties)
    {
    }

    /// Ends the current value at the end of the enclosing block.
    class Guard {
    public:
        Guard(Annotation &annotation) : attribute_(annotation.attribute_) {}
        Guard(const Guard &) = delete;
        Guard &operator=(const Guard &) = delete;
        ~Guard() { cali_end(attribute_); }

    private:
        cali_id_t attribute_;
    };
    typedef Guard AutoScope;

    Annotation &begin() { return begin(Variant(true)); }
    Annotation &begin(const Variant &value)
    {
        heaptide_cali_begin_at_(attribute_, value.c_variant());
        return *this;
    }
    Annotation &begin(int value) { return begin(Variant(value)); }
    Annotation &begin(double value) { return begin(Variant(value)); }
    Annotation &begin(const char *value) { return begin(Variant(value)); }
    Annotation &begin(cali_attr_type type, void *data, std::uint64_t size)
    {
        return begin(Variant(type, data, size));
    }
    template <typename Value, typename std::enable_if<
                                  std::is_unsigned<Value>::value
                                      || std::is_same<Value, cali_attr_type>::value,
                                  int>::type = 0>
    Annotation &begin(Value value)
    {
        return begin(Variant(value));
    }

    Annotation &set(const Variant &value)
    {
        heaptide_cali_set_at_(attribute_, value.c_variant());
        return *this;
    }
    Annotation &set(int value) { return set(Variant(value)); }
    Annotation &set(double value) { return set(Variant(value)); }
    Annotation &set(const char *value) { return set(Variant(value)); }
    Annotation &set(cali_attr_type type, void *data, std::uint64_t size)
    {
        return set(Variant(type, data, size));
    }
    template <typename Value, typename std::enable_if<
                                  std::is_unsigned<Value>::value
                                      || std::is_same<Value, cali_attr_type>::value,
                                  int>::type = 0>
    Annotation &set(Value value)
    {
        return set(Variant(value));
    }

    void end() { cali_end(attribute_); }

private:
    cali_id_t attribute_;
};

} // namespace cali

#endif
