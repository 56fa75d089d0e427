#include "checkpoint/piece_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/mem.h"
#include "checkpoint/sum.h"
#include "model/tensors_impl.h"

enum { WRITEBACK = 32 << 20 /* bytes after which the disk is set to work */ };

struct dlrm_piece_file {
    int n;
    dlrm_piece *pieces;
    char *header; /* with the 8 bytes of its length */
    int64_t header_bytes, data_bytes, n_sums;
    uint64_t *sums;
    int64_t largest_row;

    /* of the file being written */
    char path[PATH_MAX];
    int fd; /* -1: none */
    int piece;
    int64_t row, at, sum; /* next row of the piece, byte of the file, checksum */
    int64_t under_way;    /* bytes that the disk was set to work on */
    char *block;          /* [DLRM_SUM_BLOCK]: of the piece, not yet complete */
    int64_t in_block;
};

static void piece_name(const dlrm_piece *p, char out[DLRM_PIECE_NAME_BYTES])
{
    const dlrm_part *a = &p->part;
    int n = snprintf(out, DLRM_PIECE_NAME_BYTES, "%s", p->whole.name);
    if (a->rows < p->whole_rows) {
        int64_t end = a->first_row + (a->rows - 1) * a->row_step + 1;
        n += snprintf(out + n, DLRM_PIECE_NAME_BYTES - (size_t)n, "@rows_%lld_%lld", (long long)a->first_row, (long long)end);
        if (a->row_step > 1) n += snprintf(out + n, DLRM_PIECE_NAME_BYTES - (size_t)n, "_%lld", (long long)a->row_step);
    }
    if (a->columns < p->whole_columns)
        n += snprintf(out + n, DLRM_PIECE_NAME_BYTES - (size_t)n, "@cols_%lld_%lld", (long long)a->first_column,
                      (long long)(a->first_column + a->columns));
    DLRM_ASSERT(n < DLRM_PIECE_NAME_BYTES);
}

/* The piece as a tensor of the file. */
static dlrm_tensor_info piece_info(const dlrm_piece *p)
{
    dlrm_tensor_info info = {.n_dims = p->whole.n_dims};
    piece_name(p, info.name);
    info.dims[0] = info.n_dims == 2 ? p->part.rows : p->part.rows * p->part.columns;
    info.dims[1] = p->part.columns;
    return info;
}

/* Appends to the header at *used; DLRM_E_INPUT: the name is not UTF-8. */
static dlrm_status add_metadata(const dlrm_piece *p, char *header, size_t *used, size_t bytes)
{
    dlrm_tensor_info info = piece_info(p);
    json_t *name = json_string(info.name);
    char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    json_decref(name);
    if (!quoted) return FAIL(DLRM_E_INPUT, "checkpoint: the tensor name '%s' is not UTF-8", info.name);
    *used += (size_t)snprintf(header + *used, bytes - *used, ",%s:\"whole=%lldx%lld row=%lld step=%lld column=%lld\"", quoted,
                              (long long)p->whole_rows, (long long)p->whole_columns, (long long)p->part.first_row,
                              (long long)p->part.row_step, (long long)p->part.first_column);
    free(quoted);
    return DLRM_OK;
}

static dlrm_status make_header(dlrm_piece_file *f)
{
    const size_t bytes = 600 + (size_t)f->n * 2 * (DLRM_ST_ENTRY_BYTES + 200);
    size_t used = 8;
    TRY(dlrm_alloc((int64_t)bytes, 1, "a checkpoint's header", &f->header));
    used += (size_t)snprintf(f->header + used, bytes - used,
                             "{\"__metadata__\":{\"format\":\"pt\",\"checkpoint\":\"1\",\"sum_block\":\"%d\"", DLRM_SUM_BLOCK);
    for (int i = 0; i < f->n; i++) TRY(add_metadata(&f->pieces[i], f->header, &used, bytes));
    f->header[used++] = '}';
    dlrm_tensor_info sums = {.name = "checksums", .n_dims = 1, .dims = {f->n_sums}};
    int64_t at = f->n_sums * (int64_t)sizeof *f->sums;
    used += dlrm_st_header_entry(&sums, "U64", 0, at, f->header + used, bytes - used);
    for (int i = 0; i < f->n; i++) {
        dlrm_tensor_info info = piece_info(&f->pieces[i]);
        int64_t end = at + dlrm_piece_bytes(&f->pieces[i]);
        used += dlrm_st_header_entry(&info, dlrm_st_dtype_name(f->pieces[i].whole.dtype), at, end, f->header + used, bytes - used);
        at = end;
    }
    f->header[used++] = '}';
    while (used % 8) f->header[used++] = ' ';
    DLRM_ASSERT(used < bytes);
    if (used - 8 > DLRM_ST_MAX_HEADER) /* no reader would take it */
        return FAIL(DLRM_E_INPUT, "checkpoint: the names of a rank's %d pieces of tensors take %zu bytes, and a file has room for %d; use more ranks, "
                    "fewer tables or shorter names", f->n, used - 8, DLRM_ST_MAX_HEADER);
    f->header_bytes = (int64_t)used;
    uint64_t length = used - 8;
    memcpy(f->header, &length, sizeof length);
    return DLRM_OK;
}

