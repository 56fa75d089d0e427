#include "train/same_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/same_run.h"
#include "checkpoint/sum.h"
#include "model/pieces.h"

static json_t *own(const dlrm_session *s)
{
    json_t *run = dlrm_run_json(&s->cfg, &s->spec, dlrm_dataset_rows(s->data, DLRM_TRAIN_SPLIT));
    if (run) json_object_set_new(run, "test_rows", json_integer((json_int_t)dlrm_dataset_rows(s->data, DLRM_TEST_SPLIT)));
    return run;
}

typedef struct comparison {
    const dlrm_session *s;
    const json_t *config; /* rank 0's */
    dlrm_status status;
} comparison;

static void compare_key(void *ctx, const char *path, const char *value)
{
    comparison *c = ctx;
    const char *first = json_string_value(json_object_get(c->config, path));
    if (c->status != DLRM_OK || (first && strcmp(first, value) == 0)) return;
    c->status = dlrm_config_fail(&c->s->cfg, path, "is %.300s on rank %d, but %.300s on rank 0; expected the same config on all", value, c->s->comm->rank,
                                 first ? first : "not there");
}

/* Tables or features: the first that differs, as JSON. */
static dlrm_status compare_list(const dlrm_session *s, const char *member, const char *key, const json_t *mine, const json_t *first)
{
    const json_t *a = json_object_get(mine, member), *b = json_object_get(first, member);
    size_t i = 0;
    if (json_equal(a, b)) return DLRM_OK;
    while (json_array_get(a, i) && json_equal(json_array_get(a, i), json_array_get(b, i))) i++;
    char *here = json_array_get(a, i) ? json_dumps(json_array_get(a, i), JSON_COMPACT) : NULL;
    char *there = json_array_get(b, i) ? json_dumps(json_array_get(b, i), JSON_COMPACT) : NULL;
    const dlrm_status st = dlrm_config_fail(&s->cfg, key, "number %zu is %.300s on rank %d, but %.300s on rank 0; expected the same on all", i,
                                            here ? here : "not there", s->comm->rank, there ? there : "not there");
    free(here);
    free(there);
    return st;
}

static dlrm_status compare_rows(const dlrm_session *s, const char *member, const char *split, const json_t *mine, const json_t *first)
{
    const json_int_t here = json_integer_value(json_object_get(mine, member)), there = json_integer_value(json_object_get(first, member));
    if (here == there) return DLRM_OK;
    return dlrm_config_fail(&s->cfg, "data.path", "has %lld %s rows on rank %d, but %lld on rank 0; expected the same data on all", (long long)here, split,
                            s->comm->rank, (long long)there);
}

static dlrm_status compare(const dlrm_session *s, const json_t *mine, const json_t *first)
{
    comparison c = {.s = s, .config = json_object_get(first, "config")};
    if (!mine || !first) return FAIL(DLRM_E_RUNTIME, "no memory to compare the ranks' configs");
    dlrm_config_each(&s->cfg, compare_key, &c);
    TRY(c.status);
    TRY(compare_list(s, "tables", "model.tables", mine, first));
    TRY(compare_list(s, "inputs", "model.features", mine, first));
    TRY(compare_rows(s, "train_rows", "training", mine, first));
    return compare_rows(s, "test_rows", "test", mine, first);
}

dlrm_status dlrm_same_ranks_check(dlrm_session *s)
{
    dlrm_comm *comm = s->comm;
    if (comm->ranks == 1) return DLRM_OK;
    json_t *mine = own(s), *first = NULL;
    char *dump = mine && comm->rank == 0 ? json_dumps(mine, JSON_COMPACT) : NULL, *text = NULL;
    int64_t bytes = dump ? (int64_t)strlen(dump) : 0;
    dlrm_comm_bcast(comm, &bytes, sizeof bytes, 0);
    dlrm_status st = dlrm_comm_agree(comm, dlrm_alloc(bytes + 1, 1, "rank 0's config", &text));
    if (st == DLRM_OK) {
        if (dump) memcpy(text, dump, (size_t)bytes);
        dlrm_comm_bcast(comm, text, bytes, 0);
        first = json_loads(text, 0, NULL);
        st = dlrm_comm_agree(comm, compare(s, mine, first));
    }
    json_decref(first);
    json_decref(mine);
    dlrm_free(&text);
    free(dump);
    return st;
}

/* Of the parameters, in the order of their list. */
static dlrm_status sum_parameters(dlrm_model *m, uint64_t *sum)
{
    int n;
    dlrm_piece *pieces;
    dlrm_status st = DLRM_OK;
    *sum = 0;
    TRY(dlrm_pieces_list(m, false, &pieces, &n));
    dlrm_pieces_settle(m);
    for (int i = 0; i < n && st == DLRM_OK; i++) {
        const dlrm_piece *p = &pieces[i];
        char *block;
        if (p->tensor < dlrm_pieces_first_param(m) || p->tensor >= dlrm_pieces_first_table(m)) continue;
        st = dlrm_alloc(dlrm_piece_bytes(p), 1, "parameters to compare", &block);
        if (st != DLRM_OK) break;
        dlrm_piece_download(m->be, p, 0, p->part.rows, block);
        const uint64_t both[] = {*sum, dlrm_sum(block, (size_t)dlrm_piece_bytes(p))};
        *sum = dlrm_sum(both, sizeof both);
        dlrm_free(&block);
    }
    dlrm_free(&pieces);
    return st;
}

dlrm_status dlrm_same_ranks_check_weights(dlrm_session *s, const char *path)
{
    uint64_t mine, first;
    if (s->comm->ranks == 1) return DLRM_OK;
    TRY(dlrm_comm_agree(s->comm, sum_parameters(&s->model, &mine)));
    first = mine;
    dlrm_comm_bcast(s->comm, &first, sizeof first, 0);
    return dlrm_comm_agree(s->comm, mine == first ? DLRM_OK : FAIL(DLRM_E_INPUT, "%s: rank %d read other weights there than rank 0; expected the same files "
                                                                   "on all", path, s->comm->rank));
}
