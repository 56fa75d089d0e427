#include "rows.h"

#include "base/mem.h"

int dlrm_rows_parts(const dlrm_rows *r)
{
    return DLRM_PART_ID + r->n_ids;
}

int64_t dlrm_rows_width(const dlrm_rows *r, int part)
{
    switch (part) {
    case DLRM_PART_KEY:
        return sizeof *r->number;
    case DLRM_PART_MISSING:
        return sizeof *r->missing;
    case DLRM_PART_DENSE:
        return r->dense_bytes;
    case DLRM_PART_LABEL:
        return sizeof *r->label;
    default:
        return sizeof *r->ids;
    }
}

int64_t dlrm_rows_offset(const dlrm_rows *r, int part)
{
    int64_t bytes = 0;
    for (int p = 0; p < part; p++) bytes += dlrm_rows_width(r, p);
    return bytes;
}

dlrm_status dlrm_rows_open(int64_t capacity, int n_ids, int dense_bytes, dlrm_rows *r)
{
    capacity = (capacity + 7) / 8 * 8;
    *r = (dlrm_rows){.capacity = capacity, .n_ids = n_ids, .dense_bytes = dense_bytes};
    TRY(dlrm_alloc(capacity, (size_t)dlrm_rows_offset(r, dlrm_rows_parts(r)), "parsed rows", &r->memory));
    r->number = (uint64_t *)(r->memory + capacity * dlrm_rows_offset(r, DLRM_PART_KEY));
    r->missing = (uint32_t *)(r->memory + capacity * dlrm_rows_offset(r, DLRM_PART_MISSING));
    r->dense = r->memory + capacity * dlrm_rows_offset(r, DLRM_PART_DENSE);
    r->label = (uint8_t *)(r->memory + capacity * dlrm_rows_offset(r, DLRM_PART_LABEL));
    r->ids = (uint32_t *)(r->memory + capacity * dlrm_rows_offset(r, DLRM_PART_ID));
    return DLRM_OK;
}

void dlrm_rows_close(dlrm_rows *r)
{
    dlrm_free(&r->memory);
}
