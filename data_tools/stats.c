#include "stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

dlrm_status dlrm_stats_open(const dlrm_shape *s, dlrm_stats *out)
{
    *out = (dlrm_stats){0};
    TRY(dlrm_alloc(s->n_dense, sizeof *out->dense, "statistics", &out->dense));
    TRY(dlrm_alloc(s->n_features, sizeof *out->ids, "statistics", &out->ids));
    for (int j = 0; j < s->n_dense; j++) out->dense[j] = (dlrm_dense_stats){.min = INFINITY, .max = -INFINITY};
    for (int f = 0; f < s->n_features; f++) out->ids[f].min = UINT32_MAX;
    return DLRM_OK;
}

void dlrm_stats_clear(dlrm_stats *s)
{
    dlrm_free(&s->dense);
    dlrm_free(&s->ids);
}

static void add_dense(dlrm_stats *s, const dlrm_shape *shape, const dlrm_stretch *rows)
{
    for (int64_t i = 0; i < rows->n; i++)
        for (int j = 0; j < shape->n_dense; j++) {
            int64_t at = i * shape->n_dense + j;
            double v = shape->form == DLRM_FORM_COUNTS ? ((const int32_t *)rows->dense)[at] : (double)((const float *)rows->dense)[at];
            dlrm_dense_stats *d = &s->dense[j];
            d->min = v < d->min ? v : d->min;
            d->max = v > d->max ? v : d->max;
            d->sum += v;
            d->zeros += v == 0;
        }
}

static void add_ids(dlrm_id_stats *d, const dlrm_feature *f, const uint32_t *ids, const int32_t *lengths, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t length = lengths ? lengths[i] : f->hotness;
        for (int32_t h = 0; h < length; h++) {
            uint32_t id = ids[i * f->hotness + h];
            d->min = id < d->min ? id : d->min;
            d->max = id > d->max ? id : d->max;
            d->zeros += id == 0;
        }
        d->ids += length;
        d->empty_bags += length == 0;
        d->longest = length > d->longest ? length : d->longest;
    }
}

static void add_keys(dlrm_id_stats *d, const dlrm_feature *f, const uint32_t *ids, const int32_t *lengths, int64_t n)
{
    d->min = 0;
    d->max = UINT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        const int32_t length = (lengths ? lengths[i] : f->hotness) / 2;
        for (int32_t h = 0; h < length; h++) {
            const uint32_t *half = ids + i * f->hotness + 2 * h;
            const int64_t key = (int64_t)((uint64_t)half[1] << 32 | half[0]);
            d->least_key = d->ids + h == 0 || key < d->least_key ? key : d->least_key;
            d->largest_key = d->ids + h == 0 || key > d->largest_key ? key : d->largest_key;
            d->zeros += key == 0;
        }
        d->ids += length;
        d->empty_bags += length == 0;
        d->longest = length > d->longest ? length : d->longest;
    }
}

void dlrm_stats_add(dlrm_stats *s, const dlrm_shape *shape, int split, const dlrm_stretch *rows)
{
    s->rows[split] += rows->n;
    for (int64_t i = 0; i < rows->n; i++) s->positives[split] += rows->labels[i];
    add_dense(s, shape, rows);
    for (int f = 0; f < shape->n_features; f++)
        (shape->features[f].keys ? add_keys : add_ids)(&s->ids[f], &shape->features[f], dlrm_stretch_ids(rows, shape, f),
                rows->lengths ? rows->lengths + rows->capacity * f : NULL, rows->n);
}

/* --- printing --- */

/* Sets of tables that are known by the sum of their rows. */
static const char *known_tables(int64_t sum)
{
    static const struct {
        int64_t sum;
        const char *name;
    } known[] = {{33762577, "Kaggle, no frequency limit"},
                 {882774559, "Terabyte, all ids"},
                 {49126297, "Terabyte, modulo 10 M, negatives sub-sampled"},
                 {54184588, "Terabyte, cut to 10 M"},
                 {187767399, "MLPerf DLRM v1: modulo 40 M before the vocabulary"},
                 {204184588, "MLPerf DLRM-DCNv2: all ids, modulo 40 M"},
                 {882774575, "DeepLearningExamples, frequency limit 0"},
                 {177944291, "DeepLearningExamples, frequency limit 3"},
                 {32709138, "DeepLearningExamples, frequency limit 15"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].sum == sum) return known[i].name;
    return NULL;
}

static const char *form_text(const dlrm_row_source *from)
{
    static const char *const texts[] = {"int32 counts", "ln(x+1)", "ln(x+3)", "floats, made in a way that nothing here tells"};
    return texts[from->shape.form];
}

static void print_splits(const dlrm_stats *s, const dlrm_row_source *from, bool all)
{
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) {
        if (from->rows[i] == 0) continue;
        char looked[64] = "";
        if (!all) snprintf(looked, sizeof looked, ", of %lld looked at", (long long)s->rows[i]);
        dlrm_info("%-10s %lld rows, %.3f %% with label 1%s", dlrm_out_split_names[i], (long long)from->rows[i],
                  s->rows[i] ? 100.0 * (double)s->positives[i] / (double)s->rows[i] : 0.0, looked);
    }
}

