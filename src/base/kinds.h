/* The kinds that settings name and devices implement. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define DLRM_MAX_ROWS 4294967295 /* of a table: ids are 32 bits wide in memory */

typedef enum dlrm_interaction { DLRM_DOT, DLRM_CAT, DLRM_DCN, DLRM_POOL } dlrm_interaction;
/* The last two are of what files hold beside numbers that are computed with. */
typedef enum dlrm_dtype { DLRM_FP32, DLRM_TF32, DLRM_BF16, DLRM_FP16, DLRM_DTYPE_AUTO, DLRM_I64, DLRM_U32 } dlrm_dtype;
typedef enum dlrm_optimizer_name { DLRM_SGD, DLRM_ADAGRAD, DLRM_ROWWISE_ADAGRAD, DLRM_ADAM } dlrm_optimizer_name;

/* Of an element in memory. */
static inline size_t dlrm_dtype_bytes(dlrm_dtype t)
{
    return t == DLRM_BF16 || t == DLRM_FP16 ? 2 : t == DLRM_I64 ? 8 : 4;
}

static inline bool dlrm_dtype_is_integer(dlrm_dtype t)
{
    return t == DLRM_I64 || t == DLRM_U32;
}
