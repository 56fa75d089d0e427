#include "data/row_files.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "data/file.h"
#include "data/npy.h"

enum { LONGEST_PATTERN = 255, SAMPLES = 3 /* places of a file that are looked at */ };

static const char *const split_key[DLRM_SPLITS] = {"data.train_files", "data.test_files"};

/* What is being opened. */
typedef struct opening {
    const dlrm_config *cfg;
    const dlrm_model_spec *spec;
    dlrm_row_files *f;
    const char *inspected; /* the file that f->layout.dense comes from; NULL: none yet */
} opening;

/* --- which files --- */

typedef struct choice {
    int n;
    int *v; /* numbers of names */
} choice;

static bool chosen(const choice *c, int i)
{
    for (int k = 0; k < c->n; k++)
        if (c->v[k] == i) return true;
    return false;
}

static void drop(choice *from, const choice *what)
{
    int n = 0;
    for (int k = 0; k < from->n; k++)
        if (!chosen(what, from->v[k])) from->v[n++] = from->v[k];
    from->n = n;
}

/* Appends the names that a list of patterns matches. key: where the list stands; NULL: a default, which need not match.
 * test: files of the test split, which may be named here but not caught by a * or ?; NULL: none. */
static dlrm_status pick(const dlrm_config *cfg, const char *key, const char *patterns, const dlrm_names *names,
                        const choice *test, choice *out)
{
    for (const char *at = patterns; *at;) {
        char pattern[LONGEST_PATTERN + 1];
        size_t length = strcspn(at, ","), skip = strspn(at, " "), end = length;
        while (end > skip && at[end - 1] == ' ') end--;
        if (skip >= end || end - skip > LONGEST_PATTERN || memchr(at + skip, '/', end - skip))
            return dlrm_config_fail(
                cfg, key, "found \"%.60s\", expected names of files in data.path, separated by commas", patterns);
        memcpy(pattern, at + skip, end - skip);
        pattern[end - skip] = '\0';
        bool any = false;
        for (int i = 0; i < names->n; i++) {
            if (fnmatch(pattern, names->v[i], FNM_PERIOD) != 0) continue;
            if (test && chosen(test, i) && strcmp(pattern, names->v[i]) != 0)
                return dlrm_config_fail(cfg, key, "\"%s\" takes in %s, the test split where data.test_files does not say another: name "
                                        "the training files without it, or it in full, or set data.test_files", pattern, names->v[i]);
            any = true;
            if (!chosen(out, i)) out->v[out->n++] = i;
        }
        if (key && !any)
            return dlrm_config_fail(cfg, key, "no file in %s is called \"%s\"%s", cfg->data.path, pattern,
                                    cfg->data.format == DLRM_NPY ? " and then _labels.npy" : "");
        at += length + (at[length] == ',');
    }
    return DLRM_OK;
}

static dlrm_status only_one(const dlrm_config *cfg, const char *key, const dlrm_names *names, const choice *c)
{
    if (c->n < 2) return DLRM_OK;
    return dlrm_config_fail(cfg, key, "missing: %s has both %s and %s, and either could be meant", cfg->data.path,
                            names->v[c->v[0]], names->v[c->v[1]]);
}

/* The files of both splits, in order. Explicit lists come first; a default leaves out what they name. */
static dlrm_status choose(const dlrm_config *cfg, const dlrm_names *names, choice *files)
{
    static const char *const usual[2][DLRM_SPLITS] = {{"*_train.bin,train_data.bin", "*_test.bin,test_data.bin"},
                                                      {"day_*", "day_*"}};
    const char *given[DLRM_SPLITS] = {cfg->data.train_files, cfg->data.test_files};
    const bool npy = cfg->data.format == DLRM_NPY;
    choice *train = &files[DLRM_TRAIN_SPLIT], *test = &files[DLRM_TEST_SPLIT];
    TRY(pick(cfg, given[1] ? split_key[1] : NULL, given[1] ? given[1] : usual[npy][1], names, NULL, test));
    const int days = test->n, spared = !npy ? 0 : days > 1 ? days - 1 : days; /* the last of several days, a record file's name */
    const choice usual_test = {days - spared, test->v + spared};
    TRY(pick(cfg, given[0] ? split_key[0] : NULL, given[0] ? given[0] : usual[npy][0], names, given[0] && !given[1] ? &usual_test : NULL, train));
    if (given[0] && given[1])
        for (int k = 0; k < test->n; k++)
            if (chosen(train, test->v[k]))
                return dlrm_config_fail(
                    cfg, "data.test_files",
                    "%s is one of data.train_files, too: rows that a model was trained on do not score it",
                    names->v[test->v[k]]);
    if (!given[1] && given[0]) drop(test, train);
    if (!given[1] && npy) { /* the last day, if others are left to train on */
        const int left = test->n;
        test->n = left > 1 || (left == 1 && given[0]);
        if (test->n) test->v[0] = test->v[left - 1];
    }
    if (!given[1] && !npy) TRY(only_one(cfg, split_key[1], names, test));
    if (!given[0]) drop(train, test);
    if (!given[0] && npy && train->n == 0) TRY(pick(cfg, NULL, "train", names, NULL, train));
    if (!given[0] && !npy) TRY(only_one(cfg, split_key[0], names, train));
    if (train->n == 0)
        return dlrm_config_fail(
            cfg, "data.path", "%s has no training files of format %s: expected %s, or their names in data.train_files",
            cfg->data.path, dlrm_format_text(cfg->data.format),
            npy ? "day_0_labels.npy and so on" : "…_train.bin or train_data.bin");
    return DLRM_OK;
}

