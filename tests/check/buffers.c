/* Memory of a case: random values, backend buffers between canaries, what comes back from them. */
#include "buffers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"

static const unsigned char CANARY = 0xC5;

static void must(dlrm_status st)
{
    if (st == DLRM_OK) return;
    printf("FAILED: %s\n", dlrm_error_message());
    exit(1);
}

void h_open(harness *h)
{
    const dlrm_backend_args args = {.threads = h->subject->threads,
                                    .pinned = h->subject->pinned,
                                    .max_width = 1024,
                                    .max_leaves = 64,
                                    .max_slots = 40,
                                    .max_vector = 300,
                                    .precision = h->subject->precision,
                                    .max_batch = H_BATCH,
                                    .dense_features = H_DENSE,
                                    .seed = 1};
    must(h->subject->open(&args, &h->be));
}

void h_close(harness *h)
{
    if (h->weights) h->be.ops->release(&h->be, &h->weights);
    h->be.ops->close(&h->be);
}

/* --- types --- */

static size_t size_of(element t)
{
    return t == F64 ? 8 : t == F32 ? 4 : t == OTHER ? 1 : 2;
}

static element element_of(dlrm_dtype t)
{
    return t == DLRM_BF16 ? BF16 : t == DLRM_FP16 ? F16 : F32;
}

static element act_type(const harness *h)
{
    return element_of(h->be.act);
}

/* To nearest, ties to even, for values in the type's range. */
static float round_to(element t, float v)
{
    if ((t != BF16 && t != F16) || v == 0 || !isfinite(v)) return v;
    int bits = t == BF16 ? 8 : 11, exponent = ilogbf(v), least = t == BF16 ? -126 : -14;
    float unit = ldexpf(1, (exponent < least ? least : exponent) - bits + 1);
    return rintf(v / unit) * unit;
}

static void put(element t, double v, void *at)
{
    float f = (float)v, magnitude = fabsf(f);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t half = (uint16_t)(bits >> 16);
    if (t == F16) { /* a value that F16 holds: rounded before; or a NaN */
        half = (uint16_t)(bits >> 16 & 0x8000);
        if (isnan(f))
            half |= 0x7E00;
        else if (isinf(f))
            half |= 0x7C00;
        else if (magnitude < 0x1p-14f)
            half |= (uint16_t)(magnitude * 0x1p24f);
        else
            half |= (uint16_t)((bits >> 13 & 0x3FFFF) - (112 << 10));
    }
    if (t == F64)
        memcpy(at, &v, sizeof v);
    else if (t == F32)
        memcpy(at, &f, sizeof f);
    else
        memcpy(at, &half, sizeof half);
}

static double get(element t, const void *at)
{
    float f;
    double d;
    uint16_t half;
    switch (t) {
    case F64:
        memcpy(&d, at, sizeof d);
        return d;
    case F32:
        memcpy(&f, at, sizeof f);
        return (double)f;
    case BF16:
        memcpy(&half, at, sizeof half);
        return (double)dlrm_float_of_bf16(half);
    case F16:
        memcpy(&half, at, sizeof half);
        return (double)dlrm_float_of_f16(half);
    case OTHER:
        break;
    }
    DLRM_ASSERT(!"a buffer of numbers");
    return 0;
}

static double unit_roundoff(element t)
{
    return t == BF16 ? 0x1p-8 : t == F16 ? 0x1p-11 : 0;
}

double h_operand_rounding(const harness *h, bool weights)
{
    if (h->subject->precision == DLRM_TF32) return 2 * 0x1p-11;
    return weights ? unit_roundoff(act_type(h)) : 0;
}

double h_vector_rounding(const harness *h, dlrm_dtype type)
{
    return type == h->be.act ? h_operand_rounding(h, false) : h_operand_rounding(h, false) + 2 * unit_roundoff(act_type(h));
}

/* --- host memory --- */

void *h_host(harness *h, int64_t n, size_t size)
{
    DLRM_ASSERT(h->n_blocks < MOST_BLOCKS);
    must(dlrm_alloc(n, size, "a case", &h->blocks[h->n_blocks]));
    return h->blocks[h->n_blocks++];
}

double *h_doubles(harness *h, int64_t n)
{
    return h_host(h, n, sizeof(double));
}

double *h_widen(harness *h, const float *v, int64_t n)
{
    double *wide = h_doubles(h, n);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)v[i];
    return wide;
}

static uint32_t random_bits(harness *h)
{
    return dlrm_philox(h->seed, 7, h->drawn++).v[0];
}

float *h_draw(harness *h, int64_t n, draw kind)
{
    float *v = h_host(h, n, sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        float u = dlrm_unit_float(random_bits(h)), s = 2 * u - 1;
        switch (kind) {
        case SIGNED:
            v[i] = s;
            break;
        case POSITIVE:
            v[i] = u;
            break;
        case RELU:
            v[i] = s > 0 ? s : 0;
            break;
        case WIDE:
            v[i] = s * exp2f((float)(random_bits(h) % 24) - 12);
            break;
        case INTEGERS:
            v[i] = floorf(u * 17) - 8;
            break;
        }
    }
    return v;
}

