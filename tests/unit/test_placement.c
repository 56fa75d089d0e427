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

static const dlrm_placement_args plain = {.strategy = DLRM_BASIC, .data_parallel = -1, .row_slice = -1, .column_slice = -1};

/* What holds of every placement: each element has one owner or is everywhere; parts fill the pooled rows without gaps, and
 * each input's parts have its columns; the counts are right. */
static void check_sound(const shapes *m, const dlrm_placement *p)
{
    static bool row[1 << 12];
    int64_t elements[MOST] = {0}, width[MOST] = {0}, replicated = 0, replicated_width = 0;
    int tables[MOST] = {0}, inputs[MOST] = {0}, vectors = 0;
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
        *at += (int64_t)p->parts[i].vectors * s->columns;
        vectors += p->parts[i].vectors;
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
        assert_int_equal(p->first_owned[r + 1] - p->first_owned[r], tables[r]);
        for (int i = p->first_owned[r]; i < p->first_owned[r + 1]; i++) {
            assert_int_equal(p->slices[p->owned[i]].owner, r);
            assert_true(i == p->first_owned[r] || p->owned[i] > p->owned[i - 1]);
        }
    }
    assert_int_equal(vectors, p->n_vectors);
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

static void assert_columns(const dlrm_placement *p, int table, int n, const int *columns)
{
    assert_int_equal(p->first_slice[table + 1] - p->first_slice[table], n);
    for (int k = 0; k < n; k++) assert_int_equal(p->slices[p->first_slice[table] + k].columns, columns[k]);
}

static void test_columns(void **state)
{
    (void)state;
    shapes m;
    dlrm_placement p;
    dlrm_placement_args args = plain;
    make(&m, 3, (const int64_t[][2]){{10, 10}, {1, 8}, {100, 1}});
    args.column_slice = 30; /* 100: 4 slices of at most 30; 8: whole; a table of one column stays whole */
    place(&m, &args, 5, &p);
    assert_columns(&p, 0, 4, (const int[]){3, 3, 2, 2});
    assert_columns(&p, 1, 1, (const int[]){8});
    assert_columns(&p, 2, 1, (const int[]){1});
    dlrm_placement_clear(&p);
    place(&m, &args, 3, &p); /* at most as many as ranks */
    assert_columns(&p, 0, 3, (const int[]){4, 3, 3});
    dlrm_placement_clear(&p);
    args.column_slice = 100; /* not above it */
    place(&m, &args, 3, &p);
    assert_columns(&p, 0, 1, (const int[]){10});
    dlrm_placement_clear(&p);
    /* 4 + 2 slices to and fro over 3 ranks: 0 1 2 2 1 0, so that slices meet again */
    make(&m, 2, (const int64_t[][2]){{10, 16}, {9, 16}});
    args = (dlrm_placement_args){.strategy = DLRM_MEMORY_BALANCED, .data_parallel = -1, .row_slice = -1, .column_slice = 80};
    place(&m, &args, 4, &p);
    assert_columns(&p, 0, 2, (const int[]){8, 8});
    dlrm_placement_clear(&p);
    args.column_slice = 40; /* 4 slices of each over 2 ranks: at most 2, which meet nobody */
    place(&m, &args, 2, &p);
    assert_columns(&p, 0, 2, (const int[]){8, 8});
    dlrm_placement_clear(&p);
}

static void test_slices_meet(void **state)
{
    (void)state;
    shapes m;
    dlrm_placement p;
    make(&m, 2, (const int64_t[][2]){{1, 7}, {10, 16}});
    dlrm_placement_args args = plain; /* basic: 0 | 1 2 0 1 of 3 ranks can have at most 3 slices: 1 2 0 */
    args.column_slice = 60;
    place(&m, &args, 3, &p);
    assert_columns(&p, 1, 3, (const int[]){6, 5, 5});
    assert_int_equal(p.slices[1].owner, 0);
    dlrm_placement_clear(&p);
    /* to and fro, 4 ranks: table 1's slices on 0 1 2 3, table 0's on 3 2: none meet; of 2 ranks with 2 tables of 2: 0 1 1 0 */
    args.strategy = DLRM_MEMORY_OPTIMIZED;
    make(&m, 2, (const int64_t[][2]){{100, 2}, {10, 16}}); /* 200 whole on rank 0; 80 + 80 both on rank 1: one slice again */
    args.column_slice = 200;
    place(&m, &args, 2, &p);
    assert_int_equal(p.n_slices, 2);
    args.column_slice = 100; /* 100 + 100 | 80 + 80 */
    dlrm_placement_clear(&p);
    make(&m, 2, (const int64_t[][2]){{1000, 1}, {10, 16}});
    place(&m, &args, 2, &p);
    assert_int_equal(p.n_slices, 2);
    assert_int_equal(p.slices[1].columns, 16);
    assert_int_equal(p.slices[1].owner, 1);
    dlrm_placement_clear(&p);
}