/* --- opening: what is common --- */

static dlrm_status make_path(const dlrm_config *cfg, const char *name, const char *suffix, char **out)
{
    int64_t bytes = (int64_t)(strlen(cfg->data.path) + strlen(name) + strlen(suffix)) + 2;
    TRY(dlrm_alloc(bytes, 1, "a file's name", out));
    snprintf(*out, (size_t)bytes, "%s/%s%s", cfg->data.path, name, suffix);
    return DLRM_OK;
}

static dlrm_status take_split(dlrm_row_split *s, int n_parts, int files_per_part, int n_strips)
{
    *s = (dlrm_row_split){.n_parts = n_parts, .n_files = n_parts * files_per_part, .n_strips = n_strips};
    TRY(dlrm_alloc(s->n_files, sizeof *s->files, "the data's files", &s->files));
    TRY(dlrm_alloc(n_parts + 1, sizeof *s->first_row, "the data's files", &s->first_row));
    TRY(dlrm_alloc(n_strips, sizeof *s->strips, "the data's files", &s->strips));
    for (int k = 0; k < n_strips; k++)
        TRY(dlrm_alloc(n_parts, sizeof *s->strips[k].parts, "the data's files", &s->strips[k].parts));
    return DLRM_OK;
}

/* Ids may be narrower in one part than in another; labels and dense values have one type. */
static dlrm_status put_strip(dlrm_row_split *s, int strip, int part, int file, const dlrm_npy *a)
{
    dlrm_strip *t = &s->strips[strip];
    const bool ids = strip >= DLRM_IDS_STRIP;
    if (part > 0 && !ids && a->elem != t->elem)
        return FAIL(DLRM_E_INPUT, "%s: found %s, expected %s as in %s", s->files[file], dlrm_elem_text(a->elem),
                    dlrm_elem_text(t->elem), s->files[t->parts[0].file]);
    t->parts[part] = (dlrm_strip_part){.file = file, .at = a->at, .elem = a->elem};
    t->columns = a->shape[1];
    if (part == 0 || dlrm_elem_size(a->elem) > dlrm_elem_size(t->elem)) t->elem = a->elem;
    return DLRM_OK;
}

/* --- records --- */

/* Looks at the first records, at some in the middle and at the last. */
static dlrm_status inspect(opening *o, const char *path, int fd, int64_t rows)
{
    const dlrm_dense_type said = o->cfg->data.dense_type;
    dlrm_record_layout *l = &o->f->layout;
    dlrm_record_evidence e = {0};
    dlrm_record_dense found;
    int64_t n = rows < DLRM_RECORD_SAMPLE ? rows : DLRM_RECORD_SAMPLE, bytes = 0;
    char *sample;
    dlrm_status st;
    TRY(dlrm_alloc(n, (size_t)dlrm_record_bytes(l), "records looked at", &sample));
    for (int k = 0; k < SAMPLES; k++) {
        TRY_TO(end, st,
               dlrm_file_read(path, fd, (rows - n) * k / (SAMPLES - 1) * dlrm_record_bytes(l), n * dlrm_record_bytes(l),
                              sample, &bytes));
        dlrm_record_inspect(l, sample, n, &e);
    }
    st = dlrm_record_judge(&e, path, &found);
    bool labels = e.float_labels == 0 && e.bad_labels == 0;
    if (said != DLRM_DENSE_AUTO && labels) {
        dlrm_record_dense as_said = said == DLRM_DENSE_INT32 ? DLRM_RECORD_COUNTS : DLRM_RECORD_FLOATS;
        st = st == DLRM_OK && l->n_dense > 0 && found != as_said ? dlrm_record_expect(&e, path, as_said) : DLRM_OK;
        found = as_said;
    } else if (st != DLRM_OK && labels) {
        char why[1000];
        snprintf(why, sizeof why, "%s", dlrm_error_message());
        st = FAIL(DLRM_E_INPUT, "%s; data.dense_type says it", why);
    }
    if (st != DLRM_OK) goto end;
    if (o->inspected && found != l->dense)
        st = FAIL(DLRM_E_INPUT, "%s: the dense values are %s, but those of %s are %s", path,
                  dlrm_record_dense_text(found), o->inspected, dlrm_record_dense_text(l->dense));
    if (!o->inspected) o->inspected = path;
    l->dense = found;
end:
    dlrm_free(&sample);
    return st;
}

