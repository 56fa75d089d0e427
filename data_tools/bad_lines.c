/* Malformed lines: counted, the first ones by file and line kept with the reason, whatever thread met them. */
#include <stdio.h>
#include <string.h>

#include "convert.h"

void dlrm_bad_lines_add(dlrm_bad_lines *b, uint64_t number, const char *line, size_t bytes)
{
    pthread_mutex_lock(&b->lock);
    b->bad++;
    int at = b->n;
    while (at > 0 && b->first[at - 1].number > number) at--;
    if (at < DLRM_BAD_SHOWN) {
        int kept = b->n < DLRM_BAD_SHOWN ? b->n : DLRM_BAD_SHOWN - 1;
        memmove(&b->first[at + 1], &b->first[at], (size_t)(kept - at) * sizeof *b->first);
        b->first[at].number = number;
        dlrm_criteo_explain(line, bytes, b->first[at].reason, sizeof b->first[at].reason);
        b->n = kept + 1;
    }
    pthread_mutex_unlock(&b->lock);
}

static dlrm_status too_many(const dlrm_bad_lines *b, const dlrm_convert_options *o)
{
    return FAIL(DLRM_E_INPUT, "%lld of %lld lines are malformed, more than --max-bad-share %g allows",
                (long long)b->bad, (long long)b->lines, o->max_bad_share);
}

static void name_first(const dlrm_bad_lines *b, const dlrm_convert_options *o)
{
    for (int i = 0; i < b->n; i++) {
        uint64_t number = b->first[i].number;
        fprintf(stderr, "dlrm_data: %s:%lld: %s\n", o->paths[dlrm_row_file(number)],
                (long long)dlrm_row_line(number) + 1, b->first[i].reason);
    }
}

dlrm_status dlrm_bad_lines_count(dlrm_bad_lines *b, const dlrm_convert_options *o, int64_t lines)
{
    enum { ENOUGH = 1000, MANY_TIMES = 10 };
    pthread_mutex_lock(&b->lock);
    b->lines += lines;
    dlrm_status st = DLRM_OK;
    if (b->bad > ENOUGH && (double)b->bad > MANY_TIMES * o->max_bad_share * (double)b->lines) {
        if (!b->hopeless) name_first(b, o); /* other threads may come here too */
        b->hopeless = true;
        st = too_many(b, o);
    }
    pthread_mutex_unlock(&b->lock);
    return st;
}

dlrm_status dlrm_bad_lines_judge(dlrm_bad_lines *b, const dlrm_convert_options *o)
{
    name_first(b, o);
    if ((double)b->bad > o->max_bad_share * (double)b->lines) return too_many(b, o);
    if (b->bad == b->lines) /* whatever the share allows, or packed files of no text */
        return FAIL(DLRM_E_INPUT, "found no row of Criteo's text in %lld lines, expected at least one", (long long)b->lines);
    return DLRM_OK;
}
