/* Placement, for any number of ranks: what is replicated, who owns what, and where the parts of vectors lie. */
#include "config_fixture.h"

#include "model/placement.h"

enum { MOST = 64 };

/* Tables of these shapes, with an input each. */
typedef struct shapes {
    dlrm_model_spec spec;
    dlrm_table tables[MOST];
    dlrm_input inputs[MOST];
} shapes;

static void make(shapes *m, int n, const int64_t (*shape)[2])
{
    memset(m, 0, sizeof *m);
    m->spec = (dlrm_model_spec){.n_tables = n, .n_inputs = n, .tables = m->tables, .inputs = m->inputs};
    for (int t = 0; t < n; t++) {
        m->tables[t] = (dlrm_table){.rows = shape[t][0], .dim = (int)shape[t][1]};
        m->inputs[t] = (dlrm_input){.table = t, .hotness = 1};
    }
}

static const dlrm_placement_args plain = {.strategy = DLRM_BASIC, .data_parallel = -1};

/* What holds of every placement: each element has one owner or is everywhere; parts fill the pooled rows without gaps, and
 * each input's parts have its columns; the counts are right. */
static void check_sound(const shapes *m, const dlrm_placement *p)
{
    static bool row[1 << 12];
    int64_t elements[MOST] = {0}, width[MOST] = {0}, replicated = 0, replicated_width = 0;
    int tables[MOST] = {0}, inputs[MOST] = {0};
    for (int t = 0; t < m->spec.n_tables; t++) {
        int64_t sum = 0;
        int column = 0;
        for (int k = p->first_slice[t]; k < p->first_slice[t + 1]; k++) {
            const dlrm_slice *s = &p->slices[k];
            assert_int_equal(s->table, t);
            assert_true(s->owner == DLRM_EVERY_RANK || (s->owner >= 0 && s->owner < p->ranks));
            assert_true(s->rows > 0 && s->columns > 0 && s->row_step > 0);
            assert_true(s->first_row + (s->rows - 1) * s->row_step < m->tables[t].rows);
            assert_true(s->rows == m->tables[t].rows || s->columns == m->tables[t].dim);
            sum += s->rows * s->columns;
            if (s->rows == m->tables[t].rows) { /* columns follow each other */
                assert_int_equal(s->first_column, column);
                column += s->columns;
            }
            if (s->owner == DLRM_EVERY_RANK) {
                replicated += s->rows * s->columns;
            } else {
                elements[s->owner] += s->rows * s->columns;
                tables[s->owner]++;
            }
        }
        assert_int_equal(sum, m->tables[t].rows * m->tables[t].dim);
        if (m->tables[t].rows > (int64_t)sizeof row) continue;
        memset(row, 0, sizeof row);
        for (int k = p->first_slice[t]; column == 0 && k < p->first_slice[t + 1]; k++)
            for (int64_t i = 0; i < p->slices[k].rows; i++) {
                bool *at = &row[p->slices[k].first_row + i * p->slices[k].row_step];
                assert_false(*at);
                *at = true;
            }
    }
    for (int i = 0; i < p->n_parts; i++) {
        const dlrm_slice *s = &p->slices[p->parts[i].slice];
        int64_t *at = s->owner == DLRM_EVERY_RANK ? &replicated_width : &width[s->owner];
        assert_int_equal(p->parts[i].column, *at);
        *at += s->columns;
        if (s->owner >= 0) inputs[s->owner]++;
    }
    for (int j = 0; j < m->spec.n_inputs; j++)
        for (int i = p->first_part[j]; i < p->first_part[j + 1]; i++) {
            assert_int_equal(p->parts[i].input, j);
            assert_int_equal(p->slices[p->parts[i].slice].table, m->inputs[j].table);
        }
    for (int r = 0; r < p->ranks; r++) {
        assert_int_equal(elements[r], p->elements[r]);
        assert_int_equal(width[r], p->width[r]);
        assert_int_equal(tables[r], p->tables[r]);
        assert_int_equal(inputs[r], p->inputs[r]);
    }
    assert_int_equal(replicated, p->replicated_elements);
    assert_int_equal(replicated_width, p->replicated_width);
}

static void place(const shapes *m, const dlrm_placement_args *args, int ranks, dlrm_placement *p)
{
    assert_taken(dlrm_placement_make(&m->spec, args, ranks, p));
    check_sound(m, p);
}

static void assert_owners(const dlrm_placement *p, int n, const int *owners)
{
    assert_int_equal(p->n_slices, n);
    for (int k = 0; k < n; k++) assert_int_equal(p->slices[k].owner, owners[k]);
}

static void test_strategies(void **state)
{
    (void)state;
    shapes m;
    dlrm_placement p;
    make(&m, 7, (const int64_t[][2]){{10, 1}, {70, 1}, {30, 1}, {20, 1}, {60, 1}, {50, 1}, {40, 1}});
    static const struct {
        dlrm_strategy strategy;
        int owners[7];
    } cases[] = {
        {DLRM_BASIC, {0, 1, 2, 0, 1, 2, 0}},
        {DLRM_MEMORY_BALANCED, {0, 0, 1, 0, 1, 2, 2}},  /* 70 60 50 | 40 30 20, back | 10 */
        {DLRM_MEMORY_OPTIMIZED, {2, 0, 1, 0, 1, 2, 2}}, /* 70 60 50 40(->2: 90) 30(->1: 90) 20(->0: 90) 10(->0) */
    };
    for (int i = 0; i < 3; i++) {
        dlrm_placement_args args = plain;
        args.strategy = cases[i].strategy;
        place(&m, &args, 3, &p);
        if (i < 2) assert_owners(&p, 7, cases[i].owners);
        for (int r = 0; i == 2 && r < 3; r++) assert_true(p.elements[r] >= 90 && p.elements[r] <= 100);
        dlrm_placement_clear(&p);
    }
}

static void test_replicated(void **state)
{
    (void)state;
    shapes m;
    dlrm_placement p;
    make(&m, 4, (const int64_t[][2]){{100, 4}, {10, 8}, {80, 1}, {81, 1}});
    dlrm_placement_args args = plain;
    args.data_parallel = 80;
    place(&m, &args, 2, &p); /* at the threshold: replicated; the others in turn */
    assert_owners(&p, 4, (const int[]){0, DLRM_EVERY_RANK, DLRM_EVERY_RANK, 1});
    assert_int_equal(p.replicated_tables, 2);
    assert_int_equal(p.replicated_elements, 160);
    assert_int_equal(p.replicated_width, 9);
    assert_true(dlrm_placement_replicates(&p, 1) && !dlrm_placement_replicates(&p, 3));
    assert_true(dlrm_placement_wants(&p, 3, 1) && !dlrm_placement_wants(&p, 3, 0));
    assert_int_equal(dlrm_placement_received(&p), 5);
    dlrm_placement_clear(&p);
    place(&m, &args, 1, &p); /* one rank has nobody to replicate for */
    assert_owners(&p, 4, (const int[]){0, 0, 0, 0});
    dlrm_placement_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_strategies, no_blocks_left),
        cmocka_unit_test_teardown(test_replicated, no_blocks_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
