/* What the interaction makes of the vectors, how wide it is, and how large the model gets. The limits keep every width
 * in an int and every product of the program in 64 bits. */
#include "config/spec_internal.h"

#define WIDEST ((int64_t)1 << 26)
#define MOST_ELEMENTS ((int64_t)1 << 53)
#define MOST_IDS ((int64_t)1 << 40)

enum { LEAST_WIDE = 8, WIDEST_AUTO = 256 };

/* auto: the least multiple of 8 that is not below 2 rows^(1/4), as Merlin's get_embedding_size_from_cardinality has it
 * (multiplier 2, ensure_multiple_of_8); the power is TensorFlow's rule of thumb for embedding columns. Our bounds. */
int dlrm_spec_dim(const dlrm_config *cfg, int64_t own, int64_t rows)
{
    const dlrm_int_list *bottom = &cfg->model.bottom_mlp;
    const int64_t dim = own ? own : cfg->model.embedding_dim;
    int64_t wide = LEAST_WIDE;
    if (dim != DLRM_DIM_AUTO) return (int)dim;
    if (cfg->model.interaction == DLRM_DOT) return bottom->v[bottom->n - 1]; /* there is one: checks.c */
    while (wide < WIDEST_AUTO && wide * wide * wide * wide / 16 < rows) wide += 8;
    return (int)wide;
}

static dlrm_status check_dot(dlrm_spec_build *b)
{
    const dlrm_model_spec *s = b->out;
    for (int t = 0; t < s->n_tables; t++) {
        if (s->tables[t].dim == s->bottom_width) continue;
        const char *path = b->entry ? dlrm_spec_path(b, "tables", b->entry[t], "dim") : "model.embedding_dim";
        return dlrm_config_fail(
            b->cfg, path,
            "table \"%s\" is %d wide, but interaction: dot needs it as wide as the bottom MLP's output, %d",
            s->tables[t].name, s->tables[t].dim, s->bottom_width);
    }
    return DLRM_OK;
}

/* Elements of a stack of layers, weights and biases. */
static int64_t stack_elements(int64_t in, const dlrm_int_list *widths)
{
    int64_t sum = 0;
    for (int i = 0; i < widths->n; i++) {
        sum += (in + 1) * widths->v[i];
        in = widths->v[i];
    }
    return sum;
}

/* vectors: of a sample; width: of them all. */
static dlrm_status count_tables(dlrm_spec_build *b, int64_t *vectors, int64_t *width)
{
    dlrm_model_spec *s = b->out;
    int64_t ids = 0, batch = b->cfg->train.batch_size;
    if (b->cfg->eval.batch_size > batch) batch = b->cfg->eval.batch_size;
    for (int t = 0; t < s->n_tables; t++) {
        if (s->tables[t].rows > (MOST_ELEMENTS - s->table_elements) / s->tables[t].dim)
            return dlrm_config_fail(b->cfg, b->entry ? dlrm_spec_path(b, "tables", b->entry[t], "") : "model.tables",
                                    "the tables up to \"%s\" have more than %lld elements", s->tables[t].name,
                                    (long long)MOST_ELEMENTS);
        s->table_elements += s->tables[t].rows * s->tables[t].dim;
    }
    for (int j = 0; j < s->n_inputs; j++) {
        const int n = dlrm_input_vectors(&s->inputs[j]);
        *vectors += n;
        *width += (int64_t)n * s->tables[s->inputs[j].table].dim;
        ids += s->inputs[j].hotness;
    }
    if (ids > MOST_IDS / batch)
        return dlrm_config_fail(b->cfg, "model.tables",
                                "%lld ids per sample and %lld samples per batch are too many, expected at "
                                "most %lld ids per batch",
                                (long long)ids, (long long)batch, (long long)MOST_IDS);
    return DLRM_OK;
}

dlrm_status dlrm_spec_widths(dlrm_spec_build *b)
{
    dlrm_model_spec *s = b->out;
    int64_t n = 0, vectors = 0, width = 0;
    s->bottom_width = s->bottom.n ? s->bottom.v[s->bottom.n - 1] : s->dense_features;
    TRY(count_tables(b, &n, &vectors));
    if (vectors > WIDEST)
        return dlrm_config_fail(b->cfg, "model.tables", "the tables' vectors are %lld elements of a sample in all, expected at most %lld",
                                (long long)vectors, (long long)WIDEST);
    switch (s->interaction) {
    case DLRM_DOT:
        TRY(check_dot(b));
        width = s->bottom_width + (n + 1) * n / 2;
        break;
    case DLRM_CAT:
    case DLRM_DCN:
        width = s->bottom_width + vectors;
        break;
    case DLRM_POOL:
        width = (vectors + s->pool_stride - 1) / s->pool_stride + s->bottom_width;
        break;
    }
    if (width > WIDEST)
        return dlrm_config_fail(b->cfg, "model.interaction", "the interaction is %lld wide, expected at most %lld", (long long)width,
                                (long long)WIDEST);
    s->vectors_width = (int)vectors;
    s->interaction_width = (int)width;
    if (s->top.n == 0 && width != 1)
        return dlrm_config_fail(b->cfg, "model.top_mlp",
                                "found [], but the interaction has %lld outputs; expected a last layer of "
                                "width 1, the logit",
                                (long long)width);
    s->mlp_elements = stack_elements(s->dense_features, &s->bottom) + stack_elements(width, &s->top);
    s->mlp_elements += s->cross_layers * (2 * width * s->cross_rank + width);
    return DLRM_OK;
}
