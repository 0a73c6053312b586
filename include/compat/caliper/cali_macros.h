//! Caliper's macros for annotations, for programs written for Caliper.

#ifndef HEAPTIDE_COMPAT_CALI_MACROS_H
#define HEAPTIDE_COMPAT_CALI_MACROS_H

#include "cali.h"

// Each place in the source looks up the name of its function only once.
#define HEAPTIDE_CALI_FUNCTION_ HEAPTIDE_NAME_STRING(HEAPTIDE_CALIPER_FUNCTION, __func__)

#define CALI_MARK_FUNCTION_BEGIN heaptide_cali_mark_begin_(HEAPTIDE_CALI_FUNCTION_, __func__)
#define CALI_MARK_FUNCTION_END heaptide_cali_mark_end_(HEAPTIDE_CALI_FUNCTION_, __func__)

#define CALI_MARK_BEGIN(name) cali_begin_region(name)
#define CALI_MARK_END(name) cali_end_region(name)
#define CALI_MARK_PHASE_BEGIN(name) cali_begin_phase(name)
#define CALI_MARK_PHASE_END(name) cali_end_phase(name)
#define CALI_MARK_COMM_REGION_BEGIN(name) cali_begin_comm_region(name)
#define CALI_MARK_COMM_REGION_END(name) cali_end_comm_region(name)

#define CALI_MARK_LOOP_BEGIN(loop_id, name)                                              \
    cali_begin_string(cali_loop_attr_id, (name));                                        \
    cali_id_t __cali_iter_##loop_id = cali_make_loop_iteration_attribute(name)
#define CALI_MARK_LOOP_END(loop_id) cali_end(cali_loop_attr_id)
#define CALI_MARK_ITERATION_BEGIN(loop_id, iter)                                         \
    cali_begin_int(__cali_iter_##loop_id, ((int)(iter)))
#define CALI_MARK_ITERATION_END(loop_id) cali_end(__cali_iter_##loop_id)

#define CALI_WRAP_STATEMENT(name, statement)                                             \
    cali_begin_region((name));                                                           \
    statement;                                                                           \
    cali_end_region((name))

// A nonzero name implies that the recorder is loaded.
static inline void heaptide_cali_mark_begin_(uint32_t name, const char *function)
{
    heaptide_cali_observe_(HEAPTIDE_CALI_BEGIN_, HEAPTIDE_CALIPER_FUNCTION, CALI_ATTR_NESTED,
                           function);
    if (name) {
        heaptide_cali_enter_(function);
        heaptide_link_.table->scope_begin(name);
    }
}
static inline void heaptide_cali_mark_end_(uint32_t name, const char *function)
{
    heaptide_cali_observe_(HEAPTIDE_CALI_END_NAMED_, HEAPTIDE_CALIPER_FUNCTION, CALI_ATTR_NESTED,
                           function);
    if (name) {
        heaptide_cali_leave_();
        heaptide_link_.table->scope_end(name);
    }
}

#ifdef __cplusplus

#include "Annotation.h"

#define HEAPTIDE_CALI_JOIN_(a, b) HEAPTIDE_CALI_JOIN_AGAIN_(a, b)
#define HEAPTIDE_CALI_JOIN_AGAIN_(a, b) a##b

#define CALI_CXX_MARK_FUNCTION                                                           \
    cali::Function HEAPTIDE_CALI_JOIN_(__cali_ann_, __COUNTER__)(                        \
        HEAPTIDE_CALI_FUNCTION_, __func__)
#define CALI_CXX_MARK_SCOPE(name)                                                        \
    cali::ScopeAnnotation HEAPTIDE_CALI_JOIN_(__cali_ann_scope_, __COUNTER__)(name)
#define CALI_CXX_MARK_LOOP_BEGIN(loop_id, name) cali::Loop __cali_loop_##loop_id(name)
#define CALI_CXX_MARK_LOOP_END(loop_id) __cali_loop_##loop_id.end()
#define CALI_CXX_MARK_LOOP_ITERATION(loop_id, iter)                                      \
    cali::Loop::Iteration __cali_iter_##loop_id(                                         \
        __cali_loop_##loop_id.iteration(static_cast<int>(iter)))

#endif

#endif
