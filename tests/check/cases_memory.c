/* alloc, release, upload, download, fill, table_init, close. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"
#include "ref.h"

static void check_alloc(harness *h)
{
    dlrm_backend *be = h_backend(h);
    float *p, *empty;
    static const float three[] = {1, -2, 3};
    float back[5];
    if (be->ops->alloc(be, 5, sizeof *p, "five", &p) != DLRM_OK) h_fail(h, "alloc: %s", dlrm_error_message());
    if (be->ops->alloc(be, 0, sizeof *p, "none", &empty) != DLRM_OK) h_fail(h, "alloc of nothing: %s", dlrm_error_message());
    memset(back, 0xFF, sizeof back);
    be->ops->download(be, back, p, sizeof back);
    for (int i = 0; i < 5; i++)
        if (back[i] != 0) h_fail(h, "fresh memory is %g at %d", (double)back[i], i);
    be->ops->upload(be, p + 1, three, sizeof three);
    be->ops->download(be, back, p, sizeof back);
    for (int i = 0; i < 5; i++)
        if (back[i] != (i > 0 && i < 4 ? three[i - 1] : 0)) h_fail(h, "uploaded memory is %g at %d", (double)back[i], i);
    be->ops->release(be, &p);
    be->ops->release(be, &empty);
    if (p || empty) h_fail(h, "release leaves the pointer");
    be->ops->release(be, &p);
    if (be->ops->alloc(be, INT64_C(1) << 61, 8, "too much", &p) == DLRM_OK) h_fail(h, "an impossible size was allocated");
    if (!strstr(dlrm_error_message(), "too much")) h_fail(h, "message '%s' does not say for what", dlrm_error_message());
}

static void check_fill(harness *h, int64_t n)
{
    float *p = h_output(h, "filled", n);
    double *ref = h_doubles(h, n), *tol = h_doubles(h, n);
    h_backend(h)->ops->fill(h_backend(h), p, n, 0.1f);
    for (int64_t i = 0; i < n; i++) ref[i] = (double)0.1f;
    h_compare(h, p, ref, tol);
}

/* Elements [first, first+n) of a table with this scale: where a slice begins must not matter. */
static void check_table_init(harness *h, int64_t first, int64_t n)
{
    const double scale = 1 / sqrt(12345.0);
    float *p = h_output(h, "table", n);
    const dlrm_table_init_args args = {.weight = p, .first = first, .n = n, .seed = 11, .stream = dlrm_rng_stream("table.C1.weight"),
                                       .scale = scale};
    h_backend(h)->ops->table_init(h_backend(h), &args);
    double *ref = h_doubles(h, n), *tol = h_doubles(h, n), sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        ref[i] = (2 * (double)dlrm_rng_uniform(11, args.stream, (uint64_t)(first + i)) - 1) * scale;
        tol[i] = ref_bound(2, fabs(ref[i]), ref[i]);
        sum += ref[i] / scale;
        squares += ref[i] / scale * (ref[i] / scale);
    }
    h_compare(h, p, ref, tol);
    if (n >= 10000 && (fabs(sum / (double)n) > 0.02 || fabs(squares / (double)n - 1.0 / 3) > 0.02))
        h_fail(h, "not uniform: mean %g, mean square %g of the scale", sum / (double)n, squares / (double)n);
}

static void run(harness *h, int number, char *label, size_t bytes)
{
    static const int64_t fills[] = {1, 17, 4096, 100001};
    static const struct {
        int64_t first, n;
    } inits[] = {{0, 1}, {0, 20000}, {3, 17}, {(INT64_C(1) << 33) + 1, 1000}};
    if (number == 0) {
        snprintf(label, bytes, "alloc");
        check_alloc(h);
    } else if (number <= 4) {
        snprintf(label, bytes, "fill %lld", (long long)fills[number - 1]);
        check_fill(h, fills[number - 1]);
    } else {
        snprintf(label, bytes, "table_init from %lld, %lld elements", (long long)inits[number - 5].first, (long long)inits[number - 5].n);
        check_table_init(h, inits[number - 5].first, inits[number - 5].n);
    }
}

const family memory_family = {
    "memory",
    {SLOT(alloc), SLOT(release), SLOT(upload), SLOT(download), SLOT(fill), SLOT(table_init), SLOT(close)},
    false,
    9,
    run};
