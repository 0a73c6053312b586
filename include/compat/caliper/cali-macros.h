//! An alias of cali_macros.h.

#ifndef HEAPTIDE_COMPAT_CALI_MACROS_DASH_H
#define HEAPTIDE_COMPAT_CALI_MACROS_DASH_H

#include "cali_macros.h"

#endif
