#include "rows.h"

#include "base/mem.h"

dlrm_status dlrm_rows_open(int64_t capacity, int n_ids, int dense_bytes, dlrm_rows *out)
{
    dlrm_status st;
    *out = (dlrm_rows){.capacity = capacity, .n_ids = n_ids, .dense_bytes = dense_bytes};
    TRY_TO(fail, st, dlrm_alloc(capacity, sizeof *out->number, "parsed rows", &out->number));
    TRY_TO(fail, st, dlrm_alloc(capacity, sizeof *out->label, "parsed rows", &out->label));
    TRY_TO(fail, st, dlrm_alloc(capacity, (size_t)dense_bytes, "parsed rows", &out->dense));
    TRY_TO(fail, st, dlrm_alloc(capacity, sizeof *out->missing, "parsed rows", &out->missing));
    TRY_TO(fail, st, dlrm_alloc(capacity * n_ids, sizeof *out->ids, "parsed rows", &out->ids));
    return DLRM_OK;
fail:
    dlrm_rows_close(out);
    return st;
}

void dlrm_rows_close(dlrm_rows *r)
{
    dlrm_free(&r->number);
    dlrm_free(&r->label);
    dlrm_free(&r->dense);
    dlrm_free(&r->missing);
    dlrm_free(&r->ids);
}

int dlrm_rows_parts(const dlrm_rows *r)
{
    return DLRM_PART_ID + r->n_ids;
}

int64_t dlrm_rows_width(const dlrm_rows *r, int part)
{
    switch (part) {
    case DLRM_PART_KEY: return sizeof *r->number;
    case DLRM_PART_LABEL: return sizeof *r->label;
    case DLRM_PART_DENSE: return r->dense_bytes;
    case DLRM_PART_MISSING: return sizeof *r->missing;
    default: return sizeof *r->ids;
    }
}

void *dlrm_rows_part(const dlrm_rows *r, int part)
{
    switch (part) {
    case DLRM_PART_KEY: return r->number;
    case DLRM_PART_LABEL: return r->label;
    case DLRM_PART_DENSE: return r->dense;
    case DLRM_PART_MISSING: return r->missing;
    default: return r->ids + (part - DLRM_PART_ID) * r->capacity;
    }
}
