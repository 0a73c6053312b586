//! Caliper's configuration manager, in C and C++, for programs written for Caliper.

#ifndef HEAPTIDE_COMPAT_CALI_MANAGER_H
#define HEAPTIDE_COMPAT_CALI_MANAGER_H

#include "cali.h"

#ifdef __cplusplus
#include "ConfigManager.h"
extern "C" {
#endif

struct heaptide_cali_manager_ {
    char *text;       // the configurations; NULL if there are none
    char error[256];  // the first unknown name; empty if there is none
};

// The memory belongs to the caller. `addr` is NULL if the manager could not be allocated.
struct s_cali_ConfigManager {
    void *addr;
    int idtor;
};
typedef struct s_cali_ConfigManager cali_ConfigManager;

// Holds the text that a function of the C interface returns.
struct s_cali_SHROUD_capsule_data {
    void *addr;
    int idtor;
};
typedef struct s_cali_SHROUD_capsule_data cali_SHROUD_capsule_data;
struct s_cali_SHROUD_array {
    cali_SHROUD_capsule_data cxx;
    union {
        const void *base;
        const char *ccharp;
    } addr;
    int type;
    size_t elem_len, size;
    int rank;
};
typedef struct s_cali_SHROUD_array cali_SHROUD_array;

static inline void cali_SHROUD_memory_destructor(cali_SHROUD_capsule_data *data)
{
    data->addr = NULL;
}

static inline struct heaptide_cali_manager_ *heaptide_cali_managed_(const cali_ConfigManager *self)
{
    return (struct heaptide_cali_manager_ *)self->addr;
}
static inline cali_ConfigManager *cali_ConfigManager_new(cali_ConfigManager *self)
{
    heaptide_pause(0);
    self->addr = calloc(1, sizeof(struct heaptide_cali_manager_));
    heaptide_resume(0);
    self->idtor = 0;
    return self;
}
static inline void cali_ConfigManager_delete(cali_ConfigManager *self)
{
    heaptide_pause(0);
    if (self->addr)
        free(heaptide_cali_managed_(self)->text);
    free(self->addr);
    heaptide_resume(0);
    self->addr = NULL;
}
static inline void cali_ConfigManager_add(cali_ConfigManager *self, const char *config)
{
    struct heaptide_cali_manager_ *manager = heaptide_cali_managed_(self);
    char *text;
    if (!manager
        || !heaptide_cali_configure_(config, 0, manager->error, sizeof manager->error))
        return;
    heaptide_pause(0);
    text = heaptide_cali_text_(manager->text ? manager->text : "", manager->text ? "," : "",
                               config, "");
    free(manager->text);
    heaptide_resume(0);
    manager->text = text;
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
    return self->addr && *heaptide_cali_managed_(self)->error;
}
// The text stays valid until the manager is deleted.
static inline void cali_ConfigManager_error_msg_bufferify(const cali_ConfigManager *self,
                                                          cali_SHROUD_array *text)
{
    memset(text, 0, sizeof *text);
    text->addr.ccharp = self->addr ? heaptide_cali_managed_(self)->error : "";
    text->elem_len = strlen(text->addr.ccharp);
    text->size = 1;
}
static inline void cali_ConfigManager_start(const cali_ConfigManager *self)
{
    if (self->addr && heaptide_cali_managed_(self)->text)
        heaptide_cali_init_with_(1);
}
static inline void cali_ConfigManager_stop(const cali_ConfigManager *self)
{
    (void)self;
}
static inline void cali_ConfigManager_flush(const cali_ConfigManager *self)
{
    const char *text = self->addr ? heaptide_cali_managed_(self)->text : NULL;
    char error[256];
    if (!text || !heaptide_recording())
        return;
    heaptide_pause(0);
    heaptide_cali_configure_(text, 1, error, sizeof error);
    heaptide_resume(0);
}

#ifdef __cplusplus
}
#endif

#endif
