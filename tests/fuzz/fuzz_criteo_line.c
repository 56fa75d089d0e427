/* Criteo lines: the parser must read nothing beyond the line, and whatever it refuses must have a reason. What it
 * accepts it must accept again, with the same values, when written out from them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "criteo_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    dlrm_criteo_row row, again;
    char text[1024];
    memset(&row, 0, sizeof row);
    memset(&again, 0, sizeof again);
    if (bytes == 0) data = (const uint8_t *)"";
    if (memchr(data, '\n', bytes)) return 0; /* not a line */
    if (!dlrm_criteo_parse((const char *)data, bytes, &row)) {
        dlrm_criteo_explain((const char *)data, bytes, text, sizeof text);
        if (!*text) abort();
        return 0;
    }
    int n = sprintf(text, "%d", row.label);
    for (int j = 0; j < CRITEO_DENSE; j++)
        n += row.dense_missing >> j & 1 ? sprintf(text + n, "\t") : sprintf(text + n, "\t%d", row.dense[j]);
    for (int k = 0; k < CRITEO_IDS; k++)
        n += row.ids_missing >> k & 1 ? sprintf(text + n, "\t") : sprintf(text + n, "\t%x", row.ids[k]);
    if (!dlrm_criteo_parse(text, (size_t)n, &again) || memcmp(&row, &again, sizeof row) != 0) abort();
    return 0;
}