static dlrm_status plan(int n, const dlrm_piece *pieces, dlrm_piece_file *f)
{
    f->fd = -1;
    TRY(dlrm_alloc(n, sizeof *f->pieces, "a checkpoint's pieces", &f->pieces));
    TRY(dlrm_alloc(DLRM_SUM_BLOCK, 1, "a checkpoint's block", &f->block));
    for (int i = 0; i < n; i++) {
        if (!pieces[i].saved_here || dlrm_piece_bytes(&pieces[i]) == 0) continue;
        f->pieces[f->n++] = pieces[i];
        f->n_sums += dlrm_sum_blocks(dlrm_piece_bytes(&pieces[i]));
        f->data_bytes += dlrm_piece_bytes(&pieces[i]);
    }
    TRY(dlrm_alloc(f->n_sums, sizeof *f->sums, "a checkpoint's checksums", &f->sums));
    return make_header(f);
}

dlrm_status dlrm_piece_file_plan(int n, const dlrm_piece *pieces, dlrm_piece_file **out)
{
    TRY(dlrm_alloc(1, sizeof **out, "a checkpoint's plan", out));
    dlrm_status st = plan(n, pieces, *out);
    if (st != DLRM_OK) dlrm_piece_file_close(out);
    return st;
}

void dlrm_piece_file_close(dlrm_piece_file **fp)
{
    dlrm_piece_file *f = *fp;
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    dlrm_free(&f->pieces);
    dlrm_free(&f->header);
    dlrm_free(&f->sums);
    dlrm_free(&f->block);
    dlrm_free(fp);
}

int64_t dlrm_piece_file_bytes(const dlrm_piece_file *f)
{
    return f->header_bytes + f->n_sums * (int64_t)sizeof *f->sums + f->data_bytes;
}

const dlrm_piece *dlrm_piece_file_pieces(const dlrm_piece_file *f, int *n, int64_t *bytes)
{
    *n = f->n;
    *bytes = f->data_bytes;
    return f->pieces;
}

