/* The references' own gradients against central differences of their forward passes: L = sum of out · c for random c.
 * In double, h = 1e-5, the differences agree to about 1e-9. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"
#include "ref.h"

enum { MOST = 400 };
static const double STEP = 1e-5;

static double uniform(uint64_t stream, int64_t i)
{
    dlrm_u32x4 u = dlrm_philox(99, stream, (uint64_t)i);
    return 2 * dlrm_unit_double(u.v[0], u.v[1]) - 1;
}

static void draw_all(uint64_t stream, double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) v[i] = uniform(stream, i);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* A function of one array of parameters, evaluated at `p`. */
typedef double (*function)(const double *p);

static int compare(const char *what, function f, double *p, int64_t n, const double *gradient)
{
    for (int64_t i = 0; i < n; i++) {
        double old = p[i], up, down;
        p[i] = old + STEP;
        up = f(p);
        p[i] = old - STEP;
        down = f(p);
        p[i] = old;
        double difference = (up - down) / (2 * STEP);
        if (fabs(difference - gradient[i]) <= 1e-7 * (1 + fabs(difference))) continue;
        printf("FAILED: reference of %s: gradient %lld is %.12g, the central difference %.12g\n", what, (long long)i,
               gradient[i], difference);
        return 1;
    }
    return 0;
}

/* --- linear: p = x, w, bias one after the other --- */

enum { LB = 5, LIN = 4, LOUT = 3, LX = LB * LIN, LW = LIN * LOUT };
static double linear_c[LB * LOUT];

static double linear(const double *p)
{
    double y[LB * LOUT];
    ref_linear_forward(LB, LIN, LOUT, p, p + LX, p + LX + LW, true, 0, y, NULL);
    return dot(y, linear_c, LB * LOUT);
}

static int check_linear(void)
{
    double p[LX + LW + LOUT], g[LX + LW + LOUT], y[LB * LOUT], dz[LB * LOUT];
    draw_all(1, p, LX + LW + LOUT);
    draw_all(2, linear_c, LB * LOUT);
    ref_linear_forward(LB, LIN, LOUT, p, p + LX, p + LX + LW, true, 0, y, NULL);
    for (int i = 0; i < LB * LOUT; i++) dz[i] = y[i] > 0 ? linear_c[i] : 0;
    ref_linear_input_gradient(LB, LIN, LOUT, p, false, p + LX, dz, NULL, 0, g, NULL);
    ref_linear_weight_gradient(LB, LIN, LOUT, p, dz, 0, g + LX, NULL, g + LX + LW, NULL);
    return compare("linear", linear, p, LX + LW + LOUT, g);
}

/* --- a cross layer: p = x0, z, x; and the first one, where x is x0 --- */

enum { CROSS = 6 };
static double cross_c[CROSS];

static double cross(const double *p)
{
    double y[CROSS];
    ref_cross_forward(CROSS, p, p + 2 * CROSS, p + CROSS, y, NULL);
    return dot(y, cross_c, CROSS);
}

static double first_cross(const double *p)
{
    double y[CROSS];
    ref_cross_forward(CROSS, p, p, p + CROSS, y, NULL);
    return dot(y, cross_c, CROSS);
}

static int check_cross(void)
{
    double p[3 * CROSS], g[3 * CROSS];
    draw_all(7, p, 3 * CROSS);
    draw_all(8, cross_c, CROSS);
    ref_cross_backward(CROSS, p, p + CROSS, cross_c, NULL, false, g + CROSS, NULL, g, NULL);
    memcpy(g + 2 * CROSS, cross_c, sizeof cross_c); /* x goes through */
    int failures = compare("cross", cross, p, 3 * CROSS, g);
    ref_cross_backward(CROSS, p, p + CROSS, cross_c, NULL, true, g + CROSS, NULL, g, NULL);
    return failures + compare("cross, first layer", first_cross, p, 2 * CROSS, g);
}

/* --- interaction: p = the vectors --- */

static struct {
    dlrm_interaction kind;
    int stride, n, widths[6];
} shape;
static double interact_c[MOST];

static int point_slots(const double *p, double *grad, ref_slot *slots)
{
    int at = 0;
    for (int i = 0; i < shape.n; at += shape.widths[i++])
        slots[i] = (ref_slot){.width = shape.widths[i], .v = p + at, .grad = grad ? grad + at : NULL};
    return at;
}