static dlrm_status file_bytes(const char *path, int fd, int64_t *bytes)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return FAIL(DLRM_E_INPUT, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return FAIL(DLRM_E_INPUT, "%s: found a %s, expected a file", path, S_ISDIR(st.st_mode) ? "folder" : "device");
    *bytes = st.st_size;
    return DLRM_OK;
}

static dlrm_status open_records(opening *o, const dlrm_names *names, const choice *files, dlrm_row_split *s)
{
    const dlrm_record_layout *l = &o->f->layout;
    TRY(take_split(s, files->n, 1, 1));
    for (int p = 0; p < files->n; p++) {
        int64_t bytes = 0, rows = 0;
        int fd;
        TRY(make_path(o->cfg, names->v[files->v[p]], "", &s->files[p]));
        TRY(dlrm_file_open(s->files[p], true, &fd));
        dlrm_status st = file_bytes(s->files[p], fd, &bytes);
        if (st == DLRM_OK) st = dlrm_record_rows(l, s->files[p], bytes, &rows);
        if (st == DLRM_OK) st = inspect(o, s->files[p], fd, rows);
        dlrm_file_close(&fd);
        TRY(st);
        dlrm_npy a = {.elem = DLRM_INT32, .shape = {rows, dlrm_record_bytes(l) / DLRM_RECORD_WORD}};
        TRY(put_strip(s, 0, p, p, &a));
        s->first_row[p + 1] = s->first_row[p] + rows;
    }
    return DLRM_OK;
}

/* --- arrays --- */

static const char *const array_suffix[] = {"_labels.npy", "_dense.npy", "_sparse.npy", "_sparse_multi_hot.npz"};
enum { LABELS, DENSE, SPARSE, MULTI_HOT };

static dlrm_status check_array(const char *name, const dlrm_npy *a, const char *what, unsigned elems, int64_t columns)
{
    char wanted[80] = "";
    for (int e = 0; e <= DLRM_FLOAT32; e++)
        if (elems >> e & 1)
            snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s%s", wanted[0] ? ", " : "",
                     dlrm_elem_text((dlrm_elem)e));
    if (!(elems >> a->elem & 1))
        return FAIL(DLRM_E_INPUT, "%s: found %s %s, expected one of %s", name, dlrm_elem_text(a->elem), what, wanted);
    if (a->shape[1] != columns)
        return FAIL(DLRM_E_INPUT, "%s: found %lld %s in a row, expected %lld as the model has", name,
                    (long long)a->shape[1], what, (long long)columns);
    return DLRM_OK;
}

static dlrm_status same_rows(const char *name, int64_t rows, const char *labels, int64_t expected)
{
    if (rows == expected) return DLRM_OK;
    return FAIL(DLRM_E_INPUT, "%s: found %lld rows, expected %lld as in %s", name, (long long)rows, (long long)expected,
                labels);
}

#define ONE(elem) (1u << (elem))
static const unsigned label_elems = ONE(DLRM_BOOL) | ONE(DLRM_INT8) | ONE(DLRM_INT32) | ONE(DLRM_FLOAT32),
                      dense_elems = ONE(DLRM_FLOAT16) | ONE(DLRM_FLOAT32), id_elems = ONE(DLRM_INT32) | ONE(DLRM_INT64);