static void test_halving(void **state)
{
    (void)state;
    shapes m;
    dlrm_placement p;
    make(&m, 2, (const int64_t[][2]){{100, 16}, {50, 16}});
    for (int ranks = 1; ranks <= 24; ranks++)
        for (int s = DLRM_BASIC; s <= DLRM_MEMORY_OPTIMIZED; s++) {
            dlrm_placement_args args = plain;
            args.strategy = (dlrm_strategy)s;
            place(&m, &args, ranks, &p);
            for (int r = 0; r < ranks; r++)
                if (p.elements[r] == 0) fail_msg("%d ranks, strategy %d: rank %d has no work", ranks, s, r);
            if (ranks <= 2) assert_int_equal(p.n_slices, 2);
            dlrm_placement_clear(&p);
        }
    make(&m, 1, (const int64_t[][2]){{100, 2}}); /* no more columns than that */
    place(&m, &plain, 3, &p);
    assert_int_equal(p.n_slices, 2);
    dlrm_placement_clear(&p);
    make(&m, 2, (const int64_t[][2]){{100, 16}, {50, 16}}); /* rows give work to every rank: no need */
    dlrm_placement_args args = plain;
    args.row_slice = 1600;
    place(&m, &args, 8, &p);
    assert_int_equal(p.first_slice[1], 8);
    assert_int_equal(p.n_slices, 9);
    dlrm_placement_clear(&p);
}

static void test_rows(void **state)
{
    (void)state;
    shapes m;
    dlrm_placement p;
    make(&m, 3, (const int64_t[][2]){{100, 4}, {7, 200}, {80, 1}});
    dlrm_placement_args args = plain;
    args.row_slice = 400;
    place(&m, &args, 7, &p);
    assert_int_equal(p.first_slice[1], 7);
    assert_int_equal(p.first_slice[2], 14);
    for (int64_t row = 0; row < 100; row++) {
        const dlrm_slice *s = &p.slices[row % 7];
        assert_int_equal(s->first_row, row % 7);
        assert_int_equal(s->owner, row % 7);
        assert_true(row / 7 < s->rows);
    }
    assert_int_equal(p.slices[7].owner, 1); /* the second table's row 0: not with the first one's */
    assert_true(dlrm_placement_adds(&p, 0) && !dlrm_placement_adds(&p, 2));
    assert_int_equal(p.n_parts, 15);
    dlrm_placement_clear(&p);
    place(&m, &args, 8, &p); /* a rank without a row would not see the bags */
    assert_int_equal(p.slices[8].row_step, 1);
    dlrm_placement_clear(&p);
    args.data_parallel = 400; /* goes first */
    args.column_slice = 10;   /* comes last */
    place(&m, &args, 2, &p);
    assert_int_equal(p.slices[0].owner, DLRM_EVERY_RANK);
    assert_int_equal(p.slices[1].row_step, 2);
    dlrm_placement_clear(&p);
    m.inputs[1].hotness = 5; /* each id of a bag apart */
    args.unpooled = true;
    place(&m, &args, 2, &p);
    assert_int_equal(p.first_part[2] - p.first_part[1], 2);
    assert_int_equal(p.parts[p.first_part[1] + 1].vectors, 5);
    assert_int_equal(p.width[0], 1000);
    dlrm_placement_clear(&p);
}

/* Rows that travel as fp32 take two 16-bit elements each, begin at even ones, and overlap with nothing: those that are added, not
 * those of unpooled inputs, nor of bags of one id. */