static double interact(const double *p)
{
    double out[MOST] = {0};
    ref_slot slots[6];
    point_slots(p, NULL, slots);
    ref_interact_forward(shape.kind, shape.stride, shape.n, slots, 0, out, NULL);
    return dot(out, interact_c, MOST);
}

static int check_interact(void)
{
    static const struct {
        dlrm_interaction kind;
        int stride, n, widths[6];
    } shapes[] = {{DLRM_DOT, 0, 5, {7, 7, 7, 7, 7}},
                  {DLRM_CAT, 0, 4, {3, 5, 1, 8}},
                  {DLRM_POOL, 4, 5, {3, 17, 9, 1, 18}},
                  {DLRM_POOL, 100, 3, {0, 5, 6}}};
    int failures = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        double p[MOST], g[MOST];
        ref_slot slots[6];
        memcpy(&shape, &shapes[k], sizeof shape);
        draw_all(3, p, MOST);
        draw_all(4, interact_c, MOST);
        int n = point_slots(p, g, slots);
        ref_interact_backward(shape.kind, shape.stride, false, shape.n, slots, interact_c, 0);
        failures += compare("interaction", interact, p, n, g);
    }
    return failures;
}

static double loss(const double *p)
{
    return ref_loss(p[0], 0) + ref_loss(p[1], 1) + ref_loss(p[2], 1) + ref_loss(p[3], 0);
}

static int check_loss(void)
{
    double p[] = {-1.3, 0.4, 5, 7}, g[4];
    for (int i = 0; i < 4; i++) g[i] = ref_loss_gradient(p[i], i == 1 || i == 2, 1, NULL);
    return compare("loss", loss, p, 4, g);
}

/* --- lookup: p = two tables, one shared by a mean and two vectors of unpooled ids --- */

enum { ROWS0 = 6, DIM0 = 3, ROWS1 = 4, DIM1 = 2, BAGS = 4, WIDTH = 3 * DIM0 + DIM1 };
static dlrm_table_shard tables[] = {{.rows = ROWS0, .dim = DIM0}, {.rows = ROWS1, .dim = DIM1}};
static dlrm_shard_input inputs[] = {{.table = 0, .hotness = 1, .vectors = 2, .column = 0},
                                    {.table = 1, .hotness = 1, .vectors = 1, .column = 2 * DIM0},
                                    {.table = 0, .hotness = 3, .vectors = 1, .variable = true, .mean = true, .column = 2 * DIM0 + DIM1}};
static const dlrm_shard shard = {.n_tables = 2, .n_inputs = 3, .tables = tables, .inputs = inputs, .width = WIDTH};
static const uint32_t ids0[] = {0, 0, 5, 1, 2, 0, 1, 1}, ids1[] = {3, 0, 3, 1}, ids2[] = {0, 1, 1, 4, 0};
static const int64_t offsets2[] = {0, 3, 3, 4, 5};
static const dlrm_bags bags[] = {{.ids = ids0, .count = 8}, {.ids = ids1, .count = 4}, {.ids = ids2, .offsets = offsets2, .count = 5}};
static double lookup_c[BAGS * WIDTH];

static double lookup(const double *p)
{
    double pooled[BAGS * WIDTH];
    ref_lookup(&shard, (const double *[]){p, p + ROWS0 * DIM0}, BAGS, bags, pooled, NULL);
    return dot(pooled, lookup_c, BAGS * WIDTH);
}

static int check_lookup(void)
{
    double p[ROWS0 * DIM0 + ROWS1 * DIM1], g[ROWS0 * DIM0 + ROWS1 * DIM1] = {0};
    int64_t touched[2][ROWS0] = {{0}};
    draw_all(5, p, ROWS0 * DIM0 + ROWS1 * DIM1);
    draw_all(6, lookup_c, BAGS * WIDTH);
    ref_table_gradient(&shard, 0, BAGS, bags, lookup_c, g, NULL, touched[0]);
    ref_table_gradient(&shard, 1, BAGS, bags, lookup_c, g + ROWS0 * DIM0, NULL, touched[1]);
    if (touched[0][3] != 0 || touched[0][0] != 5) {
        printf("FAILED: reference of lookup: row 3 touched %lld times, row 0 %lld times\n", (long long)touched[0][3],
               (long long)touched[0][0]);
        return 1;
    }
    return compare("lookup", lookup, p, ROWS0 * DIM0 + ROWS1 * DIM1, g);
}

int check_gradients(void)
{
    return check_linear() + check_cross() + check_interact() + check_loss() + check_lookup();
}
