//! Caliper's configuration manager, in C and C++, for programs written for Caliper.

#ifndef HEAPTIDE_COMPAT_CALI_MANAGER_H
#define HEAPTIDE_COMPAT_CALI_MANAGER_H

#include "cali.h"

#ifdef __cplusplus
#include "ConfigManager.h"
extern "C" {
#endif

// The caller's memory. `addr` is the configuration as text, `idtor` the place of the error.
struct s_cali_ConfigManager {
    void *addr;
    int idtor;
};
typedef struct s_cali_ConfigManager cali_ConfigManager;

static inline cali_ConfigManager *cali_ConfigManager_new(cali_ConfigManager *self)
{
    self->addr = NULL;
    self->idtor = 0;
    return self;
}
static inline void cali_ConfigManager_delete(cali_ConfigManager *self)
{
    heaptide_pause(0);
    free(self->addr);
    heaptide_resume(0);
    self->addr = NULL;
}
static inline void cali_ConfigManager_add(cali_ConfigManager *self, const char *config)
{
    const char *before = (const char *)self->addr;
    char error[256], *text;
    if (!heaptide_cali_configure_(config, 0, error, sizeof error)) {
        self->idtor = 1;
        return;
    }
    heaptide_pause(0);
    text = heaptide_cali_text_(before ? before : "", before ? "," : "", config, "");
    free(self->addr);
    heaptide_resume(0);
    self->addr = text;
}
static inline void cali_ConfigManager_set_default_parameter(cali_ConfigManager *self,
                                                            const char *option, const char *val)
{
    char text[1024];
    snprintf(text, sizeof text, "%s=%s", option, val);
    cali_ConfigManager_add(self, text);
}
static inline bool cali_ConfigManager_error(const cali_ConfigManager *self)
{
    return self->idtor != 0;
}
static inline void cali_ConfigManager_start(const cali_ConfigManager *self)
{
    if (self->addr)
        heaptide_cali_init_();
}
static inline void cali_ConfigManager_stop(const cali_ConfigManager *self)
{
    (void)self;
}
static inline void cali_ConfigManager_flush(const cali_ConfigManager *self)
{
    char error[256];
    if (self->addr && heaptide_recording()) {
        heaptide_pause(0);
        heaptide_cali_configure_((const char *)self->addr, 1, error, sizeof error);
        heaptide_resume(0);
    }
}

#ifdef __cplusplus
}
#endif

#endif
