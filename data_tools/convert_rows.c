/* Conversion of rows that are ids already: nothing is counted, rows stream from a source to a sink. */
#include <string.h>

#include "base/log.h"
#include "convert.h"
#include "transcode.h"
#include "vocab.h"

static dlrm_status convert(const dlrm_convert_options *o, dlrm_row_source *from, const dlrm_output *out, dlrm_row_sink **to)
{
    dlrm_shape wanted = from->shape;
    dlrm_sink_args args = {.format = o->to,
                           .folder = out->work,
                           .shape = &wanted,
                           .dense_bytes = o->dense_type < 0 ? from->dense_bytes
                                          : o->dense_type   ? 4
                                                            : 2,
                           .vocab = o->vocab,
                           .memory = o->memory};
    memcpy(args.rows, from->rows, sizeof args.rows);
    TRY(dlrm_transcode_form(from->shape.form, o->to, dlrm_convert_form(o->dense), &wanted.form));
    TRY(dlrm_source_scan_cardinalities(from));
    TRY(dlrm_sink_open(&args, to));
    TRY(dlrm_transcode(from, o->paths[0], *to));
    return dlrm_vocab_keep(o->paths[0], out->work);
}

dlrm_status dlrm_convert_rows(const dlrm_convert_options *o)
{
    dlrm_row_source *from = NULL;
    dlrm_row_sink *to = NULL;
    dlrm_output out = {.lock = -1};
    double start = dlrm_now();
    dlrm_status st = dlrm_source_open(o->paths[0], &o->hints, NULL, &from);
    if (st == DLRM_OK) st = dlrm_output_begin(o->out, &out);
    if (st == DLRM_OK) st = convert(o, from, &out, &to);
    dlrm_sink_close(&to);
    if (st == DLRM_OK) st = dlrm_output_commit(&out);
    dlrm_output_abandon(&out);
    if (st == DLRM_OK)
        dlrm_info("wrote %s: %s to %s, rows: %lld train, %lld test, %lld validation; %.1f s, %.0f MB/s of input", out.path,
                  dlrm_format_names[from->format], dlrm_format_names[o->to], (long long)from->rows[DLRM_TRAIN],
                  (long long)from->rows[DLRM_TEST], (long long)from->rows[DLRM_VALIDATION], dlrm_now() - start,
                  (double)from->disk_bytes * 1e-6 / (dlrm_now() - start));
    dlrm_source_close(&from);
    return st;
}