static void test_exact_rows(void **state)
{
    (void)state;
    shapes m;
    dlrm_placement p;
    make(&m, 4, (const int64_t[][2]){{50, 3}, {7, 5}, {60, 7}, {50, 3}});
    m.inputs[2].hotness = m.inputs[3].hotness = 4;
    m.inputs[3].combiner = DLRM_UNPOOLED;
    dlrm_placement_args args = plain;
    args.row_slice = 150;
    args.unpooled = args.exact_rows = true;
    assert_int_equal(dlrm_placement_make(&m.spec, &args, 3, &p), DLRM_OK);
    int64_t end[3] = {0};
    int exact = 0;
    for (int i = 0; i < p.n_parts; i++) {
        const dlrm_vector_part *part = &p.parts[i];
        const dlrm_slice *s = &p.slices[part->slice];
        assert_int_equal(part->exact, part->input == 2);
        exact += part->exact;
        assert_true(part->column >= end[s->owner] && part->column <= end[s->owner] + 1);
        assert_true(!part->exact || part->column % 2 == 0);
        end[s->owner] = part->column + part->vectors * s->columns * (part->exact ? 2 : 1);
    }
    assert_int_equal(exact, 3);
    for (int r = 0; r < 3; r++) assert_int_equal(p.width[r], end[r] + end[r] % 2);
    dlrm_placement_clear(&p);
}

/* Each slice gives an unpooled input a vector for each id, wherever the table lies; others of the table one. */
static void test_unpooled(void **state)
{
    (void)state;
    shapes m;
    dlrm_placement p;
    make(&m, 3, (const int64_t[][2]){{5, 16}, {40, 16}, {100, 16}});
    for (int j = 0; j < 3; j++) {
        m.inputs[j].hotness = 3 + j;
        m.inputs[j].combiner = DLRM_UNPOOLED;
    }
    m.inputs[3] = (dlrm_input){.table = 1, .hotness = 7};
    m.spec.n_inputs = 4;
    dlrm_placement_args args = plain;
    args.data_parallel = 80;
    args.row_slice = 1600;
    args.column_slice = 320;
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        args.unpooled = deterministic;
        place(&m, &args, 2, &p); /* replicated; two column slices; two row slices */
        assert_int_equal(p.replicated_width, 3 * 16);
        for (int r = 0; r < 2; r++) assert_int_equal(p.width[r], 4 * 8 + 5 * 16 + 8);
        assert_int_equal(p.parts[p.first_part[1]].vectors, 4);
        assert_int_equal(p.parts[p.first_part[3]].vectors, 1);
        assert_int_equal(p.n_vectors, 3 + 2 * 4 + 2 * 5 + 2);
        dlrm_placement_clear(&p);
    }
}

/* Whatever the thresholds, a table with a vocabulary has all its rows where it is. */
static void test_vocabularies(void **state)
{
    (void)state;
    shapes m;
    dlrm_placement p;
    make(&m, 4, (const int64_t[][2]){{100, 4}, {7, 8}, {100, 8}, {50, 4}});
    m.tables[1].capacity = 6;
    m.tables[2].capacity = 99;
    for (int ranks = 1; ranks < 9; ranks++)
        for (int kind = 0; kind < 4; kind++) {
            dlrm_placement_args args = plain;
            args.strategy = kind == 3 ? DLRM_STRATEGY_AUTO : DLRM_MEMORY_BALANCED;
            args.data_parallel = kind == 0 ? 1000 : -1;
            args.row_slice = kind == 1 ? 1 : -1;
            args.column_slice = kind == 2 ? 50 : -1;
            args.work = (dlrm_placement_work){.batch = 64, .value_bytes = 4, .table_bytes = 4, .memory_rate = 1e9, .network_rate = 1e9, .sums_rate = 1e9};
            place(&m, &args, ranks, &p);
            for (int t = 1; t < 3; t++)
                for (int k = p.first_slice[t]; k < p.first_slice[t + 1]; k++) {
                    assert_int_equal(p.slices[k].rows, m.tables[t].rows);
                    assert_int_not_equal(p.slices[k].owner, DLRM_EVERY_RANK);
                }
            if (kind == 0 && ranks > 1) assert_int_equal(p.slices[p.first_slice[3]].owner, DLRM_EVERY_RANK);
            if (kind == 2 && ranks > 1) assert_true(p.first_slice[2] - p.first_slice[1] > 1);
            dlrm_placement_clear(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_strategies, no_blocks_left),
        cmocka_unit_test_teardown(test_replicated, no_blocks_left),
        cmocka_unit_test_teardown(test_columns, no_blocks_left),
        cmocka_unit_test_teardown(test_slices_meet, no_blocks_left),
        cmocka_unit_test_teardown(test_halving, no_blocks_left),
        cmocka_unit_test_teardown(test_rows, no_blocks_left),
        cmocka_unit_test_teardown(test_exact_rows, no_blocks_left),
        cmocka_unit_test_teardown(test_unpooled, no_blocks_left),
        cmocka_unit_test_teardown(test_vocabularies, no_blocks_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
