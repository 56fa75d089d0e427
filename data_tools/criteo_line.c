/* The parser is the hot loop of the text pass: the usual 8-digit hash is one 8-byte load, checked and converted with
 * whole-word arithmetic; everything else goes digit by digit. */
#include "criteo_line.h"

#include <stdio.h>
#include <string.h>

/* Each function below reads a field at *at, which must end at a tab or at `end`, and leaves *at there. */

static bool parse_label(const char **at, const char *end, uint8_t *out)
{
    const char *p = *at;
    if (p == end || (*p != '0' && *p != '1')) return false;
    *out = (uint8_t)(*p - '0');
    *at = p + 1;
    return true;
}

/* Refuses what does not fit 32 bits. */
static bool parse_int(const char **at, const char *end, int32_t *out)
{
    const char *p = *at;
    bool negative = p != end && *p == '-';
    if (negative) p++;
    const char *first = p;
    int64_t v = 0;
    for (; p != end && (unsigned)(*p - '0') < 10; p++) {
        v = v * 10 + (*p - '0');
        if (v > (int64_t)INT32_MAX + 1) return false;
    }
    if (negative) v = -v;
    if (p == first || v > INT32_MAX) return false;
    *out = (int32_t)v;
    *at = p;
    return true;
}

/* Eight lower-case hexadecimal digits at p. The digits are decoded without a check, encoded again and compared. */
static bool hex8(const char *p, uint32_t *out)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t text, v;
    memcpy(&text, p, sizeof text);
    v = (text & 15 * ones) + (text >> 6 & ones) * 9;
    uint64_t letters = (v + 6 * ones) >> 4 & ones;
    if (v & 16 * ones || v + '0' * ones + letters * ('a' - '0' - 10) != text) return false;
    v = __builtin_bswap64(v);
    v = (v | v >> 4) & 0x00FF00FF00FF00FFu;
    v = (v | v >> 8) & 0x0000FFFF0000FFFFu;
    *out = (uint32_t)(v | v >> 16);
    return true;
}

static bool parse_hex(const char **at, const char *end, uint32_t *out)
{
    const char *p = *at;
    if (end - p >= 8 && (end - p == 8 || p[8] == '\t') && hex8(p, out)) {
        *at = p + 8;
        return true;
    }
    const char *first = p;
    uint32_t v = 0;
    for (; p != end && p - first < 8; p++) {
        unsigned decimal = (unsigned)(*p - '0'), letter = (unsigned)((*p | 0x20) - 'a');
        if (decimal < 10) {
            v = v << 4 | decimal;
        } else if (letter < 6) {
            v = v << 4 | (letter + 10);
        } else {
            break;
        }
    }
    if (p == first) return false;
    *out = v;
    *at = p;
    return true;
}

static const char *without_cr(const char *line, size_t bytes)
{
    const char *end = line + bytes;
    return bytes > 0 && end[-1] == '\r' ? end - 1 : end;
}

/* The number of the first field that is wrong, or CRITEO_FIELDS. */
static int parse_fields(const char *line, const char *end, dlrm_criteo_row *row)
{
    const char *p = line;
    row->dense_missing = row->ids_missing = 0;
    if (!parse_label(&p, end, &row->label) || p == end || *p != '\t') return 0;
    for (int j = 0; j < CRITEO_DENSE; j++) {
        p++;
        row->dense[j] = 0;
        if (p != end && *p == '\t')
            row->dense_missing |= 1u << j;
        else if (!parse_int(&p, end, &row->dense[j]) || p == end || *p != '\t')
            return 1 + j;
    }
    for (int j = 0; j < CRITEO_IDS; j++) {
        p++;
        row->ids[j] = 0;
        if (p == end || *p == '\t')
            row->ids_missing |= 1u << j;
        else if (!parse_hex(&p, end, &row->ids[j]))
            return 1 + CRITEO_DENSE + j;
        bool last = j == CRITEO_IDS - 1;
        if (last ? p != end : p == end || *p != '\t') return 1 + CRITEO_DENSE + j;
    }
    return CRITEO_FIELDS;
}

bool dlrm_criteo_parse(const char *line, size_t bytes, dlrm_criteo_row *row)
{
    return bytes <= CRITEO_MAX_LINE && parse_fields(line, without_cr(line, bytes), row) == CRITEO_FIELDS;
}

static void quote(const char *text, size_t bytes, char *out, size_t out_bytes)
{
    enum { SHOWN = 24 };
    size_t at = 0;
    for (size_t i = 0; i < bytes && i < SHOWN && at + 8 < out_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c < 0x7F && c != '\\')
            out[at++] = (char)c;
        else
            at += (size_t)snprintf(out + at, out_bytes - at, "\\x%02x", c);
    }
    snprintf(out + at, out_bytes - at, "%s", bytes > SHOWN ? "..." : "");
}

void dlrm_criteo_explain(const char *line, size_t bytes, char *out, size_t out_bytes)
{
    const char *end = without_cr(line, bytes), *field = line;
    int fields = 1;
    if (bytes > CRITEO_MAX_LINE) {
        snprintf(out, out_bytes, "the line is longer than %d bytes", CRITEO_MAX_LINE);
        return;
    }
    for (const char *p = line; p != end; p++) fields += *p == '\t';
    if (fields != CRITEO_FIELDS) {
        snprintf(out, out_bytes, "%d field%s, expected %d%s", fields, fields == 1 ? "" : "s", CRITEO_FIELDS,
                 fields == CRITEO_FIELDS - 1 ? " (is the label missing, as in Kaggle's test.txt?)" : "");
        return;
    }
    dlrm_criteo_row row;
    int bad = parse_fields(line, end, &row);
    for (int j = 0; j < bad; j++) field = (const char *)memchr(field, '\t', (size_t)(end - field)) + 1;
    const char *stop = bad < CRITEO_FIELDS - 1 ? memchr(field, '\t', (size_t)(end - field)) : end;
    char text[128];
    quote(field, (size_t)(stop - field), text, sizeof text);
    if (bad == 0)
        snprintf(out, out_bytes, "field 1 (label): \"%s\", expected 0 or 1", text);
    else if (bad <= CRITEO_DENSE)
        snprintf(out, out_bytes, "field %d (I%d): \"%s\", expected a 32-bit integer or nothing", bad + 1, bad, text);
    else
        snprintf(out, out_bytes, "field %d (C%d): \"%s\", expected at most 8 hexadecimal digits or nothing", bad + 1,
                 bad - CRITEO_DENSE, text);
}

static const char hex_digits[] = "0123456789abcdef";

static char *put_int(char *p, int32_t v)
{
    char digits[12];
    int n = 0;
    int64_t rest = v;
    if (rest < 0) {
        *p++ = '-';
        rest = -rest;
    }
    do digits[n++] = (char)('0' + rest % 10);
    while (rest /= 10);
    while (n > 0) *p++ = digits[--n];
    return p;
}

char *dlrm_criteo_print(const dlrm_criteo_row *row, char *p)
{
    *p++ = (char)('0' + row->label);
    for (int j = 0; j < CRITEO_DENSE; j++) {
        *p++ = '\t';
        if (!(row->dense_missing >> j & 1)) p = put_int(p, row->dense[j]);
    }
    for (int k = 0; k < CRITEO_IDS; k++) {
        *p++ = '\t';
        for (int shift = 28; !(row->ids_missing >> k & 1) && shift >= 0; shift -= 4) *p++ = hex_digits[row->ids[k] >> shift & 15];
    }
    *p++ = '\n';
    return p;
}
