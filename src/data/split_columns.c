#include "data/split_columns.h"

#include "data/file.h"

dlrm_status dlrm_split_column_open(const dlrm_split_reader *r, const char *path, int64_t row_bytes, dlrm_split_column *c)
{
    c->path = path;
    c->row_bytes = row_bytes;
    TRY(dlrm_file_open(path, !r->shuffled, &c->fd));
    if (!r->shuffled) dlrm_map_open(c->fd, &c->map);
    return DLRM_OK;
}

void dlrm_split_column_close(dlrm_split_column *c)
{
    dlrm_map_close(&c->map);
    dlrm_file_close(&c->fd);
    dlrm_shelf_close(&c->shelf);
}

dlrm_status dlrm_split_column_read(dlrm_split_reader *r, const dlrm_split_column *c, int64_t at, int64_t bytes, void *out)
{
    return dlrm_file_read(c->path, c->fd, at, bytes, out, r->bytes);
}

typedef struct run_of {
    dlrm_split_reader *r;
    const dlrm_split_column *c;
} run_of;

static dlrm_status read_run(void *ctx, int64_t row, int64_t n, void *out)
{
    const run_of *run = ctx;
    return dlrm_split_column_read(run->r, run->c, row * run->c->row_bytes, n * run->c->row_bytes, out);
}

dlrm_status dlrm_split_column_read_rows(dlrm_split_reader *r, dlrm_split_column *c, int64_t i, int64_t n, void *out)
{
    run_of run = {r, c};
    if (r->shuffled) return dlrm_shelf_take(&c->shelf, &r->order, i, n, read_run, &run, out);
    return read_run(&run, r->b->first_row + i, n, out);
}

/* --- values on their way to the batch --- */

static void pass(void *ctx)
{
    dlrm_split_passage *p = ctx;
    p->good = p->stream(p->dtype, p->raw, p->n, p->rows, p->out);
}

bool dlrm_split_pass_mapped(dlrm_split_reader *r, dlrm_split_column *c, dlrm_split_passage *p, int64_t at, int64_t n, void *out)
{
    const int64_t bytes = n * (int64_t)dlrm_elem_size(p->dtype);
    if (!c->map.base) return false;
    p->raw = c->map.base + at;
    p->n = n;
    p->out = out;
    if (dlrm_map_use(&c->map, c->fd, at, bytes, pass, p) && p->good) {
        *r->bytes += bytes;
        return true;
    }
    dlrm_map_close(&c->map);
    return false;
}

bool dlrm_split_pass_read(const dlrm_split_reader *r, const dlrm_split_passage *p, int64_t n, void *out)
{
    return p->stream(p->dtype, r->block, n, p->rows, out);
}

int64_t dlrm_split_rows_at_a_time(int64_t row_bytes)
{
    int64_t rows = DLRM_SPLIT_BLOCK / row_bytes / DLRM_SPLIT_ALIGNED * DLRM_SPLIT_ALIGNED;
    return rows > 0 ? rows : DLRM_SPLIT_ALIGNED;
}

int64_t dlrm_split_row(const dlrm_split_reader *r, int64_t i)
{
    return r->shuffled ? dlrm_shuffle_row(&r->order, i) : r->b->first_row + i;
}
