#include "findings.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"

dlrm_status dlrm_found(dlrm_findings *to, const void *place, const char *kind, const char *fmt, ...)
{
    char message[sizeof to->list->first];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (!to) return FAIL(DLRM_E_INPUT, "%s", message);
    to->all++;
    for (int i = 0; i < to->n; i++)
        if (to->list[i].place == place && to->list[i].kind == kind) {
            to->list[i].count++;
            return DLRM_OK;
        }
    if (to->n < DLRM_FINDINGS) {
        dlrm_finding *f = &to->list[to->n++];
        *f = (dlrm_finding){.place = place, .kind = kind, .count = 1};
        snprintf(f->first, sizeof f->first, "%s", message);
    }
    return DLRM_OK;
}

void dlrm_findings_print(const dlrm_findings *f)
{
    int64_t listed = 0;
    for (int i = 0; i < f->n; i++) {
        const dlrm_finding *one = &f->list[i];
        listed += one->count;
        if (one->count == 1)
            dlrm_info("problem: %s", one->first);
        else
            dlrm_info("problem: %s (and %lld more: %s)", one->first, (long long)one->count - 1, one->kind);
    }
    if (listed < f->all) dlrm_info("problem: %lld others", (long long)(f->all - listed));
}