float *h_draw_as(harness *h, dlrm_dtype type, int64_t n, draw kind)
{
    float *v = h_draw(h, n, kind);
    for (int64_t i = 0; i < n; i++) v[i] = round_to(element_of(type), v[i]);
    return v;
}

float *h_draw_act(harness *h, int64_t n, draw kind)
{
    return h_draw_as(h, h->be.act, n, kind);
}

int64_t h_integer(harness *h, int64_t below)
{
    return (int64_t)(random_bits(h) % (uint64_t)below);
}

/* --- backend memory --- */

/* values: [rows][width] fp32, or NULL for NaN; of OTHER type: the bytes themselves. The padding is 0. */
static void make_image(const buffer *b, const void *values, unsigned char *image)
{
    const size_t size = size_of(b->type);
    if (b->type == OTHER && b->bytes) memcpy(image, values, b->bytes);
    for (int64_t r = 0; b->type != OTHER && r < b->rows; r++)
        for (int64_t i = 0; i < b->pitch; i++) {
            double v = i >= b->width ? 0 : values ? (double)((const float *)values)[r * b->width + i] : NAN;
            put(b->type, v, image + (size_t)(r * b->pitch + i) * size);
        }
}

static void *add_buffer(harness *h, buffer b, const void *values)
{
    DLRM_ASSERT(h->n_buffers < MOST_BUFFERS);
    b.bytes = (size_t)(b.rows * b.pitch) * size_of(b.type);
    unsigned char *image = malloc(b.bytes + 2 * GUARD);
    DLRM_ASSERT(image);
    memset(image, CANARY, b.bytes + 2 * GUARD);
    make_image(&b, values, image + GUARD);
    must(h->be.ops->alloc(&h->be, (int64_t)b.bytes + 2 * GUARD, 1, b.name, &b.block));
    h->be.ops->upload(&h->be, b.block, image, b.bytes + 2 * GUARD);
    b.data = b.block + GUARD;
    if (b.role == INPUT)
        b.before = image;
    else
        free(image);
    h->buffers[h->n_buffers++] = b;
    return b.data;
}

static void *add_flat(harness *h, const char *name, role r, element t, const void *values, int64_t n)
{
    return add_buffer(h, (buffer){.name = name, .role = r, .type = t, .rows = 1, .width = n, .pitch = n}, values);
}

static void *add_rows(harness *h, const char *name, role r, element t, const void *values, int64_t rows, int64_t width)
{
    return add_buffer(
        h,
        (buffer){
            .name = name, .role = r, .type = t, .rows = rows, .width = width, .pitch = dlrm_pitch(&h->be, (int)width)},
        values);
}

void *h_input(harness *h, const char *name, const void *values, int64_t n, size_t size)
{
    return add_flat(h, name, INPUT, OTHER, values, n * (int64_t)size);
}

float *h_inout(harness *h, const char *name, const float *values, int64_t n)
{
    return add_flat(h, name, INOUT, F32, values, n);
}

void *h_input_as(harness *h, const char *name, dlrm_dtype type, const float *values, int64_t n)
{
    return add_flat(h, name, INPUT, element_of(type), values, n);
}

void *h_output_as(harness *h, const char *name, dlrm_dtype type, int64_t n)
{
    return add_flat(h, name, OUTPUT, element_of(type), NULL, n);
}

void *h_inout_as(harness *h, const char *name, dlrm_dtype type, const float *values, int64_t n)
{
    return add_flat(h, name, INOUT, element_of(type), values, n);
}

float *h_output(harness *h, const char *name, int64_t n)
{
    return add_flat(h, name, OUTPUT, F32, NULL, n);
}

double *h_output_doubles(harness *h, const char *name, int64_t n)
{
    return add_flat(h, name, OUTPUT, F64, NULL, n);
}

void *h_act_input(harness *h, const char *name, const float *values, int64_t rows, int64_t width)
{
    return add_rows(h, name, INPUT, act_type(h), values, rows, width);
}

void *h_act_inout(harness *h, const char *name, const float *values, int64_t rows, int64_t width)
{
    return add_rows(h, name, INOUT, act_type(h), values, rows, width);
}

void *h_act_output(harness *h, const char *name, int64_t rows, int64_t width)
{
    return add_rows(h, name, OUTPUT, act_type(h), NULL, rows, width);
}

/* The backend's one array of weights, of n elements. */
static buffer *open_weights(harness *h, role r, int64_t n)
{
    DLRM_ASSERT(!h->weights && h->n_buffers < MOST_BUFFERS);
    must(h->be.ops->weights_open(&h->be, n, &h->weights));
    buffer *b = &h->buffers[h->n_buffers++];
    *b = (buffer){.name = "weights",
                  .role = r,
                  .type = F32,
                  .data = h->weights,
                  .rows = 1,
                  .width = n,
                  .pitch = n,
                  .bytes = (size_t)n * sizeof(float)};
    return b;
}

float *h_weights(harness *h, const float *values, int64_t n)
{
    open_weights(h, INOUT, n);
    h->be.ops->upload(&h->be, h->weights, values, (size_t)n * sizeof *values);
    h->be.ops->weights_changed(&h->be);
    return h->weights;
}