dlrm_status dlrm_piece_file_create(dlrm_piece_file *f, const char *path)
{
    const int64_t bytes = dlrm_piece_file_bytes(f);
    if (f->fd >= 0) close(f->fd); /* of a save that failed */
    f->fd = -1;
    if ((size_t)snprintf(f->path, sizeof f->path, "%s", path) >= sizeof f->path)
        return FAIL(DLRM_E_RUNTIME, "the path '%.60s…' is longer than %zu bytes", path, sizeof f->path - 1);
    f->fd = open(path, O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
    if (f->fd < 0) return FAIL(DLRM_E_RUNTIME, "%s: cannot create: %s", path, strerror(errno));
    /* Room is taken at once where the file system can: then a full disk shows now. */
    if (fallocate(f->fd, 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL && errno != EINTR)
        return FAIL(DLRM_E_RUNTIME, "%s: cannot make it %lld bytes long: %s", path, (long long)bytes, strerror(errno));
    f->piece = 0;
    f->row = f->sum = f->in_block = f->under_way = 0;
    f->at = f->header_bytes + f->n_sums * (int64_t)sizeof *f->sums;
    return dlrm_file_write_at(f->fd, path, 0, f->header_bytes, f->header);
}

int64_t dlrm_piece_file_next(const dlrm_piece_file *f, int64_t room, const dlrm_piece **piece, int64_t *row)
{
    if (f->piece == f->n) return 0;
    *piece = &f->pieces[f->piece];
    *row = f->row;
    int64_t n = room / dlrm_piece_row_bytes(*piece), left = (*piece)->part.rows - f->row;
    return n < 1 ? 1 : n < left ? n : left;
}

/* Checksums of the piece's next bytes, of which an incomplete block waits for the rest. */
static void add_sums(dlrm_piece_file *f, const char *data, int64_t bytes, bool last)
{
    while (bytes > 0) {
        int64_t n = DLRM_SUM_BLOCK - f->in_block < bytes ? DLRM_SUM_BLOCK - f->in_block : bytes;
        if (n == DLRM_SUM_BLOCK) { /* a whole block needs no copy */
            f->sums[f->sum++] = dlrm_sum(data, DLRM_SUM_BLOCK);
        } else {
            memcpy(f->block + f->in_block, data, (size_t)n);
            f->in_block += n;
            if (f->in_block == DLRM_SUM_BLOCK) {
                f->sums[f->sum++] = dlrm_sum(f->block, DLRM_SUM_BLOCK);
                f->in_block = 0;
            }
        }
        data += n;
        bytes -= n;
    }
    if (last && f->in_block > 0) {
        f->sums[f->sum++] = dlrm_sum(f->block, (size_t)f->in_block);
        f->in_block = 0;
    }
}

/* The first value with all bits of its exponent set: NaN or infinite. -1: none. */
static int64_t not_finite(const dlrm_piece *p, const void *data, int64_t n)
{
    bool any = false;
    if (dlrm_dtype_is_integer(p->whole.dtype)) return -1;
    if (p->whole.dtype == DLRM_FP32) {
        const uint32_t *v = data;
        for (int64_t i = 0; i < n; i++) any |= (v[i] & 0x7f800000u) == 0x7f800000u;
        for (int64_t i = 0; any && i < n; i++)
            if ((v[i] & 0x7f800000u) == 0x7f800000u) return i;
    } else {
        const uint16_t *v = data, exponent = p->whole.dtype == DLRM_BF16 ? 0x7f80 : 0x7c00;
        for (int64_t i = 0; i < n; i++) any |= (v[i] & exponent) == exponent;
        for (int64_t i = 0; any && i < n; i++)
            if ((v[i] & exponent) == exponent) return i;
    }
    return -1;
}

/* Sets the disk to work on what was written, and waits for what it was set to work on before: then the end need not wait
 * long, and memory does not fill with what is still to be written. An error that is told here is not told again by fsync. */
static dlrm_status keep_disk_busy(dlrm_piece_file *f)
{
    int failed = 0;
    if (f->under_way > 0 && sync_file_range(f->fd, 0, f->under_way, SYNC_FILE_RANGE_WAIT_BEFORE) != 0) failed = errno;
    if (sync_file_range(f->fd, f->under_way, f->at - f->under_way, SYNC_FILE_RANGE_WRITE) != 0 && !failed) failed = errno;
    f->under_way = f->at;
    if (failed != EIO && failed != ENOSPC && failed != EDQUOT) return DLRM_OK; /* not every file system can */
    return FAIL(DLRM_E_RUNTIME, "%s: cannot bring it to disk: %s", f->path, strerror(failed));
}

dlrm_status dlrm_piece_file_write(dlrm_piece_file *f, int64_t rows, const void *data, bool *finite, char *why, size_t why_bytes)
{
    const dlrm_piece *p = &f->pieces[f->piece];
    const int64_t bytes = rows * dlrm_piece_row_bytes(p);
    DLRM_ASSERT(f->piece < f->n && rows <= p->part.rows - f->row);
    int64_t bad = not_finite(p, data, rows * p->part.columns);
    *finite = bad < 0;
    if (bad >= 0)
        snprintf(why, why_bytes, "%s has a value in row %lld, column %lld that is not finite", p->whole.name,
                 (long long)(p->part.first_row + (f->row + bad / p->part.columns) * p->part.row_step),
                 (long long)(p->part.first_column + bad % p->part.columns));
    f->row += rows;
    bool last = f->row == p->part.rows;
    add_sums(f, data, bytes, last);
    if (last) {
        f->piece++;
        f->row = 0;
    }
    TRY(dlrm_file_write_at(f->fd, f->path, f->at, bytes, data));
    f->at += bytes;
    return f->at - f->under_way < WRITEBACK ? DLRM_OK : keep_disk_busy(f);
}

dlrm_status dlrm_piece_file_finish(dlrm_piece_file *f, dlrm_piece_file_facts *out)
{
    const int64_t bytes = f->n_sums * (int64_t)sizeof *f->sums;
    DLRM_ASSERT(f->piece == f->n && f->sum == f->n_sums && f->at == dlrm_piece_file_bytes(f));
    TRY(dlrm_file_write_at(f->fd, f->path, f->header_bytes, bytes, f->sums));
    *out = (dlrm_piece_file_facts){.bytes = f->at, .header_sum = dlrm_sum(f->header, (size_t)f->header_bytes),
                                   .sums_sum = dlrm_sum(f->sums, (size_t)bytes)};
    return dlrm_file_sync_and_close(&f->fd, f->path);
}