/* The ids of a day, in one array or in an archive of one for each input. */
static dlrm_status open_ids(opening *o, dlrm_row_split *s, int part, int file, int fd, int64_t rows, dlrm_npy *arrays)
{
    const char *path = s->files[file], *labels = s->files[file - SPARSE + LABELS];
    char name[4200];
    if (!o->f->multi_hot) {
        dlrm_npy a;
        TRY(dlrm_npy_open(path, fd, &a));
        TRY(check_array(path, &a, "ids", id_elems, o->spec->n_inputs));
        TRY(same_rows(path, a.shape[0], labels, rows));
        return put_strip(s, DLRM_IDS_STRIP, part, file, &a);
    }
    TRY(dlrm_npz_open(path, fd, o->spec->n_inputs, arrays));
    for (int j = 0; j < o->spec->n_inputs; j++) {
        snprintf(name, sizeof name, "%s: member %d.npy", path, j);
        TRY(check_array(name, &arrays[j], "ids", id_elems, o->spec->inputs[j].hotness));
        TRY(same_rows(name, arrays[j].shape[0], labels, rows));
        TRY(put_strip(s, DLRM_IDS_STRIP + j, part, file, &arrays[j]));
    }
    return DLRM_OK;
}

static dlrm_status open_file_of_day(opening *o, dlrm_row_split *s, int part, int kind, int fd, dlrm_npy *arrays)
{
    int file = 3 * part + kind;
    const char *path = s->files[file];
    int64_t bytes, *rows = &s->first_row[part + 1];
    dlrm_npy a;
    TRY(file_bytes(path, fd, &bytes));
    if (kind > DENSE) return open_ids(o, s, part, file, fd, *rows - s->first_row[part], arrays);
    TRY(dlrm_npy_open(path, fd, &a));
    if (kind == LABELS) {
        TRY(check_array(path, &a, "labels", label_elems, 1));
        if (a.shape[0] == 0) return FAIL(DLRM_E_INPUT, "%s: found no rows", path);
        *rows = s->first_row[part] + a.shape[0];
        return put_strip(s, DLRM_LABEL_STRIP, part, file, &a);
    }
    TRY(check_array(path, &a, "dense values", dense_elems, o->spec->dense_features));
    TRY(same_rows(path, a.shape[0], s->files[file - DENSE + LABELS], *rows - s->first_row[part]));
    return put_strip(s, DLRM_DENSE_STRIP, part, file, &a);
}

static dlrm_status open_arrays(opening *o, const dlrm_names *names, const choice *days, dlrm_row_split *s)
{
    const int n_ids = o->f->multi_hot ? o->spec->n_inputs : 1;
    dlrm_npy *arrays;
    dlrm_status st = DLRM_OK;
    TRY(take_split(s, days->n, 3, DLRM_IDS_STRIP + n_ids));
    TRY(dlrm_alloc(o->spec->n_inputs, sizeof *arrays, "an archive's members", &arrays));
    for (int p = 0; p < days->n && st == DLRM_OK; p++)
        for (int kind = LABELS; kind <= SPARSE && st == DLRM_OK; kind++) {
            int fd = -1, file = 3 * p + kind;
            st = make_path(o->cfg, names->v[days->v[p]],
                           array_suffix[kind == SPARSE && o->f->multi_hot ? MULTI_HOT : kind], &s->files[file]);
            if (kind == DENSE && o->spec->dense_features == 0) continue;
            if (st == DLRM_OK) st = dlrm_file_open(s->files[file], true, &fd);
            if (st == DLRM_OK) st = open_file_of_day(o, s, p, kind, fd, arrays);
            dlrm_file_close(&fd);
        }
    dlrm_free(&arrays);
    return st;
}

/* Bags of more than one id are in the archives; single ids there, too, where there is no plain array. */
static dlrm_status find_multi_hot(opening *o, const char *first_day)
{
    char *path;
    for (int j = 0; j < o->spec->n_inputs; j++) o->f->multi_hot |= o->spec->inputs[j].hotness > 1;
    if (o->f->multi_hot) return DLRM_OK;
    TRY(make_path(o->cfg, first_day, array_suffix[SPARSE], &path));
    bool plain = access(path, F_OK) == 0;
    dlrm_free(&path);
    if (plain) return DLRM_OK;
    TRY(make_path(o->cfg, first_day, array_suffix[MULTI_HOT], &path));
    o->f->multi_hot = access(path, F_OK) == 0;
    dlrm_free(&path);
    return DLRM_OK;
}

/* --- both --- */

