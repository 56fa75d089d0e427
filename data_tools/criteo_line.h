/* One line of Criteo's raw text: label, I1…I13 (decimal, may be empty or negative), C1…C26 (hexadecimal hashes of at
 * most 8 digits, may be empty), 40 fields with a tab between them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CRITEO_DENSE = 13, CRITEO_IDS = 26, CRITEO_FIELDS = 1 + CRITEO_DENSE + CRITEO_IDS, CRITEO_MAX_LINE = 4096 };
/* Rows of Terabyte's last day that MLPerf scores: its first half, rounded up. */
enum { CRITEO_TERABYTE_TEST_ROWS = 89137319, CRITEO_LONGEST_PRINT = CRITEO_FIELDS * 12 };

typedef struct dlrm_criteo_row {
    uint8_t label;
    uint32_t dense_missing, ids_missing; /* bit j: the field is empty; its value is then 0 */
    int32_t dense[CRITEO_DENSE];
    uint32_t ids[CRITEO_IDS];
} dlrm_criteo_row;

/* `line` without its "\n"; a "\r" at its end is dropped. False: malformed, and *row is not to be used. Reads no byte
 * beyond the line. */
bool dlrm_criteo_parse(const char *line, size_t bytes, dlrm_criteo_row *row);

/* Writes the line of a row, "\n" included, hashes with 8 digits; returns where it ends, at most CRITEO_LONGEST_PRINT bytes
 * on. */
char *dlrm_criteo_print(const dlrm_criteo_row *row, char *line);

/* Why dlrm_criteo_parse refuses this line; values are quoted, with bytes that do not print escaped and long ones cut. */
void dlrm_criteo_explain(const char *line, size_t bytes, char *out, size_t out_bytes);

#ifdef __cplusplus
}
#endif
