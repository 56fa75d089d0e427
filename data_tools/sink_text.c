/* Criteo's text as a sink: counts in decimal, ids as the hashes that a vocabulary has for them, else as themselves. */
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "criteo_line.h"
#include "row_sink.h"
#include "vocab.h"

typedef struct text_sink {
    dlrm_row_sink base;
    uint32_t *hashes[CRITEO_IDS]; /* of ids 1, 2, …; NULL: ids stand for themselves */
    char path[DLRM_OUT_SPLITS][DLRM_PATH_MAX];
    int fd[DLRM_OUT_SPLITS];
    int64_t written[DLRM_OUT_SPLITS];
    char *text;
    int64_t text_bytes;
} text_sink;

static char *put_row(const text_sink *s, const dlrm_stretch *rows, int64_t i, char *p)
{
    dlrm_criteo_row row = {.label = rows->labels[i]};
    for (int j = 0; j < CRITEO_DENSE; j++) {
        memcpy(&row.dense[j], (const char *)rows->dense + 4 * (i * CRITEO_DENSE + j), sizeof row.dense[j]);
        if (row.dense[j] == DLRM_NO_COUNT) row.dense_missing |= 1u << j;
    }
    for (int k = 0; k < CRITEO_IDS; k++) {
        uint32_t id = dlrm_stretch_ids(rows, &s->base.shape, k)[i];
        row.ids[k] = s->hashes[k] && id > 0 ? s->hashes[k][id - 1] : id;
        if (s->hashes[k] && id == 0) row.ids_missing |= 1u << k;
    }
    return dlrm_criteo_print(&row, p);
}

static dlrm_status write_text(dlrm_row_sink *base, int split, const dlrm_stretch *rows)
{
    text_sink *s = (text_sink *)base;
    TRY(dlrm_tool_room(rows->n * CRITEO_LONGEST_PRINT, "text", &s->text, &s->text_bytes));
    char *p = s->text;
    for (int64_t i = 0; i < rows->n; i++) p = put_row(s, rows, i, p);
    TRY(dlrm_tool_pwrite(s->fd[split], s->text, (size_t)(p - s->text), s->written[split], s->path[split]));
    s->written[split] += p - s->text;
    return DLRM_OK;
}

static dlrm_status finish_text(dlrm_row_sink *base)
{
    text_sink *s = (text_sink *)base;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++)
        if (s->fd[i] >= 0) TRY(dlrm_tool_close(&s->fd[i], s->path[i]));
    return DLRM_OK;
}

static void close_text(dlrm_row_sink *base)
{
    text_sink *s = (text_sink *)base;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++)
        if (s->fd[i] >= 0) close(s->fd[i]);
    for (int k = 0; k < CRITEO_IDS; k++) dlrm_free(&s->hashes[k]);
    dlrm_free(&s->text);
}

static dlrm_status load_hashes(text_sink *s, const dlrm_sink_args *args)
{
    int64_t memory = args->memory;
    for (int k = 0; k < CRITEO_IDS; k++) {
        char path[DLRM_PATH_MAX];
        dlrm_vocab_info info;
        TRY(dlrm_vocab_path(args->vocab, k, path));
        TRY(dlrm_vocab_info_read(path, &info));
        if (info.n + 1 != args->shape->features[k].cardinality)
            return FAIL(DLRM_E_INPUT, "%s: hashes for %lld ids, expected %lld as feature %s has", path, (long long)info.n + 1,
                        (long long)args->shape->features[k].cardinality, args->shape->features[k].name);
        memory -= info.n * (int64_t)sizeof **s->hashes;
        if (memory < 0)
            return FAIL(DLRM_E_USAGE, "--memory: %lld MiB, expected at least 4 bytes for each id of the vocabularies of %s",
                        (long long)(args->memory >> 20), args->vocab);
        TRY(dlrm_alloc(info.n, sizeof **s->hashes, "a vocabulary", &s->hashes[k]));
        TRY(dlrm_vocab_hashes(path, &info, s->hashes[k]));
    }
    return DLRM_OK;
}

dlrm_status dlrm_text_sink_open(const dlrm_sink_args *args, dlrm_row_sink **out)
{
    text_sink *s;
    const dlrm_shape *shape = args->shape;
    TRY(dlrm_alloc(1, sizeof *s, "a sink of rows", &s));
    s->base.write = write_text;
    s->base.finish = finish_text;
    s->base.close = close_text;
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) s->fd[i] = -1;
    *out = &s->base;
    TRY(dlrm_shape_copy(shape, &s->base.shape));
    if (shape->n_dense != CRITEO_DENSE || shape->n_features != CRITEO_IDS || shape->n_ids != CRITEO_IDS || shape->variable)
        return FAIL(DLRM_E_INPUT, "%d dense values, %d features and %lld ids a row; Criteo's text has 13, 26 and 26", shape->n_dense,
                    shape->n_features, (long long)shape->n_ids);
    if (args->vocab) TRY(load_hashes(s, args));
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) {
        if (args->rows[i] == 0) continue;
        TRY(dlrm_tool_path(s->path[i], "%s/%s.txt", args->folder, dlrm_out_split_names[i]));
        TRY(dlrm_tool_create(s->path[i], &s->fd[i]));
    }
    return DLRM_OK;
}