void h_layers(harness *h, layer *layers, int n)
{
    enum { ROOM = 1 << 19 };
    float *image = malloc(ROOM * sizeof *image);
    DLRM_ASSERT(image);
    buffer *b = open_weights(h, INPUT, ROOM);
    int64_t at = 0;
    for (layer *l = layers; l < layers + n; l++) {
        const int64_t rows = dlrm_pitch(&h->be, (int)l->out), pitch = dlrm_pitch(&h->be, (int)l->in);
        DLRM_ASSERT(at + rows * (pitch + 1) <= ROOM);
        memset(image + at, 0, (size_t)(rows * (pitch + 1)) * sizeof *image);
        for (int64_t o = 0; o < l->out; o++)
            memcpy(image + at + o * pitch, l->w + o * l->in, (size_t)l->in * sizeof *image);
        memcpy(image + at + rows * pitch, l->bias, (size_t)l->out * sizeof *image);
        l->at_w = h->weights + at;
        l->at_bias = h->weights + at + rows * pitch;
        at += rows * (pitch + 1);
    }
    while (at < ROOM) image[at++] = NAN; /* not to be read */
    h->be.ops->upload(&h->be, h->weights, image, b->bytes);
    h->be.ops->weights_changed(&h->be);
    b->before = (unsigned char *)image;
}

/* --- what comes back --- */

static const buffer *find_buffer(const harness *h, const void *data)
{
    for (int i = 0; i < h->n_buffers; i++)
        if (h->buffers[i].data == data) return &h->buffers[i];
    DLRM_ASSERT(!"a buffer of this case");
    return NULL;
}

double *h_fetch(harness *h, const void *data)
{
    const buffer *b = find_buffer(h, data);
    const size_t size = size_of(b->type);
    double *v = h_doubles(h, b->rows * b->width);
    unsigned char *image = malloc(b->bytes + 1);
    DLRM_ASSERT(image);
    h->be.ops->download(&h->be, image, data, b->bytes);
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t i = 0; i < b->pitch; i++) {
            double x = get(b->type, image + (size_t)(r * b->pitch + i) * size);
            if (i < b->width)
                v[r * b->width + i] = x;
            else if (x != 0)
                h_fail(h, "%s: the padding of row %lld holds %g", b->name, (long long)r, x);
        }
    free(image);
    return v;
}

static void digest_of(harness *h, double got)
{
    for (int k = 0; k < 8; k++) h->digest = (h->digest ^ ((const unsigned char *)&got)[k]) * 0x100000001B3u;
}

void h_compare(harness *h, const void *data, const double *ref, const double *tol)
{
    const buffer *b = find_buffer(h, data);
    const double *got = h_fetch(h, data);
    for (int64_t i = 0; i < b->rows * b->width; i++) {
        digest_of(h, got[i]);
        double off = fabs(got[i] - ref[i]), most = tol[i] > 0 ? tol[i] + 2 * unit_roundoff(b->type) * fabs(ref[i]) : 0;
        if (isnan(ref[i]) ? isnan(got[i]) : off <= most || got[i] == (double)round_to(b->type, (float)ref[i])) continue;
        h_fail(h, "%s[%lld]: got %.9g, reference %.9g, off by %.3g = %.3g tolerances", b->name, (long long)i, got[i],
               ref[i], off, off / most);
    }
}

void h_compare_between(harness *h, const void *data, const double *low, const double *high)
{
    const buffer *b = find_buffer(h, data);
    const double *got = h_fetch(h, data);
    for (int64_t i = 0; i < b->rows * b->width; i++) {
        digest_of(h, got[i]);
        if (got[i] >= fmin(low[i], high[i]) && got[i] <= fmax(low[i], high[i])) continue;
        h_fail(h, "%s[%lld]: got %.9g, expected from %.9g to %.9g", b->name, (long long)i, got[i], low[i], high[i]);
    }
}

static void check_unchanged(harness *h, const buffer *b)
{
    const size_t guard = b->block ? GUARD : 0;
    unsigned char *now = malloc(b->bytes + 2 * guard + 1);
    DLRM_ASSERT(now);
    h->be.ops->download(&h->be, now, (char *)b->data - guard, b->bytes + 2 * guard);
    for (size_t i = 0; i < guard; i++) {
        if (now[i] != CANARY) h_fail(h, "%s: written %zu bytes before its begin", b->name, guard - i);
        if (now[guard + b->bytes + i] != CANARY) h_fail(h, "%s: written %zu bytes behind its end", b->name, i + 1);
    }
    if (b->before && memcmp(now, b->before, b->bytes + 2 * guard) != 0) h_fail(h, "%s: an input was changed", b->name);
    free(now);
}

void h_end_case(harness *h)
{
    while (h->n_buffers > 0) {
        buffer *b = &h->buffers[--h->n_buffers];
        check_unchanged(h, b);
        if (b->block) h->be.ops->release(&h->be, &b->block);
        free(b->before);
    }
    while (h->n_blocks > 0) dlrm_free(&h->blocks[--h->n_blocks]);
}
