/* The files that a description names, by their sizes: all files of a split must have the same number of rows, and the one
 * that the description gives, if it does: files that are all cut off alike agree with each other. Rows are compared and not
 * batches, so that a file short by one row is refused before the first step. */
#include "config/feature_spec_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/mem.h"

typedef struct file_rows {
    const char *path;
    int64_t bytes, row_bytes, rows;
    int64_t extra; /* elements that a file has beyond its rows: an offsets file has one */
} file_rows;

dlrm_status dlrm_feature_file_bytes(const char *path, int64_t *bytes)
{
    struct stat st;
    if (stat(path, &st) != 0) return FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return FAIL(DLRM_E_INPUT, "%s: found a %s, expected a file", path, dlrm_file_kind(st.st_mode));
    *bytes = st.st_size;
    return DLRM_OK;
}

static dlrm_status measure(const char *path, int64_t row_bytes, int64_t extra, file_rows *out)
{
    *out = (file_rows){.path = path, .row_bytes = row_bytes, .extra = extra};
    TRY(dlrm_feature_file_bytes(path, &out->bytes));
    if (out->bytes == 0)
        return FAIL(DLRM_E_INPUT, "%s: the file is empty, expected rows of %lld bytes", path, (long long)row_bytes);
    if (out->bytes % row_bytes)
        return FAIL(DLRM_E_INPUT,
                    "%s: found %lld bytes, expected a multiple of the %lld bytes of a row: the file is cut "
                    "off, or its dtype is another",
                    path, (long long)out->bytes, (long long)row_bytes);
    out->rows = out->bytes / row_bytes - extra;
    if (out->rows == 0)
        return FAIL(DLRM_E_INPUT, "%s: found %lld bytes, which are no rows", path, (long long)out->bytes);
    return DLRM_OK;
}

/* Offsets run from 0 to the number of ids; what lies between is checked as it is read. */
static dlrm_status check_ends(const file_rows *offsets, const char *ids, dlrm_elem dtype)
{
    file_rows values = {.path = ids};
    int64_t size = (int64_t)dlrm_elem_size(dtype), first = -1, last = -1;
    TRY(dlrm_feature_file_bytes(ids, &values.bytes)); /* empty if every bag is */
    if (values.bytes % size)
        return FAIL(DLRM_E_INPUT, "%s: found %lld bytes, expected a multiple of the %lld bytes of an id", ids,
                    (long long)values.bytes, (long long)size);
    int fd = open(offsets->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return FAIL(DLRM_E_INPUT, "%s: %s", offsets->path, strerror(errno));
    bool ok = pread(fd, &first, sizeof first, 0) == sizeof first &&
              pread(fd, &last, sizeof last, offsets->rows * (int64_t)sizeof last) == sizeof last;
    close(fd);
    if (!ok) return FAIL(DLRM_E_INPUT, "%s: cannot read its first and last offset", offsets->path);
    if (first != 0)
        return FAIL(DLRM_E_INPUT, "%s: row 0: found offset %lld, expected 0", offsets->path, (long long)first);
    if (last != values.bytes / size)
        return FAIL(DLRM_E_INPUT,
                    "%s: found %lld as the last offset, expected %lld, the number of ids in %s (%lld bytes "
                    "of %s)",
                    offsets->path, (long long)last, (long long)(values.bytes / size), ids, (long long)values.bytes,
                    dlrm_elem_text(dtype));
    return DLRM_OK;
}

static dlrm_status measure_split(const dlrm_feature_spec *spec, const dlrm_split_files *split, file_rows *files, int *n)
{
    TRY(measure(split->label, (int64_t)dlrm_elem_size(spec->label_dtype), 0, &files[(*n)++]));
    if (split->dense)
        TRY(measure(split->dense, spec->n_dense * (int64_t)dlrm_elem_size(spec->dense_dtype), 0, &files[(*n)++]));
    for (int j = 0; j < spec->n_categorical; j++) {
        const dlrm_categorical *c = &spec->categorical[j];
        if (c->variable)
            TRY(measure(split->offsets[j], sizeof(int64_t), 1, &files[(*n)++]));
        else
            TRY(measure(split->ids[j], c->hotness * (int64_t)dlrm_elem_size(c->dtype), 0, &files[(*n)++]));
    }
    return DLRM_OK;
}

/* The file that has the rows of most others (Boyer and Moore's majority vote), so that the odd one out is blamed. */
static const file_rows *majority(const file_rows *files, int n)
{
    const file_rows *leader = files;
    int votes = 0;
    for (int i = 0; i < n; i++) {
        if (votes == 0) leader = &files[i];
        votes += files[i].rows == leader->rows ? 1 : -1;
    }
    return leader;
}

static dlrm_status check_split(const dlrm_feature_spec *spec, dlrm_split_files *split, file_rows *files)
{
    int n = 0;
    TRY(measure_split(spec, split, files, &n));
    const file_rows *most = majority(files, n);
    const char *says = split->told_rows ? "metadata.rows says in" : "in";
    split->rows = split->told_rows ? split->told_rows : most->rows;
    for (int i = 0; i < n; i++)
        if (files[i].rows != split->rows)
            return FAIL(DLRM_E_INPUT,
                        "%s: found %lld bytes, which are %lld rows of %lld bytes%s; expected %lld rows as "
                        "%s %s",
                        files[i].path, (long long)files[i].bytes, (long long)files[i].rows,
                        (long long)files[i].row_bytes, files[i].extra ? " and one more offset" : "",
                        (long long)split->rows, says, split->told_rows ? spec->path : most->path);
    for (int j = 0, at = split->dense ? 2 : 1; j < spec->n_categorical; j++, at++)
        if (spec->categorical[j].variable) TRY(check_ends(&files[at], split->ids[j], spec->categorical[j].dtype));
    return DLRM_OK;
}

dlrm_status dlrm_feature_spec_check(dlrm_feature_spec *spec)
{
    dlrm_status st = DLRM_OK;
    file_rows *files;
    TRY(dlrm_alloc(2 + (int64_t)spec->n_categorical, sizeof *files, "the file sizes", &files));
    for (int s = 0; s < DLRM_SPLITS && st == DLRM_OK; s++)
        if (spec->split[s].present) st = check_split(spec, &spec->split[s], files);
    dlrm_free(&files);
    return st;
}

dlrm_status dlrm_feature_count_dense(dlrm_feature_spec *spec)
{
    dlrm_split_files *train = &spec->split[DLRM_TRAIN_SPLIT], *test = &spec->split[DLRM_TEST_SPLIT];
    if (access(train->dense, F_OK) != 0) {
        dlrm_free(&train->dense);
        dlrm_free(&test->dense);
        return DLRM_OK;
    }
    file_rows label;
    int64_t bytes, size = (int64_t)dlrm_elem_size(spec->dense_dtype);
    TRY(measure(train->label, (int64_t)dlrm_elem_size(spec->label_dtype), 0, &label));
    TRY(dlrm_feature_file_bytes(train->dense, &bytes));
    int64_t columns = bytes / (label.rows * size);
    if (columns == 0 || columns > DLRM_MAX_FEATURES || bytes % (label.rows * size))
        return FAIL(DLRM_E_INPUT,
                    "%s: found %lld bytes, expected a multiple of %lld: one or more %s columns for the %lld "
                    "rows of %s",
                    train->dense, (long long)bytes, (long long)(label.rows * size), dlrm_elem_text(spec->dense_dtype),
                    (long long)label.rows, label.path);
    spec->n_dense = (int)columns;
    return DLRM_OK;
}
