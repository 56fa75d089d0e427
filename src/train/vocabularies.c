#include "train/vocabularies.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* The vocabulary, if this rank is the one that counts it: others that have columns of the table have the same. */
static dlrm_vocabulary *counted_here(const dlrm_vocabularies *v, int k)
{
    const dlrm_placement *p = &v->s->place;
    const int t = dlrm_vocabulary_table(&v->s->spec, k);
    return p->slices[p->first_slice[t]].owner == v->s->comm->rank ? dlrm_tables_vocabulary(&v->s->model.emb.own, t) : NULL;
}

dlrm_status dlrm_vocabularies_open(dlrm_session *s, dlrm_vocabularies *v)
{
    dlrm_status st;
    *v = (dlrm_vocabularies){.s = s, .n = s->spec.n_vocabularies};
    st = dlrm_alloc(3 * (int64_t)v->n, sizeof *v->now, "the count of vocabularies", &v->now);
    TRY(dlrm_comm_agree(s->comm, st));
    v->window = v->now + v->n;
    v->first = v->window + v->n;
    dlrm_vocabularies_count(v);
    dlrm_vocabularies_begin_window(v);
    if (v->n > 0) memcpy(v->first, v->now, (size_t)v->n * sizeof *v->now);
    return DLRM_OK;
}

void dlrm_vocabularies_close(dlrm_vocabularies *v)
{
    dlrm_free(&v->now);
    *v = (dlrm_vocabularies){0};
}

void dlrm_vocabularies_count(dlrm_vocabularies *v)
{
    if (v->n == 0) return;
    for (int k = 0; k < v->n; k++) {
        const dlrm_vocabulary *from = counted_here(v, k);
        v->now[k] = (dlrm_vocabulary_count){0};
        if (!from) continue;
        v->now[k] = (dlrm_vocabulary_count){.keys = from->used, .ids = from->totals.ids, .unknown = from->totals.unknown,
                                            .evicted = from->totals.evicted, .evaluated = from->evaluated,
                                            .evaluated_unknown = from->evaluated_unknown};
    }
    dlrm_comm_sum_i64(v->s->comm, &v->now[0].keys, v->n * (int)(sizeof *v->now / sizeof(int64_t)));
}

double dlrm_vocabularies_evaluated(dlrm_vocabularies *v)
{
    int64_t ids = 0, unknown = 0;
    dlrm_vocabularies_count(v);
    for (int k = 0; k < v->n; k++) {
        dlrm_vocabulary *mine = counted_here(v, k);
        ids += v->now[k].evaluated;
        unknown += v->now[k].evaluated_unknown;
        if (mine) mine->evaluated = mine->evaluated_unknown = 0;
    }
    return ids > 0 ? (double)unknown / (double)ids : NAN;
}

void dlrm_vocabularies_begin_window(dlrm_vocabularies *v)
{
    if (v->n > 0) memcpy(v->window, v->now, (size_t)v->n * sizeof *v->now);
}

json_t *dlrm_vocabularies_start_json(const dlrm_vocabularies *v)
{
    json_t *list = json_array();
    for (int k = 0; k < v->n; k++) {
        const dlrm_table *t = &v->s->spec.tables[dlrm_vocabulary_table(&v->s->spec, k)];
        json_array_append_new(list, json_pack("{s:s,s:I,s:s,s:I,s:I}", "table", t->name, "capacity", (json_int_t)t->capacity, "evict",
                                              dlrm_evict_text(t->evict), "admission", (json_int_t)t->admission, "keys",
                                              (json_int_t)v->now[k].keys));
    }
    return list;
}

json_t *dlrm_vocabularies_json(const dlrm_vocabularies *v, bool whole)
{
    const dlrm_vocabulary_count *since = whole ? v->first : v->window;
    json_t *list = json_array();
    for (int k = 0; k < v->n; k++) {
        const int64_t ids = v->now[k].ids - since[k].ids, unknown = v->now[k].unknown - since[k].unknown;
        json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:o,s:I}", "table", v->s->spec.tables[dlrm_vocabulary_table(&v->s->spec, k)].name, "keys",
                                              (json_int_t)v->now[k].keys, "ids", (json_int_t)ids, "out_of_vocabulary",
                                              ids > 0 ? json_real((double)unknown / (double)ids) : json_null(), "evicted",
                                              (json_int_t)(v->now[k].evicted - since[k].evicted)));
    }
    return list;
}

const char *dlrm_vocabularies_text(const dlrm_vocabularies *v, bool whole, char *buf, size_t bytes)
{
    const dlrm_vocabulary_count *since = whole ? v->first : v->window;
    dlrm_vocabulary_count sum = {0};
    buf[0] = 0;
    for (int k = 0; k < v->n; k++) {
        sum.keys += v->now[k].keys;
        sum.ids += v->now[k].ids - since[k].ids;
        sum.unknown += v->now[k].unknown - since[k].unknown;
        sum.evicted += v->now[k].evicted - since[k].evicted;
    }
    if (v->n > 0)
        snprintf(buf, bytes, "%lld keys, %.2f %% of ids out of vocabulary, %lld evicted", (long long)sum.keys,
                 sum.ids > 0 ? 100 * (double)sum.unknown / (double)sum.ids : 0.0, (long long)sum.evicted);
    return buf;
}