static dlrm_status check_inputs(opening *o)
{
    const dlrm_config *cfg = o->cfg;
    dlrm_row_files *f = o->f;
    int64_t ids = 0;
    TRY(dlrm_alloc(o->spec->n_inputs, sizeof *f->first_id, "the inputs' places", &f->first_id));
    for (int j = 0; j < o->spec->n_inputs; j++) {
        const dlrm_input *in = &o->spec->inputs[j];
        if (in->variable || (in->hotness > 1 && cfg->data.format == DLRM_MLPERF_BIN))
            return dlrm_config_fail(
                cfg, "model.tables", "feature %s has %s%d ids per sample, but data.format: %s has %s for each feature",
                in->name, in->variable ? "up to " : "", in->hotness, dlrm_format_text(cfg->data.format),
                cfg->data.format == DLRM_MLPERF_BIN ? "one id" : "a fixed number");
        f->first_id[j] = (int)ids;
        ids += in->hotness;
        if (ids > INT32_MAX / 8)
            return dlrm_config_fail(cfg, "model.tables", "a sample has more than %d ids", INT32_MAX / 8);
    }
    f->layout = (dlrm_record_layout){.n_dense = o->spec->dense_features, .n_ids = (int)ids};
    return DLRM_OK;
}

static dlrm_status settle_part(const dlrm_config *cfg, dlrm_row_split *s, bool test)
{
    const dlrm_test_part part = test ? cfg->data.test_part : DLRM_TEST_ALL;
    const int64_t all = s->first_row[s->n_parts], first_half = all - all / 2;
    s->from = part == DLRM_TEST_SECOND_HALF ? first_half : 0;
    s->rows = part == DLRM_TEST_FIRST_HALF ? first_half : all - s->from;
    if (s->rows == 0)
        return dlrm_config_fail(cfg, "data.test_part", "the second half of %lld row has no rows", (long long)all);
    return DLRM_OK;
}

static dlrm_status open_chosen(opening *o, const dlrm_names *names)
{
    choice files[DLRM_SPLITS] = {0};
    int *room;
    dlrm_status st;
    TRY(dlrm_alloc(names->n, DLRM_SPLITS * sizeof *room, "the choice of files", &room));
    for (int s = 0; s < DLRM_SPLITS; s++) files[s].v = room + (int64_t)s * names->n;
    TRY_TO(end, st, choose(o->cfg, names, files));
    if (!o->f->records) TRY_TO(end, st, find_multi_hot(o, names->v[files[DLRM_TRAIN_SPLIT].v[0]]));
    for (int s = 0; s < DLRM_SPLITS; s++) {
        dlrm_row_split *split = &o->f->split[s];
        if (files[s].n == 0) continue;
        TRY_TO(end, st,
               o->f->records ? open_records(o, names, &files[s], split) : open_arrays(o, names, &files[s], split));
        TRY_TO(end, st, settle_part(o->cfg, split, s == DLRM_TEST_SPLIT));
    }
end:
    dlrm_free(&room);
    return st;
}

dlrm_status dlrm_row_files_open(const dlrm_config *cfg, const dlrm_model_spec *spec, dlrm_row_files *out)
{
    dlrm_names names = {0};
    opening o = {.cfg = cfg, .spec = spec, .f = out};
    dlrm_status st;
    *out = (dlrm_row_files){.records = cfg->data.format != DLRM_NPY, .signed_ids = cfg->data.format == DLRM_MLPERF_BIN};
    TRY_TO(end, st, check_inputs(&o));
    TRY_TO(end, st, dlrm_names_list(cfg->data.path, out->records ? "" : array_suffix[LABELS], &names));
    st = open_chosen(&o, &names);
end:
    dlrm_names_free(&names);
    if (st != DLRM_OK) dlrm_row_files_close(out);
    return st;
}

void dlrm_row_files_close(dlrm_row_files *f)
{
    for (int s = 0; s < DLRM_SPLITS; s++) {
        dlrm_row_split *split = &f->split[s];
        for (int k = 0; split->files && k < split->n_files; k++) dlrm_free(&split->files[k]);
        for (int k = 0; split->strips && k < split->n_strips; k++) dlrm_free(&split->strips[k].parts);
        dlrm_free(&split->files);
        dlrm_free(&split->first_row);
        dlrm_free(&split->strips);
    }
    dlrm_free(&f->first_id);
    *f = (dlrm_row_files){0};
}

int dlrm_row_part(const dlrm_row_split *s, int64_t row, int64_t *in_part)
{
    int low = 0, high = s->n_parts;
    row += s->from;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (s->first_row[mid] <= row)
            low = mid;
        else
            high = mid;
    }
    *in_part = row - s->first_row[low];
    return low;
}

int64_t dlrm_strip_row_bytes(const dlrm_strip *s)
{
    return s->columns * (int64_t)dlrm_elem_size(s->elem);
}