static void print_features(const dlrm_stats *s, const dlrm_row_source *from)
{
    const dlrm_shape *shape = &from->shape;
    dlrm_info("%-16s %12s %8s %12s %12s %9s", "feature", "cardinality", "hotness", "least id", "largest id", "id 0");
    for (int f = 0; f < shape->n_features; f++) {
        const dlrm_feature *feature = &shape->features[f];
        const dlrm_id_stats *d = &s->ids[f];
        char cardinality[32] = "not said", hotness[32];
        snprintf(hotness, sizeof hotness, "%s%d", feature->variable ? "0-" : "", feature->hotness / (feature->keys ? 2 : 1));
        if (feature->keys) {
            dlrm_info("%-16s %12s %8s %12lld %12lld %7.2f %%", feature->name, "keys", hotness, (long long)d->least_key, (long long)d->largest_key,
                      d->ids ? 100.0 * (double)d->zeros / (double)d->ids : 0.0);
            continue;
        }
        if (feature->cardinality) snprintf(cardinality, sizeof cardinality, "%lld", (long long)feature->cardinality);
        dlrm_info("%-16s %12s %8s %12u %12u %7.2f %%", feature->name, cardinality, hotness, d->ids ? d->min : 0, d->max,
                  d->ids ? 100.0 * (double)d->zeros / (double)d->ids : 0.0);
    }
    if (shape->n_dense == 0) return;
    dlrm_info("%-16s %12s %8s %12s %12s %9s", "dense", "mean", "", "least", "largest", "0");
    int64_t rows = s->rows[0] + s->rows[1] + s->rows[2];
    for (int j = 0; j < shape->n_dense; j++) {
        const dlrm_dense_stats *d = &s->dense[j];
        dlrm_info("num_%-12d %12.5g %8s %12.5g %12.5g %7.2f %%", j, d->sum / (double)(rows ? rows : 1), "", d->min, d->max,
                  100.0 * (double)d->zeros / (double)(rows ? rows : 1));
    }
}

void dlrm_stats_print(const dlrm_stats *s, const dlrm_row_source *from, const char *path, bool all)
{
    const dlrm_shape *shape = &from->shape;
    int64_t sum = 0;
    bool known = true;
    for (int f = 0; f < shape->n_features; f++) {
        if (shape->features[f].keys) continue;
        sum += shape->features[f].cardinality;
        known &= shape->features[f].cardinality > 0;
    }
    dlrm_info("%s: %s, %.3f GB", path, dlrm_format_names[from->format], (double)from->disk_bytes * 1e-9);
    if (from->note) dlrm_info("note: %s", from->note);
    print_splits(s, from, all);
    dlrm_info("%-10s %d values a row: %s%s", "dense", shape->n_dense,
              from->dense_bytes == 2                 ? "float16, "
              : from->shape.form == DLRM_FORM_COUNTS ? ""
                                                     : "float32, ",
              form_text(from));
    char rows[160] = "their rows are not said";
    if (known)
        snprintf(rows, sizeof rows, "%lld table rows%s%s%s", (long long)sum, known_tables(sum) ? " (" : "",
                 known_tables(sum) ? known_tables(sum) : "", known_tables(sum) ? ")" : "");
    dlrm_info("%-10s %d of %s%lld ids a row; %s", "features", shape->n_features, shape->variable ? "up to " : "", (long long)dlrm_shape_values(shape),
              rows);
    print_features(s, from);
}

/* --- what only many rows show --- */

dlrm_status dlrm_stats_judge(const dlrm_stats *s, const dlrm_row_source *from, const char *path, dlrm_findings *to)
{
    const dlrm_shape *shape = &from->shape;
    bool ascending = shape->n_features > 1;
    for (int f = 1; f < shape->n_features; f++) ascending &= s->ids[f].ids > 0 && s->ids[f].min > s->ids[f - 1].max;
    if (ascending)
        TRY(dlrm_found(to, s, "offsets",
                       "%s: each feature's ids lie above those of the one before it (from %u on in the last): they look like places in one "
                       "common table; expected ids from 0 in each",
                       path, s->ids[shape->n_features - 1].min));
    for (int i = 0; i < DLRM_OUT_SPLITS; i++)
        if (s->rows[i] >= 1000 && (s->positives[i] == 0 || s->positives[i] == s->rows[i]))
            TRY(dlrm_found(to, &s->positives[i], "one class", "%s: %s: all %lld labels looked at are %d", path, dlrm_out_split_names[i],
                           (long long)s->rows[i], s->positives[i] > 0));
    for (int j = 0; j < shape->n_dense; j++)
        if (s->dense[j].min == s->dense[j].max && s->rows[0] + s->rows[1] + s->rows[2] >= 1000 && s->dense[j].min != 0)
            TRY(dlrm_found(to, &s->dense[j], "constants", "%s: dense column %d is %g in every row looked at", path, j, s->dense[j].min));
    return DLRM_OK;
}
